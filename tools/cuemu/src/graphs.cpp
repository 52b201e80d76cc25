// Graphs, made by capturing streams: the recorded work, replayed in the order of its capture.
#include "driver.hpp"
#include <map>

static std::map<CUgraph, Graph> graphs;

static void end_capture(const Graph &graph) {
    graph->open = false;
    for (CUstream stream : driver.streams) {
        if (stream->capture != graph) continue;
        stream->capture.reset();
        stream->origin = false;
    }
}

static bool all_joined(const Graph &graph) {
    return std::none_of(driver.streams.begin(), driver.streams.end(), [&](CUstream stream) {
        return stream->capture == graph && !stream->origin && stream->joined < stream->position;
    });
}

extern "C" {

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    CONTEXT;
    if (!driver.streams.count(stream))
        return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    "the legacy default stream cannot be captured");
    if (stream->capture) return fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is captured already");
    stream->capture = std::make_shared<CUgraph_st>();
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    stream->origin = true;
    stream->branch = 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    CONTEXT;
    *graph = nullptr;
    if (!driver.streams.count(stream) || !stream->capture)
        return fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is not captured");
    if (!stream->origin)
        return fail(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "this stream did not begin the capture");
    Graph captured = stream->capture;
    bool joined = all_joined(captured);
    end_capture(captured);
    if (!captured->forbidden.empty())
        return fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, captured->forbidden);
    if (!joined)
        return fail(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                    "the stream does not wait for all that other captured streams do");
    *graph = captured.get();
    graphs[*graph] = captured;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    CONTEXT;
    Graph &capture = resolve(stream)->capture;
    *status = !capture                     ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->forbidden.empty() ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                           : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *, size_t *count) {
    CONTEXT;
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    ENTER;
    return graphs.erase(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long) {
    CONTEXT;
    if (!graphs.count(graph)) return fail(CUDA_ERROR_INVALID_VALUE, "unknown or destroyed graph");
    *executable = new CUgraphExec_st{graphs[graph]};
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec, CUstream) {
    CONTEXT;
    return CUDA_SUCCESS;
}

// A launch that is queued keeps the graph it was launched with, whatever becomes of the executable.
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    CONTEXT;
    return enqueue(stream, CU_GRAPH_NODE_TYPE_GRAPH, [graph = executable->graph] {
        for (const Node &node : graph->nodes) TRY(node.run());
        return CUDA_SUCCESS;
    });
}

static CUgraphExecUpdateResult compare(const CUgraph_st &old_graph, const CUgraph_st &new_graph) {
    size_t count = old_graph.nodes.size();
    if (new_graph.nodes.size() != count) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < count; i++)
        if (old_graph.nodes[i].branch != new_graph.nodes[i].branch)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < count; i++)
        if (old_graph.nodes[i].type != new_graph.nodes[i].type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec executable, CUgraph graph,
                           CUgraphExecUpdateResultInfo *info) {
    CONTEXT;
    if (!graphs.count(graph)) return fail(CUDA_ERROR_INVALID_VALUE, "unknown or destroyed graph");
    CUgraphExecUpdateResult result = compare(*executable->graph, *graph);
    if (info) *info = {result, nullptr, nullptr};
    if (result)
        return fail(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                    result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
                        ? "the graph has other nodes or edges than the executable"
                        : "a node is of another type than in the executable");
    executable->graph = graphs[graph];
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
    ENTER;
    delete executable;
    return CUDA_SUCCESS;
}

} // extern "C"
