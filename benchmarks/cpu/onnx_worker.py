"""ONNX Runtime's process: ``python -m benchmarks.cpu.onnx_worker THREADS``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.cpu import models
from benchmarks.cpu.arrays import Arrays
from benchmarks.cpu.serving import serve


class Value:
    """The name of a value in the graph that is being built."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.name = name

    def __add__(self, other: Value) -> Value:
        return self.graph.node("Add", self, other)


class Graph:
    """Builds a graph from calls of NNL's functions: it is the ``F`` and ``PF`` of an engine."""

    def __init__(self, values: Arrays) -> None:
        self.values = values
        self.nodes: list[Any] = []
        self.path: list[str] = []

    def node(self, kind: str, *inputs: Value | str, **attributes: object) -> Value:
        names = [one.name if isinstance(one, Value) else one for one in inputs]
        output = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [output], name=output, **attributes))
        return Value(self, output)

    def parameter(self, *names: str) -> str:
        name = "/".join((*self.path, *names))
        assert name in self.values
        return name

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        self.path.append(name)
        yield
        self.path.pop()

    def convolution(
        self,
        x: Value,
        maps: int,
        kernel: Sequence[int],
        pad: Sequence[int],
        stride: Sequence[int],
        *,
        with_bias: bool,
        name: str,
    ) -> Value:
        assert not with_bias
        weight = self.parameter(name, "conv", "W")
        places = {"kernel_shape": kernel, "pads": [*pad, *pad], "strides": stride}
        return self.node("Conv", x, weight, **places)

    def batch_normalization(self, x: Value, *, batch_stat: bool, name: str) -> Value:
        assert not batch_stat
        kinds = ("gamma", "beta", "mean", "var")
        parts = [self.parameter(name, "bn", kind) for kind in kinds]
        return self.node("BatchNormalization", x, *parts, epsilon=1e-5)

    def relu(self, x: Value) -> Value:
        return self.node("Relu", x)

    def max_pooling(
        self, x: Value, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]
    ) -> Value:
        places = {"kernel_shape": kernel, "strides": stride, "pads": [*pad, *pad]}
        return self.node("MaxPool", x, **places)

    def global_average_pooling(self, x: Value) -> Value:
        return self.node("Flatten", self.node("GlobalAveragePool", x))

    def affine(self, x: Value, outputs: int, *, name: str) -> Value:
        parts = [self.parameter(name, "affine", kind) for kind in ("W", "b")]
        return self.node("Gemm", x, *parts)


def model_of(shape: Sequence[int], values: Arrays) -> bytes:
    """Return ResNet-50 as a file's bytes, batch normalisation left for the runtime to fold."""
    graph = Graph(values)
    engine = models.Engine(graph, graph, graph.scope, *(2 * [NotImplemented]))
    y = models.resnet50(engine, Value(graph, "x"), training=False)
    stored = [
        numpy_helper.from_array(array.ravel() if "/bn/" in name else array, name)
        for name, array in values.items()
    ]
    x_info = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y_info = helper.make_tensor_value_info(y.name, TensorProto.FLOAT, (shape[0], 1000))
    made = helper.make_graph(graph.nodes, "resnet50", [x_info], [y_info], stored)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


class Inference:
    def __init__(self, case: str, given: Arrays, values: Arrays) -> None:
        self.x = given["x"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(sys.argv[1])
        options.inter_op_num_threads = 1
        data = model_of(self.x.shape, values)
        self.session = onnxruntime.InferenceSession(
            data, options, providers=["CPUExecutionProvider"]
        )

    def step(self) -> None:
        (self.y,) = self.session.run(None, {"x": self.x})

    def result(self) -> list[float]:
        found: list[float] = np.ravel(self.y).tolist()
        return found


if __name__ == "__main__":
    serve(Inference)
