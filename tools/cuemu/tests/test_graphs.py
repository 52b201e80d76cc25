"""Graphs through the driver API, as code without bindings for them calls it."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p

import numpy as np
import pytest

GLOBAL, RELAXED = 0, 2  # CUstreamCaptureMode
TOPOLOGY_CHANGED, NODE_TYPE_CHANGED = 2, 3  # CUgraphExecUpdateResult
INVALIDATED, UNJOINED, UPDATE_FAILURE = 901, 904, 910  # CUresult


class UpdateInfo(ctypes.Structure):
    _fields_ = (("result", ctypes.c_int), ("error", c_void_p), ("from_node", c_void_p))


class Graphs:
    """The driver's calls, on one stream."""

    def __init__(self, driver: ctypes.CDLL, cuda: object) -> None:
        self.driver, self.cuda = driver, cuda
        self.stream = cuda.Stream()

    @property
    def handle(self):
        return c_void_p(self.stream.handle)

    def begin(self, mode=GLOBAL):
        assert self.driver.cuStreamBeginCapture_v2(self.handle, mode) == 0

    def end(self):
        """Return the status and the graph."""
        graph = c_void_p()
        return self.driver.cuStreamEndCapture(self.handle, byref(graph)), graph

    def captured(self, *work):
        self.begin()
        for one in work:
            one()
        status, graph = self.end()
        assert status == 0
        return graph

    def instantiated(self, graph):
        executable = c_void_p()
        status = self.driver.cuGraphInstantiateWithFlags(
            byref(executable), graph, ctypes.c_ulonglong(0)
        )
        assert status == 0
        return executable

    def launch(self, executable):
        assert self.driver.cuGraphLaunch(executable, self.handle) == 0

    def update(self, executable, graph):
        """Return the status and the result."""
        info = UpdateInfo()
        status = self.driver.cuGraphExecUpdate_v2(executable, graph, byref(info))
        return status, info.result


@pytest.fixture
def graphs(driver, cuda, context):
    return Graphs(driver, cuda)


@pytest.fixture
def ones(upload):
    return upload(np.ones(64, np.float32))


@pytest.fixture
def double(compiled, graphs):
    """Return a function that gives work which adds an array to itself."""
    vadd = compiled("kernels.cu").get_function("vadd")

    def work(y, stream=None):
        where = stream or graphs.stream
        return lambda: vadd(y, y, y, np.int32(y.size), block=(y.size, 1, 1), stream=where)

    return work


@pytest.fixture
def clear(graphs, cuda):
    """Return a function that gives work which sets an array to zeros."""
    return lambda y: lambda: cuda.memset_d32_async(y.gpudata, 0, y.size, graphs.stream)


def test_captured_work_runs_at_each_launch_and_not_before(graphs, double, ones):
    executable = graphs.instantiated(graphs.captured(double(ones), double(ones)))
    assert (ones.get() == 1).all()
    for factor in (4, 16):
        graphs.launch(executable)
        graphs.stream.synchronize()
        assert (ones.get() == factor).all()


def test_the_graph_may_be_destroyed_before_its_executable(graphs, double, driver, ones):
    graph = graphs.captured(double(ones))
    executable = graphs.instantiated(graph)
    assert driver.cuGraphDestroy(graph) == 0
    graphs.launch(executable)
    graphs.stream.synchronize()
    assert (ones.get() == 2).all()
    assert driver.cuGraphExecDestroy(executable) == 0


def test_a_destroyed_graph_is_not_instantiated(graphs, double, driver, ones):
    graph = graphs.captured(double(ones))
    driver.cuGraphDestroy(graph)
    status = driver.cuGraphInstantiateWithFlags(byref(c_void_p()), graph, ctypes.c_ulonglong(0))
    assert status == 1


def test_an_updated_executable_does_the_same_elsewhere(graphs, double, ones, upload):
    other = upload(np.ones(64, np.float32))
    executable = graphs.instantiated(graphs.captured(double(ones)))
    assert graphs.update(executable, graphs.captured(double(other))) == (0, 0)
    graphs.launch(executable)
    graphs.stream.synchronize()
    assert (ones.get() == 1).all()
    assert (other.get() == 2).all()


