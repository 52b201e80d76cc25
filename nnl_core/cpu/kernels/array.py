"""NumPy kernels of arrangement: views, joining, dividing, borders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nnl_core.cpu.kernels.blocks import BLOCK_BYTES
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


NARROW = 64  # borders up to this width are copied and added slice by slice

Widths = list[tuple[int, int]]
Key = tuple[slice | int, ...]


def _inside(shape: tuple[int, ...], widths: Widths) -> tuple[slice, ...]:
    ends = zip(widths, shape, strict=True)
    return tuple(slice(a, a + n) if a or b else slice(None) for (a, b), n in ends)


def _blocks(x: Array, widths: Widths) -> Iterator[slice]:
    """Yield ranges of the first axis that stay in the cache; all of it where it has a border."""
    step = len(x) if any(widths[0]) else BLOCK_BYTES // max(1, x[:1].nbytes)
    for start in range(0, len(x), max(1, step)):
        yield slice(start, start + max(1, step))


def _copies(shape: tuple[int, ...], widths: Widths, mode: str) -> list[tuple[Key, Key]]:
    """Pair each slice of a border with the slice that it is a copy of, in an order that works.

    The last axis is the last: its slices are then columns from the first row to the last.
    """
    inside = _inside(shape, widths)
    pairs: list[tuple[Key, Key]] = []
    for axis in range(len(shape)):
        before, length = widths[axis][0], shape[axis]
        sources = padding.pad_sources(length, widths[axis], mode) if any(widths[axis]) else ()
        for place, source in enumerate(sources):
            if not before <= place < before + length:
                rows, columns = [slice(None)] * axis, inside[axis + 1 :]
                pairs.append(((*rows, place, *columns), (*rows, before + int(source), *columns)))
    return pairs


def _pad(
    x: Array,
    *,
    pad_width: tuple[int, ...],
    mode: str,
    constant_value: float,
    out: Array | None,
) -> Array:
    widths = padding.pairs(pad_width, x.ndim)
    if mode != "constant" and not 0 < max(pad_width, default=0) <= NARROW:
        return _copied(padding.pad_operator.reference(x, pad_width=pad_width, mode=mode), out)
    if out is None:
        out = np.empty([n + sum(pair) for n, pair in zip(x.shape, widths, strict=True)], x.dtype)
    inside = _inside(x.shape, widths)
    if mode == "constant":
        if x.size < out.size:
            out.fill(constant_value)
        out[inside] = x
        return out
    copies = _copies(x.shape, widths, mode)
    for block in _blocks(out, widths):
        part = out[block]
        part[inside] = x[... if any(widths[0]) else block]
        for border, source in copies:
            part[border] = part[source]
    return out


def _pad_adjoint(
    g: Array, *, pad_width: tuple[int, ...], mode: str, shape: tuple[int, ...], out: Array | None
) -> Array:
    widths = padding.pairs(pad_width, len(shape))
    if not 0 < max(pad_width, default=0) <= NARROW:
        options = {"pad_width": pad_width, "mode": mode, "shape": shape}
        return _copied(padding.pad_adjoint.reference(g, **options), out)
    dx = np.empty(shape, g.dtype) if out is None else out
    inside, copies = _inside(shape, widths), _copies(shape, widths, mode)
    for block in _blocks(g, widths):
        part = g[block].copy()
        for border, source in reversed(copies):
            part[source] += part[border]
        dx[... if any(widths[0]) else block] = part[inside]
    return dx


padding.pad_operator.kernel("numpy", _pad)
padding.pad_adjoint.kernel("numpy", _pad_adjoint)
