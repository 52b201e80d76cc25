"""NumPy kernels of arrangement: views, joining, dividing, borders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnl_core.graph.operator import Array, Operator
from nnl_core.operators import array as family
from nnl_core.operators import indexing, joining, padding


def _view(operator: Operator, look: Callable[..., Array]) -> None:
    """Attach a kernel that returns a view, or copies it to where it is wanted."""

    def kernel(x: Array, *, out: Array | None, **attributes: Any) -> Array:
        view = look(x, **attributes)
        if out is None:
            return view
        np.copyto(out, view)
        return out

    operator.kernel("numpy", kernel)


_view(family.reshape_operator, lambda x, shape: x.reshape(shape))
_view(family.expand_dims_operator, lambda x, axes: np.expand_dims(x, axes))
_view(family.squeeze_operator, lambda x, axes: np.squeeze(x, axes))
_view(family.transpose_operator, lambda x, axes: x.transpose(axes))
_view(family.flip_operator, lambda x, axes: np.flip(x, axes))
_view(indexing.getitem_operator, lambda x, key: x[indexing.as_key(key)])


def _copied(x: Array, out: Array | None) -> Array:
    if out is None:
        return np.array(x)
    np.copyto(out, x)
    return out


def _getitem_adjoint(g: Array, *, key: Any, shape: tuple[int, ...], out: Array | None) -> Array:
    if out is None:
        out = np.empty(shape, g.dtype)
    if g.size < out.size:
        out.fill(0)
    out[indexing.as_key(key)] = g
    return out


indexing.getitem_adjoint.kernel("numpy", _getitem_adjoint)


def _concatenate(*xs: Array, axis: int, out: Array | None) -> Any:
    if out is None:
        return joining.concatenate_operator.reference(*xs, axis=axis)
    return np.concatenate(xs, axis, out=out)


def _stack(*xs: Array, axis: int, out: Array | None) -> Any:
    if out is None:
        return joining.stack_operator.reference(*xs, axis=axis)
    return np.stack(xs, axis, out=out)


joining.concatenate_operator.kernel("numpy", _concatenate)
joining.stack_operator.kernel("numpy", _stack)


def _split(x: Array, *, axis: int, out: Any) -> Any:
    if out is None:
        return joining.split_operator.reference(x, axis=axis)
    parts = np.moveaxis(x, axis, 0)
    for part, target in zip(parts, out if isinstance(out, tuple) else (out,), strict=True):
        np.copyto(target, part)
    return out


joining.split_operator.kernel("numpy", _split)


def _tile(x: Array, *, reps: tuple[int, ...], out: Array | None) -> Array:
    if out is None:
        return np.tile(x, reps)
    ndim = out.ndim
    x = x.reshape((1,) * (ndim - x.ndim) + x.shape)
    counts = (1,) * (ndim - len(reps)) + reps
    pairs = [n for pair in zip(counts, x.shape, strict=True) for n in pair]
    np.copyto(out.reshape(pairs), np.expand_dims(x, tuple(range(0, 2 * ndim, 2))))
    return out


family.tile_operator.kernel("numpy", _tile)


def _pad(
    x: Array,
    *,
    pad_width: tuple[int, ...],
    mode: str,
    constant_value: float,
    out: Array | None,
) -> Array:
    if mode != "constant":
        return _pad_by_copies(x, padding.pairs(pad_width, x.ndim), mode, out)
    first = x.ndim - len(pad_width) // 2
    before = (0,) * first + pad_width[::2]
    after = (0,) * first + pad_width[1::2]
    if out is None:
        shape = [n + b + a for n, b, a in zip(x.shape, before, after, strict=True)]
        out = np.empty(shape, x.dtype)
    if x.size < out.size:
        out.fill(constant_value)
    out[tuple(slice(b, b + n) for b, n in zip(before, x.shape, strict=True))] = x
    return out


def _pad_by_copies(x: Array, widths: list[tuple[int, int]], mode: str, out: Array | None) -> Array:
    axes = [axis for axis, pair in enumerate(widths) if any(pair)]
    for axis in reversed(axes):  # the first one last: by then it is long rows that are copied
        sources = padding.pad_sources(x.shape[axis], widths[axis], mode)
        target = out if axis == axes[0] else None
        x = np.take(x, sources, axis, out=target, mode="clip")
    return x if axes else _copied(x, out)


MANY = 64
"""Borders up to this width are added slice by slice."""


def _pad_adjoint(
    g: Array, *, pad_width: tuple[int, ...], mode: str, shape: tuple[int, ...], out: Array | None
) -> Array:
    widths = padding.pairs(pad_width, len(shape))
    if any(sum(pair) > MANY for pair in widths):
        options = {"pad_width": pad_width, "mode": mode, "shape": shape}
        return _copied(padding.pad_adjoint.reference(g, **options), out)
    total = g.copy()
    inner = tuple(slice(pair[0], pair[0] + n) for pair, n in zip(widths, shape, strict=True))
    for axis, (length, pair) in enumerate(zip(shape, widths, strict=True)):
        if not any(pair):
            continue
        sources = padding.pad_sources(length, pair, mode)
        for place in (*range(pair[0]), *range(pair[0] + length, len(sources))):
            total[(*inner[:axis], pair[0] + sources[place])] += total[(*inner[:axis], place)]
    return _copied(total[inner], out)


padding.pad_operator.kernel("numpy", _pad)
padding.pad_adjoint.kernel("numpy", _pad_adjoint)
