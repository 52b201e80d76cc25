"""PyTorch's side of ``benchmarks.operators``: does what lines of JSON tell it to.

It runs in PyTorch's own environment, where NNL is not installed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as nnF


class Case(NamedTuple):
    """What there is to compute, once defined."""

    forward: Callable[[], Any]
    both: Callable[[], Any]
    inputs: list[Any]


cases: dict[str, Case] = {}


def define(name: str, expression: str, path: str, differentiable: Sequence[int]) -> None:
    """Make a case: its function, its inputs, and the gradient that its output is given."""
    arrays = np.load(path)
    inputs = [torch.from_numpy(arrays[f"arr_{i}"]) for i in range(len(arrays.files))]
    for position in differentiable:
        inputs[position].requires_grad_()
    function = eval(expression, {"torch": torch, "nnF": nnF})  # the benchmark's own text

    def forward() -> Any:
        with torch.no_grad():
            return function(*inputs)

    def both() -> Any:
        y = function(*inputs)
        y.backward(torch.ones_like(y))
        return y

    cases[name] = Case(forward, both, inputs)


def result(name: str, path: str, differentiable: Sequence[int]) -> None:
    """Write the output, and the gradients of the differentiable inputs."""
    case = cases[name]
    arrays = {"y": case.forward().numpy()}
    if differentiable:
        case.both()
        for position in differentiable:
            arrays[f"g{position}"] = case.inputs[position].grad.numpy()
    np.savez(path, **arrays)


def seconds(name: str, what: str, repeats: int) -> float:
    """Return the processor time that one call took."""
    call = getattr(cases[name], what)
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) / repeats


def main() -> None:
    """Answer each line with a line."""
    torch.set_num_threads(int(sys.argv[1]))
    commands: dict[str, Callable[..., Any]] = {
        "define": define,
        "result": result,
        "seconds": seconds,
    }
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(commands[command](*arguments)), flush=True)


if __name__ == "__main__":
    main()
