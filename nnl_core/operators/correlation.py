"""Correlation of patches of two images, moved against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.checks import wholes
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import same_dtype
from nnl_core.operators.dtypes import floating, wide
from nnl_core.operators.multilinear import differentiate_each_other
from nnl_core.operators.windows import Lengths, lengths, placements, sliding, taps, volume

__all__ = ["patch_correlation"]

# The form is the sum over all indices of
# y[n,s,t,p,q] x1[n,c,p P+i,q Q+j] x2[n,c,p P+s S+i,q Q+t T+j],
# where (P, Q) is the patch step and (S, T) the shift step.


def _patches(x: Array, patch: Lengths, step: Lengths) -> Array:
    """Return a view of patches as (batch, channels, p, q, i, j)."""
    return sliding(wide(x), patch, step)


def _moved(x: Array, patch: Lengths, step: Lengths, shifts: Lengths, shift_step: Lengths) -> Array:
    """Return a view of patches of each shift as (batch, channels, s, t, p, q, i, j)."""
    shifted = sliding(wide(x), shifts, (1, 1), shift_step).transpose(0, 1, 4, 5, 2, 3)
    return sliding(shifted, patch, step)


def _regions(places: Lengths, step: Lengths, first: tuple[int, ...]) -> tuple[slice, ...]:
    """Return where elements ``first`` of all patches lie."""
    return tuple(
        slice(start, start + (n - 1) * s + 1, s)
        for start, n, s in zip(first, places, step, strict=True)
    )


def _spans(places: Lengths, patch: Lengths, step: Lengths) -> Lengths:
    """Return the lengths that patches at the places cover."""
    return tuple((n - 1) * s + k for n, s, k in zip(places, step, patch, strict=True))


def _widened(size: Lengths, shifts: Lengths, shift_step: Lengths) -> Lengths:
    """Return the lengths of the second image, where its patches move over these."""
    return tuple(n + (m - 1) * s for n, m, s in zip(size, shifts, shift_step, strict=True))


@defop("nnl::patch_correlation", save=("x1", "x2"), precision="half")
def patch_correlation_operator(
    x1: Array, x2: Array, *, patch: Lengths, step: Lengths, shifts: Lengths, shift_step: Lengths
) -> Array:
    """Correlate patches of ``x1`` with those of ``x2``, moved by each shift.

    ``y[n,s,t,p,q] = sum_{c,i,j} x1[n,c,p P+i,q Q+j] x2[n,c,p P+s S+i,q Q+t T+j]``.
    """
    fixed, moved = _patches(x1, patch, step), _moved(x2, patch, step, shifts, shift_step)
    y = np.einsum("ncpqij,ncstpqij->nstpq", fixed, moved)
    return y.astype(x1.dtype, copy=False)


@defop("nnl::patch_correlation_first", save=("x2", "y"), outputs=("x1",), precision="half")
def patch_correlation_first(
    x2: Array, y: Array, *, patch: Lengths, step: Lengths, shifts: Lengths, shift_step: Lengths
) -> Array:
    """``x1[n,c,p P+i,q Q+j] = sum_{s,t} y[n,s,t,p,q] x2[n,c,p P+s S+i,q Q+t T+j]``, summed over
    the patches that hold an element."""
    moved = _moved(x2, patch, step, shifts, shift_step)
    places = y.shape[3:]
    x1 = np.zeros((*x2.shape[:2], *_spans(places, patch, step)), moved.dtype)
    for i, j in taps(patch):
        region: Any = (..., *_regions(places, step, (i, j)))
        x1[region] += np.einsum("ncstpq,nstpq->ncpq", moved[..., i, j], wide(y))
    return x1.astype(y.dtype, copy=False)


@defop("nnl::patch_correlation_second", save=("x1", "y"), outputs=("x2",), precision="half")
def patch_correlation_second(
    x1: Array, y: Array, *, patch: Lengths, step: Lengths, shifts: Lengths, shift_step: Lengths
) -> Array:
    """``x2[n,c,p P+s S+i,q Q+t T+j] = y[n,s,t,p,q] x1[n,c,p P+i,q Q+j]``, summed over all that
    hold an element."""
    fixed = _patches(x1, patch, step)
    places = y.shape[3:]
    size = _widened(_spans(places, patch, step), shifts, shift_step)
    x2 = np.zeros((*x1.shape[:2], *size), fixed.dtype)
    for s, t in taps(shifts):
        weight = wide(y)[:, None, s, t]
        for i, j in taps(patch):
            first = (s * shift_step[0] + i, t * shift_step[1] + j)
            region: Any = (..., *_regions(places, step, first))
            x2[region] += weight * fixed[..., i, j]
    return x2.astype(y.dtype, copy=False)


# Shapes ------------------------------------------------------------------------------------------


@patch_correlation_operator.infer
def patch_correlation_infer(
    x1: Spec, x2: Spec, *, patch: Lengths, step: Lengths, shifts: Lengths, shift_step: Lengths
) -> Spec:
    """(batch, *shifts, *places)."""
    if x1.ndim != 4 or x2.ndim != 4 or x1.shape[:2] != x2.shape[:2]:
        raise ShapeError(
            "both inputs must be (batch, channels, height, width), the first two equal"
        )
    places = placements(x1.shape[2:], patch, step, ((0, 0), (0, 0)))
    size = _spans(places, patch, step)
    if x1.shape[2:] != size or x2.shape[2:] != _widened(size, shifts, shift_step):
        raise ShapeError(
            f"patches at places {places} cover {size} of the first image and "
            f"{_widened(size, shifts, shift_step)} of the second"
        )
    return x1.with_shape((x1.shape[0], *shifts, *places))


@patch_correlation_first.infer
def patch_correlation_first_infer(
    x2: Spec, y: Spec, *, patch: Lengths, step: Lengths, shifts: Lengths, shift_step: Lengths
) -> Spec:
    """(batch, channels, *what the patches cover)."""
    size = _spans(y.shape[3:], patch, step)
    if y.shape[1:3] != shifts or x2.shape[2:] != _widened(size, shifts, shift_step):
        raise ShapeError(f"the second image must have size {_widened(size, shifts, shift_step)}")
    return y.with_shape((*x2.shape[:2], *size))


@patch_correlation_second.infer
def patch_correlation_second_infer(
    x1: Spec, y: Spec, *, patch: Lengths, step: Lengths, shifts: Lengths, shift_step: Lengths
) -> Spec:
    """(batch, channels, *what the patches cover, moved by all shifts)."""
    size = _spans(y.shape[3:], patch, step)
    if y.shape[1:3] != shifts or x1.shape[2:] != size:
        raise ShapeError(f"the first image must have size {size}")
    return y.with_shape((*x1.shape[:2], *_widened(size, shifts, shift_step)))


# Gradients, costs and samples ---------------------------------------------------------------------


differentiate_each_other(
    {
        "y": patch_correlation_operator,
        "x1": patch_correlation_first,
        "x2": patch_correlation_second,
    }
)


@patch_correlation_operator.multiply_adds
def patch_correlation_cost(x1: Spec, x2: Spec, **options: Any) -> int:
    """One per channel and element of the patch, for each shift and place."""
    size = patch_correlation_infer(x1, x2, **options).size
    return size * x1.shape[1] * volume(options["patch"])


for _operator in (patch_correlation_first, patch_correlation_second):
    _operator.multiply_adds(lambda x, y, *, patch, **options: y.size * x.shape[1] * volume(patch))


# (batch, channels, places, patch, step, shifts, shift_step)
_CASES: list[tuple[Any, ...]] = [
    (2, 3, (2, 3), (2, 1), (1, 2), (3, 2), (1, 2)),
    (1, 2, (2, 2), (1, 3), (2, 1), (2, 3), (2, 1)),
    (2, 1, (1, 1), (2, 2), (1, 1), (1, 1), (1, 1)),
    (0, 2, (2, 1), (1, 1), (1, 1), (3, 1), (1, 1)),
]


def _drawn(rng: np.random.Generator, *factors: str) -> Iterator[Sample]:
    for batch, channels, places, patch, step, shifts, shift_step in _CASES:
        size = _spans(places, patch, step)
        shapes = {
            "x1": (batch, channels, *size),
            "x2": (batch, channels, *_widened(size, shifts, shift_step)),
            "y": (batch, *shifts, *places),
        }
        yield Sample(
            *(rng.normal(size=shapes[factor]) for factor in factors),
            patch=patch, step=step, shifts=shifts, shift_step=shift_step,
        )  # fmt: skip


patch_correlation_operator.samples(lambda rng: _drawn(rng, "x1", "x2"))
patch_correlation_first.samples(lambda rng: _drawn(rng, "x2", "y"))
patch_correlation_second.samples(lambda rng: _drawn(rng, "x1", "y"))


# What users call ---------------------------------------------------------------------------------


def patch_correlation(
    x1: Operand,
    x2: Operand,
    patch: int | Sequence[int] = (1, 1),
    shift: int | Sequence[int] = (0, 0),
    patch_step: int | Sequence[int] = (1, 1),
    shift_step: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0, 0, 0),
    channel_last: bool = False,
) -> Variable:
    """Correlate patches of one image with patches around the same place in another.

    ``y[n, s, t, p, q] = sum_{c, i, j} x1[n, c, p P + i, q Q + j] x2[n, c, p P + dy + i,
    q Q + dx + j]`` for patch steps (P, Q) and shifts ``dy = s S - shift[0]``,
    ``dx = t T - shift[1]`` with shift steps (S, T). Outside, both images are 0. (The correlation
    layer of Fischer et al., arXiv:1504.06852.)

    Args:
        x1: ``(batch, channels, height, width)``, or ``(batch, height, width, channels)`` with
            ``channel_last``.
        x2: the same shape.
        patch: height and width of the patches; one number for both.
        shift: how far they move at most, down and across, both ways.
        patch_step: steps between patches.
        shift_step: steps between shifts, from ``-shift`` on.
        padding: zeros around both images: (top, bottom, left, right), (vertical, horizontal), or
            one number for all sides.
        channel_last: whether channels are the last axis, and shifts those of the result.

    Returns:
        ``(batch, *shifts, *places)``, or ``(batch, *places, *shifts)`` with ``channel_last``, of
        ``2 shift / shift_step + 1`` shifts and ``(size + padding - patch) / patch_step + 1``
        places, rounded down.

    Raises:
        ShapeError: shapes differ, or a patch does not fit in the padded image.

    Gradient:
        To both images, as of a sum of products.

    Examples:
        >>> x = np.array([[[[1.0, 2.0, 3.0]]]])
        >>> F.patch_correlation(x, x, shift=(0, 1)).d[0, 0]
        array([[[0., 2., 6.]],
               [[1., 4., 9.]],
               [[2., 6., 0.]]])

    Elsewhere:
        - nnabla: `patch_correlation`
        - PyTorch: none, a sum over channels of products with shifted (`torch.roll`) images
        - ONNX: none, `Slice`, `Mul` and `ReduceSum` for each shift
    """
    first, second = same_dtype(floating(x1), floating(x2))
    if first.ndim != 4 or first.shape != second.shape:
        raise ShapeError(
            f"patch_correlation: both inputs must have one shape of four axes, not {first.shape} "
            f"and {second.shape}"
        )
    if channel_last:
        first, second = (F.transpose(v, (0, 3, 1, 2)) for v in (first, second))
    sizes, steps = lengths("patch", patch, 2, 1), lengths("patch_step", patch_step, 2, 1)
    moves, distances = lengths("shift_step", shift_step, 2, 1), _at_least_zero("shift", shift, 2)
    widths = _sides(padding)
    shifts = tuple(2 * far // move + 1 for far, move in zip(distances, moves, strict=True))
    margins = tuple(zip(widths[::2], widths[1::2], strict=True))
    covered = _spans(placements(first.shape[2:], sizes, steps, margins), sizes, steps)
    reach = [width + distances[side // 2] for side, width in enumerate(widths)]
    y = patch_correlation_operator(
        _framed(first, widths, covered),
        _framed(second, reach, _widened(covered, shifts, moves)),
        patch=sizes, step=steps, shifts=shifts, shift_step=moves,
    )  # fmt: skip
    return F.transpose(y, (0, 3, 4, 1, 2)) if channel_last else y


def _at_least_zero(name: str, value: int | Sequence[int], count: int) -> Lengths:
    listed = (value,) * count if isinstance(value, (int, np.integer)) else wholes(value, name)
    if len(listed) != count or any(n < 0 for n in listed):
        raise ShapeError(f"{name} {listed} must hold {count} lengths of at least 0")
    return tuple(int(n) for n in listed)


def _sides(padding: int | Sequence[int]) -> Lengths:
    """Return what is padded at top, bottom, left and right."""
    if not isinstance(padding, (int, np.integer)) and len(padding) == 2:
        padding = (padding[0], padding[0], padding[1], padding[1])
    return _at_least_zero("padding", padding, 4)


def _framed(x: Variable, widths: Sequence[int], size: Lengths) -> Variable:
    """Pad the last two axes, and keep as much of them as is read."""
    if any(widths):
        x = F.pad(x, tuple(widths))
    if x.shape[2:] != size:
        x = F.getitem(x, (..., *(slice(n) for n in size)))
    return x
