"""A library's process: ``python -m benchmarks.eager.worker NAME THREADS``, NAME that of an engine.

It answers lines of JSON, and runs in the peers' environments, one of which holds an older Python.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple

import numpy as np

LAYERS = 3


class Engine(NamedTuple):
    """What the cases are written in."""

    leaf: Callable[[Any, bool], Any]  # from elements, and whether it needs a gradient
    tanh: Callable[[Any], Any]
    relu: Callable[[Any], Any]
    sum: Callable[[Any], Any]
    mean: Callable[[Any], Any]
    affine: Callable[[Any, Any, Any], Any]
    backward: Callable[[Any, list[Any]], None]  # of a loss, into leaves that hold no gradient
    elements: Callable[[Any], Any]
    gradient: Callable[[Any], Any]


def nnl_engine(threads: int, backend: str = "native") -> Engine:
    """Return NNL in dynamic mode."""
    import nnl_core as nnl
    from nnl_core import F

    nnl.set_backend(backend)
    nnl.set_auto_forward(True)
    return _nnabla_style(nnl.Variable, F)


def numpy_engine(threads: int) -> Engine:
    """Return NNL in dynamic mode, its backend ``numpy``."""
    return nnl_engine(threads, "numpy")


def nnabla_engine(threads: int) -> Engine:
    """Return nnabla in dynamic mode."""
    import nnabla as nn
    import nnabla.functions as F

    nn.set_auto_forward(True)
    return _nnabla_style(nn.Variable, F)


def _nnabla_style(variable: Any, F: Any) -> Engine:
    def leaf(array: Any, need_grad: bool) -> Any:
        return variable.from_numpy_array(array).apply(need_grad=need_grad)

    def backward(loss: Any, leaves: list[Any]) -> None:
        for one in leaves:
            one.grad.zero()
        loss.backward(clear_buffer=True)

    return Engine(
        leaf,
        F.tanh,
        F.relu,
        F.sum,
        F.mean,
        F.affine,
        backward,
        lambda y: np.array(y.d),
        lambda x: np.array(x.g),
    )


def torch_engine(threads: int) -> Engine:
    """Return PyTorch."""
    import torch

    torch.set_num_threads(threads)

    def backward(loss: Any, leaves: list[Any]) -> None:
        for one in leaves:
            one.grad = None
        loss.backward()

    return Engine(
        lambda array, need_grad: torch.from_numpy(array).requires_grad_(need_grad),
        torch.tanh,
        torch.relu,
        torch.sum,
        torch.mean,
        lambda x, w, b: torch.addmm(b, x, w),
        backward,
        lambda y: y.detach().numpy(),
        lambda x: x.grad.numpy(),
    )


ENGINES = {
    "NNL": nnl_engine,
    "NNL, numpy": numpy_engine,
    "PyTorch": torch_engine,
    "nnabla": nnabla_engine,
}


class Case(NamedTuple):
    """What is called, and what it gives: arrays that all libraries agree on."""

    call: Callable[[], Any]
    result: Callable[[], list[Any]]


def cases_of(engine: Engine) -> dict[str, Case]:
    """Return the cases, from the same elements for every library."""
    generator = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return generator.standard_normal(shape).astype(np.float32)

    x, y = engine.leaf(draw(32, 16), False), engine.leaf(draw(32, 16), False)
    z = engine.leaf(draw(32, 16), True)
    weights = [engine.leaf(draw(16, 16) / 4, True) for _ in range(LAYERS)]
    biases = [engine.leaf(draw(16), True) for _ in range(LAYERS)]

    def network() -> Any:
        h = x
        for w, b in zip(weights, biases):  # noqa: B905  # an older Python has no strict=
            h = engine.tanh(engine.affine(h, w, b))
        return engine.mean(h * h)

    def step() -> Any:
        loss = network()
        engine.backward(loss, [*weights, *biases])
        return loss

    def gradients() -> list[Any]:
        step()
        return [engine.gradient(one) for one in (*weights, *biases)]

    calls: dict[str, Callable[[], Any]] = {
        "tanh(x)": lambda: engine.tanh(x),
        "tanh(x), x needs a gradient": lambda: engine.tanh(z),
        "x + y": lambda: x + y,
        "x + y, x needs a gradient": lambda: z + y,
        "relu(x)": lambda: engine.relu(x),
        "x * 2": lambda: x * 2.0,
        "sum(x)": lambda: engine.sum(x),
        "affine(x, w, b)": lambda: engine.affine(x, weights[0], biases[0]),
        "network": network,
    }

    def case(call: Callable[[], Any]) -> Case:
        return Case(call, lambda: [engine.elements(call())])

    cases = {name: case(call) for name, call in calls.items()}
    cases["network, with its gradient"] = Case(step, gradients)
    return cases


def seconds(case: Case, repeats: int) -> float:
    """Return the processor time of one call, a graph being dropped as the next one is made."""
    call = case.call
    start = process_time()
    for _ in range(repeats):
        call()
    return (process_time() - start) / repeats


def main() -> None:
    """Answer each line with a line: of a case its results, or the seconds of a call."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    name, threads = sys.argv[1:]
    cases = cases_of(ENGINES[name](int(threads)))
    for line in sys.stdin:
        case, repeats = json.loads(line)
        if repeats:
            answer: Any = seconds(cases[case], repeats)
        else:
            answer = [array.tolist() for array in cases[case].result()]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
