"""NumPy kernels of Fourier transforms of real signals along one axis, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnl_core.graph.operator import Array, Operator
from nnl_core.operators import signal as family

Transform = Callable[[Array, Array, Any], None]
BLOCK_BYTES = 1 << 18  # of more at once, NumPy's transforms take twice the time


def _complex(x: Array) -> Array:
    """View pairs as a matrix with a row of complex numbers for each signal."""
    pairs = np.ascontiguousarray(x)
    return pairs.view(np.result_type(x.dtype, np.complex64)).reshape(-1, x.shape[-2])


def _attach(
    operator: Operator, shape: Callable[..., tuple[int, ...]]
) -> Callable[[Transform], Transform]:
    """Attach ``transform(x, y, norm)``; ``shape(x, **attributes)`` is that of the result."""

    def attach(transform: Transform) -> Transform:
        def kernel(x: Array, *, signal_ndim: int, out: Array | None, **attributes: Any) -> Array:
            if signal_ndim != 1 or not x.size:
                result: Array = operator.reference(x, signal_ndim=signal_ndim, **attributes)
                return np.asarray(np.positive(result, out=out))
            y = np.empty(shape(x, **attributes), x.dtype) if out is None else out
            transform(x, y, attributes["norm"])
            return y

        operator.kernel("numpy", kernel)
        return transform

    return attach


def _by_rows(transform: Callable[..., Any], source: Array, target: Array, **options: Any) -> None:
    step = max(1, BLOCK_BYTES // (source.itemsize * source.shape[1]))
    for start in range(0, len(source), step):
        block = slice(start, start + step)
        transform(source[block], out=target[block], **options)


@_attach(family.rfft_operator, lambda x, norm: (*x.shape[:-1], x.shape[-1] // 2 + 1, 2))
def _rfft(x: Array, y: Array, norm: Any) -> None:
    _by_rows(np.fft.rfft, x.reshape(-1, x.shape[-1]), _complex(y), norm=norm)


@_attach(family.irfft_operator, lambda x, length, norm: (*x.shape[:-2], length))
def _irfft(x: Array, y: Array, norm: Any) -> None:
    length = y.shape[-1]
    _by_rows(np.fft.irfft, _complex(x), y.reshape(-1, length), n=length, norm=norm)