def test_what_was_launched_before_an_update_is_not_changed_by_it(graphs, double, ones, upload):
    other = upload(np.ones(64, np.float32))
    executable = graphs.instantiated(graphs.captured(double(ones)))
    graphs.launch(executable)
    graphs.update(executable, graphs.captured(double(other)))
    graphs.stream.synchronize()
    assert (ones.get() == 2).all()


def test_an_update_with_more_nodes_is_refused(graphs, double, ones):
    executable = graphs.instantiated(graphs.captured(double(ones)))
    longer = graphs.captured(double(ones), double(ones))
    assert graphs.update(executable, longer) == (UPDATE_FAILURE, TOPOLOGY_CHANGED)
    graphs.launch(executable)
    graphs.stream.synchronize()
    assert (ones.get() == 2).all()


def test_an_update_with_another_kind_of_node_is_refused(graphs, double, clear, ones):
    executable = graphs.instantiated(graphs.captured(double(ones)))
    other = graphs.captured(clear(ones))
    assert graphs.update(executable, other) == (UPDATE_FAILURE, NODE_TYPE_CHANGED)


def test_another_stream_takes_part_from_where_it_waits_to_where_it_is_awaited(
    graphs, double, ones, cuda, upload
):
    side, other = cuda.Stream(), upload(np.ones(64, np.float32))
    graphs.begin()
    side.wait_for_event(cuda.Event().record(graphs.stream))
    double(other, side)()
    double(ones)()
    graphs.stream.wait_for_event(cuda.Event().record(side))
    status, graph = graphs.end()
    assert status == 0
    graphs.launch(graphs.instantiated(graph))
    graphs.stream.synchronize()
    assert (ones.get() == 2).all()
    assert (other.get() == 2).all()


def test_a_stream_that_takes_part_has_to_be_awaited(graphs, double, ones, cuda):
    side = cuda.Stream()
    graphs.begin()
    side.wait_for_event(cuda.Event().record(graphs.stream))
    double(ones, side)()
    assert graphs.end()[0] == UNJOINED


def test_an_event_from_outside_is_not_awaited_in_a_capture(graphs, cuda):
    outside = cuda.Event().record(cuda.Stream())
    graphs.begin()
    with pytest.raises(cuda.Error, match="outside of the capture"):
        graphs.stream.wait_for_event(outside)
    graphs.end()


def test_an_event_of_a_capture_has_no_state(graphs, cuda):
    graphs.begin()
    event = cuda.Event().record(graphs.stream)
    graphs.end()
    with pytest.raises(cuda.Error, match="captured"):
        event.synchronize()


@pytest.mark.parametrize("mode", [GLOBAL, RELAXED])
def test_waiting_for_the_device_makes_a_capture_invalid(graphs, cuda, mode):
    graphs.begin(mode)
    with pytest.raises(cuda.LogicError, match="cuCtxSynchronize is not allowed"):
        cuda.Context.synchronize()
    assert graphs.end()[0] == INVALIDATED


def test_an_allocation_makes_a_capture_invalid(graphs, cuda):
    graphs.begin()
    with pytest.raises(cuda.Error, match=r"cuMemAlloc\w* is not allowed"):
        cuda.mem_alloc(4)
    assert graphs.end()[0] == INVALIDATED


def test_a_relaxed_capture_allows_allocations(graphs, double, ones, cuda):
    graphs.begin(RELAXED)
    cuda.mem_alloc(4).free()
    double(ones)()
    assert graphs.end()[0] == 0


def test_work_on_the_legacy_stream_makes_a_capture_invalid(graphs, cuda, ones):
    graphs.begin()
    with pytest.raises(cuda.Error, match="legacy stream"):
        cuda.memset_d32(ones.gpudata, 0, 1)
    assert graphs.end()[0] == INVALIDATED


def test_the_legacy_stream_is_not_captured(driver, context):
    assert driver.cuStreamBeginCapture_v2(c_void_p(), GLOBAL) == 900


def test_errors_have_the_drivers_names(driver, context):
    name = ctypes.c_char_p()
    assert driver.cuGetErrorName(UPDATE_FAILURE, byref(name)) == 0
    assert name.value == b"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"
