"""Backend ``numpy``: runs references and NumPy kernels on host arrays."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnl_core.cpu.calls import select_call
from nnl_core.cpu.program import NumpyProgram
from nnl_core.errors import NnlError, OperatorError
from nnl_core.graph.backend import BoundCall
from nnl_core.graph.ir import Graph
from nnl_core.graph.operator import Array, Operator
from nnl_core.graph.spec import Spec


def probe() -> str | None:
    """Return why the backend cannot be used here; NumPy always can."""
    return None


class NumpyBackend:
    """Computes on NumPy arrays, with BLAS through NumPy."""

    name = "numpy"
    on_host = True

    def __init__(self) -> None:
        importlib.import_module("nnl_core.cpu.kernels")  # attaches them to the operators

    def allocate(self, spec: Spec) -> Array:
        """Return an uninitialised array."""
        return np.empty(spec.shape, spec.dtype)

    def to_host(self, buffer: Array) -> Array:
        """Return the array itself."""
        return buffer

    def from_host(self, array: Array, buffer: Array | None = None) -> Array:
        """Return the array itself."""
        return array

    def run(
        self,
        operator: Operator,
        inputs: Sequence[Array | None],
        attributes: Mapping[str, object],
        outputs: Sequence[Spec],
    ) -> tuple[Array, ...]:
        """Run one operator now."""
        specs = [None if array is None else Spec.of(array) for array in inputs]
        return self.bind(operator, specs, attributes, outputs)(inputs)

    def bind(
        self,
        operator: Operator,
        inputs: Sequence[Spec | None],
        attributes: Mapping[str, object],
        outputs: Sequence[Spec],
    ) -> BoundCall:
        """Return what runs one operator on arrays of these specs."""
        call = select_call(operator, inputs, attributes)
        keywords = {"out": None, **attributes}
        is_view = operator.view
        single = outputs[0] if len(outputs) == 1 else None

        def run(arrays: Sequence[Array | None]) -> tuple[Array, ...]:
            try:
                if is_view:
                    result = np.array(call(*arrays, **keywords), order="C")  # not a view of another
                else:
                    with np.errstate(all="ignore"):
                        result = call(*arrays, **keywords)
            except NnlError:
                raise
            except Exception as error:
                shapes = ", ".join("none" if a is None else f"{a.dtype}{a.shape}" for a in arrays)
                raise OperatorError(
                    f"operator {operator.name!r} failed on inputs {shapes}: {error}"
                ) from error
            if single is not None and not isinstance(result, tuple):
                return (_as_spec(result, single),)
            results = result if isinstance(result, tuple) else (result,)
            return tuple([_as_spec(one, spec) for one, spec in zip(results, outputs, strict=True)])

        return run

    def compile(self, graph: Graph) -> NumpyProgram:
        """Plan memory and bind a NumPy kernel to each instruction."""
        return NumpyProgram(graph)


def _as_spec(result: Any, spec: Spec) -> Array:
    array = np.asarray(result, order="C")
    if array.dtype != spec.dtype:
        with np.errstate(all="ignore"):  # half precision overflows when it is rounded
            array = array.astype(spec.dtype)
    if array.shape != spec.shape:
        raise OperatorError(f"a result has shape {array.shape} where infer says {spec.shape}")
    return array
