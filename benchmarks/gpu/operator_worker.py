"""Checks operators by name: one comes in a line, what was found goes out in a line of JSON.

A process of its own, since what a kernel breaks stays broken in a process.
"""

from __future__ import annotations

import json
import os
import sys
from time import perf_counter
from typing import Any

import numpy as np

import nnl_core as nnl
from benchmarks.gpu import machine
from nnl_core.graph.backend import Backend
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.operator import lookup
from nnl_core.graph.spec import Spec
from nnl_core.testing import OperatorCheckError, check_operator


def checked(name: str, backend: Backend) -> dict[str, Any]:
    """Return an operator's problem, if it has one, who computes it, and the seconds it took."""
    start = perf_counter()
    answer: dict[str, Any] = {"name": name, "problem": None, "broken": False}
    try:
        check_operator(name, backend)
        answer["computed_by"] = computed_by(name, backend)
    except Exception as error:
        answer["problem"] = f"{type(error).__name__}: {error}"[:2000]
        # Anything but a wrong result may have left the device in a state that nothing mends.
        answer["broken"] = not isinstance(error, OperatorCheckError)
    return {**answer, "seconds": perf_counter() - start}


def computed_by(name: str, backend: Backend) -> str:
    """Tell what computes the first sample of an operator in ``float32``."""
    operator = lookup(name)
    sample = next(iter(operator.iterate_samples(np.random.default_rng(0))))
    arrays = [
        array.astype(np.float32) if isinstance(array, np.ndarray) and array.dtype.kind == "f" else
        array
        for array in sample.inputs
    ]  # fmt: skip
    attributes = operator.bind_attributes(sample.attributes)
    given = [None if array is None else Spec.of(np.asarray(array)) for array in arrays]
    given += [None] * (len(operator.parameters.inputs) - len(given))
    graph = Graph()
    values = tuple(ABSENT if spec is None else graph.add_leaf(spec) for spec in given)
    outputs = tuple(graph.new_value(spec) for spec in operator.infer_specs(given, attributes))
    graph.instructions = [Instruction(operator, values, outputs, attributes)]
    graph.outputs = list(outputs)
    program = backend.compile(graph)
    # A backend may have cut it into several.
    return ",".join(sorted({program.computed_by(one) for one in program.graph.instructions}))


def main() -> None:
    """Answer each line with a line, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    machine.find()
    with nnl.backend_scope("cuda") as backend:
        print(json.dumps("ready"), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(checked(json.loads(line), backend)), file=answers, flush=True)


if __name__ == "__main__":
    main()
