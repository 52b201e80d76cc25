"""What computes an operator on NumPy arrays: a kernel or the reference, half by way of float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from nnl_core.graph.dtypes import is_half, widened
from nnl_core.graph.kernels import select_kernel
from nnl_core.graph.operator import Array, Operator

Call: TypeAlias = Callable[..., Any]


def select_call(
    operator: Operator, inputs: Sequence[Any], attributes: Mapping[str, object]
) -> Call:
    """Return what is called as ``call(*arrays, out=arrays_or_None, **attributes)``.

    ``inputs`` are arrays or specs, or ``None`` for an absent one. Neither kernels nor references
    compute in half precision: they are given ``float32``, and results are rounded once. Only views
    take the elements as they are.
    """
    kernel: Call | None = select_kernel(operator, "numpy", inputs, attributes)
    half = not operator.view and any(it is not None and is_half(it.dtype) for it in inputs)
    if kernel is not None and not half:
        return kernel
    return _filling(operator.reference if kernel is None else partial(kernel, out=None), half)


def _filling(function: Call, half: bool) -> Call:
    """Let a function that returns fresh arrays fill those it is given, and widen its inputs."""

    def call(*arrays: Array | None, out: Any = None, **attributes: Any) -> Any:
        result = function(*(widened(arrays) if half else arrays), **attributes)
        if out is None:
            return result
        targets = out if isinstance(out, tuple) else (out,)
        results = result if isinstance(result, tuple) else (result,)
        for target, array in zip(targets, results, strict=True):
            np.copyto(target, array, casting="unsafe")
        return out

    return call
