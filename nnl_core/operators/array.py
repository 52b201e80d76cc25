"""Arrays in another arrangement: shape, order of axes, repetition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import as_array
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axes
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import broadcast_to_operator

__all__ = [
    "broadcast",
    "expand_dims",
    "flip",
    "meshgrid",
    "ones_like",
    "reshape",
    "shape",
    "squeeze",
    "tile",
    "transpose",
    "zeros_like",
]


# Shape -------------------------------------------------------------------------------------------


@defop("nnl::reshape", view=True)
def reshape_operator(x: Array, *, shape: tuple[int, ...]) -> Array:
    """Arrange the elements, in row-major order, in another shape; one length may be -1."""
    return np.array(x.reshape(shape))


@reshape_operator.infer
def reshape_infer(x: Spec, *, shape: tuple[int, ...]) -> Spec:
    """The given shape, -1 replaced by what remains."""
    unknown = [axis for axis, length in enumerate(shape) if length < 0]
    known = math.prod(length for length in shape if length >= 0)
    if len(unknown) > 1 or any(length < -1 for length in shape):
        raise ShapeError(f"shape {shape} may hold one -1, and otherwise lengths of at least 0")
    if unknown and known and x.size % known == 0:
        axis = unknown[0]
        shape = (*shape[:axis], x.size // known, *shape[axis + 1 :])
    if unknown and not known:
        raise ShapeError(f"-1 in shape {shape} could be any length, as another length is 0")
    if math.prod(shape) != x.size:
        raise ShapeError(f"{x.size} elements do not fill shape {shape}")
    return x.with_shape(shape)


@reshape_operator.vjp
def reshape_vjp(g: Any, y: Any, x: Any, *, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Shape the gradient as the input was."""
    return (reshape(g, x.shape),)


@reshape_operator.samples
def reshape_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """To and from 0-d, a free length, empty."""
    yield Sample(rng.normal(size=(2, 6)), shape=(3, 4))
    yield Sample(rng.normal(size=(2, 3, 5)), shape=(5, -1))
    yield Sample(rng.normal(size=(1, 1)), shape=())
    yield Sample(rng.normal(size=()), shape=(1, 1))
    yield Sample(rng.normal(size=(0, 3)), shape=(2, 0))


def reshape(x: Operand, shape: Sequence[int], inplace: bool = True) -> Variable:
    """Return the elements of ``x``, in row-major order, in another shape.

    Args:
        x: any shape.
        shape: the new shape; one length may be -1, for what is left.
        inplace: a hint that planning memory makes needless.

    Raises:
        ShapeError: the number of elements differs.

    Gradient:
        ``dy`` in the shape of ``x``.

    Examples:
        >>> F.reshape(np.arange(6.0), (2, -1)).d
        array([[0., 1., 2.],
               [3., 4., 5.]])

    Elsewhere:
        - nnabla: `reshape`
        - PyTorch: `torch.reshape`
        - ONNX: `Reshape`
    """
    return reshape_operator(x, shape=_integers(shape))


@defop("nnl::expand_dims", view=True)
def expand_dims_operator(x: Array, *, axes: tuple[int, ...]) -> Array:
    """Insert axes of length 1 at these positions of the result."""
    return np.array(np.expand_dims(x, axes))


@expand_dims_operator.infer
def expand_dims_infer(x: Spec, *, axes: tuple[int, ...]) -> Spec:
    """The input's lengths with ones between them."""
    ndim = x.ndim + len(axes)
    new = normalize_axes(axes, ndim)
    lengths = iter(x.shape)
    return x.with_shape(tuple(1 if axis in new else next(lengths) for axis in range(ndim)))


@expand_dims_operator.vjp
def expand_dims_vjp(g: Any, y: Any, x: Any, *, axes: tuple[int, ...]) -> tuple[Any, ...]:
    """Shape the gradient as the input was."""
    return (reshape(g, x.shape),)


@expand_dims_operator.samples
def expand_dims_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One axis, several, of 0-d, of empty."""
    yield Sample(rng.normal(size=(3, 2)), axes=(1,))
    yield Sample(rng.normal(size=(3, 2)), axes=(0, -1))
    yield Sample(rng.normal(size=()), axes=(0,))
    yield Sample(rng.normal(size=(0, 2)), axes=(2,))


def expand_dims(x: Operand, axis: int | Sequence[int]) -> Variable:
    """Insert axes of length 1.

    Args:
        x: any shape.
        axis: their positions in the result, one or several.

    Gradient:
        ``dy`` without these axes.

    Examples:
        >>> F.expand_dims(np.zeros((2, 3)), (0, -1)).shape
        (1, 2, 3, 1)

    Elsewhere:
        - nnabla: none, `F.reshape`
        - PyTorch: `torch.unsqueeze`, one axis at a time
        - ONNX: `Unsqueeze`
    """
    return expand_dims_operator(x, axes=_integers(axis))


@defop("nnl::squeeze", view=True)
def squeeze_operator(x: Array, *, axes: tuple[int, ...] | None) -> Array:
    """Remove axes of length 1: these, or all there are."""
    return np.array(np.squeeze(x, axes))


@squeeze_operator.infer
def squeeze_infer(x: Spec, *, axes: tuple[int, ...] | None) -> Spec:
    """The input's lengths without some of its ones."""
    if axes is None:
        return x.with_shape(tuple(length for length in x.shape if length != 1))
    gone = normalize_axes(axes, x.ndim)
    for axis in gone:
        if x.shape[axis] != 1:
            raise ShapeError(f"axis {axis} has length {x.shape[axis]}, and only length 1 can go")
    return x.with_shape(tuple(n for axis, n in enumerate(x.shape) if axis not in gone))


@squeeze_operator.vjp
def squeeze_vjp(g: Any, y: Any, x: Any, *, axes: tuple[int, ...] | None) -> tuple[Any, ...]:
    """Shape the gradient as the input was."""
    return (reshape(g, x.shape),)


@squeeze_operator.samples
def squeeze_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Named axes, all, down to 0-d, nothing to remove, empty."""
    yield Sample(rng.normal(size=(1, 3, 1)), axes=(-1,))
    yield Sample(rng.normal(size=(1, 3, 1)), axes=None)
    yield Sample(rng.normal(size=(1, 1)), axes=(0, 1))
    yield Sample(rng.normal(size=(2, 3)), axes=None)
    yield Sample(rng.normal(size=(0, 1)), axes=(1,))


def squeeze(x: Operand, axis: int | Sequence[int] | None = None) -> Variable:
    """Remove axes of length 1.

    Args:
        x: any shape.
        axis: one axis or several; ``None`` for all that have length 1.

    Raises:
        ShapeError: a given axis is longer.

    Gradient:
        ``dy`` with the axes inserted again.

    Examples:
        >>> F.squeeze(np.zeros((1, 3, 1)), axis=0).shape
        (3, 1)

    Elsewhere:
        - nnabla: none, `F.reshape`
        - PyTorch: `torch.squeeze`
        - ONNX: `Squeeze`
    """
    axes = None if axis is None else _integers(axis)
    return squeeze_operator(x, axes=axes)


@defop("nnl::transpose", view=True)
def transpose_operator(x: Array, *, axes: tuple[int, ...]) -> Array:
    """Put the axes in another order."""
    return np.array(np.transpose(x, axes), order="C")


@transpose_operator.infer
def transpose_infer(x: Spec, *, axes: tuple[int, ...]) -> Spec:
    """The lengths in another order."""
    if normalize_axes(axes, x.ndim) != tuple(range(x.ndim)):
        raise ShapeError(f"axes {axes} must name each of the {x.ndim} axes once")
    return x.with_shape(tuple(x.shape[axis] for axis in axes))


@transpose_operator.vjp
def transpose_vjp(g: Any, y: Any, x: Any, *, axes: tuple[int, ...]) -> tuple[Any, ...]:
    """Put the axes back."""
    order = [axis % len(axes) for axis in axes]
    return (transpose(g, [order.index(axis) for axis in range(len(axes))]),)


@transpose_operator.samples
def transpose_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """A cycle, negative axes, 0-d, empty."""
    yield Sample(rng.normal(size=(2, 3, 4)), axes=(1, 2, 0))
    yield Sample(rng.normal(size=(2, 3)), axes=(-1, 0))
    yield Sample(rng.normal(size=()), axes=())
    yield Sample(rng.normal(size=(0, 3)), axes=(1, 0))


def transpose(x: Operand, axes: Sequence[int]) -> Variable:
    """Put the axes in another order: axis ``i`` of the result is axis ``axes[i]`` of ``x``.

    Args:
        x: any shape.
        axes: each axis once.

    Raises:
        ShapeError: ``axes`` is no order of the axes.

    Gradient:
        ``dy`` with its axes put back.

    Examples:
        >>> F.transpose(np.zeros((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)

    Elsewhere:
        - nnabla: `transpose`
        - PyTorch: `torch.permute`
        - ONNX: `Transpose`
    """
    return transpose_operator(x, axes=_integers(axes))


@defop("nnl::flip", view=True)
def flip_operator(x: Array, *, axes: tuple[int, ...]) -> Array:
    """Reverse the order along these axes."""
    return np.array(np.flip(x, axes), order="C")


@flip_operator.infer
def flip_infer(x: Spec, *, axes: tuple[int, ...]) -> Spec:
    """The input's shape."""
    normalize_axes(axes, x.ndim)
    return x


@flip_operator.vjp
def flip_vjp(g: Any, y: Any, x: Any, *, axes: tuple[int, ...]) -> tuple[Any, ...]:
    """Reverse again."""
    return (flip(g, axes),)


@flip_operator.samples
def flip_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One axis, two, none, empty."""
    yield Sample(rng.normal(size=(2, 3, 4)), axes=(1,))
    yield Sample(rng.normal(size=(2, 3)), axes=(0, -1))
    yield Sample(rng.normal(size=(3,)), axes=())
    yield Sample(rng.normal(size=(0, 3)), axes=(0,))


def flip(x: Operand, axes: Sequence[int] | None = None) -> Variable:
    """Reverse the order along axes.

    Args:
        x: any shape.
        axes: which ones; ``None`` for the last.

    Gradient:
        ``dy``, reversed in the same way.

    Examples:
        >>> F.flip(np.array([[1.0, 2.0], [3.0, 4.0]]), axes=(0, 1)).d
        array([[4., 3.],
               [2., 1.]])

    Elsewhere:
        - nnabla: `flip`
        - PyTorch: `torch.flip`
        - ONNX: none, `Slice` with steps of -1
    """
    listed = (-1,) if axes is None else _integers(axes)
    return flip_operator(x, axes=listed)


# Repeating ---------------------------------------------------------------------------------------


def broadcast(x: Operand, shape: Sequence[int]) -> Variable:
    """Repeat ``x`` along axes of length 1, and along new leading axes, to reach ``shape``.

    Args:
        x: any shape that broadcasts to ``shape``.
        shape: the shape to reach.

    Raises:
        ShapeError: it cannot be reached.

    Gradient:
        The sum over what was repeated.

    Examples:
        >>> F.broadcast(np.array([[1.0], [2.0]]), (2, 3)).d
        array([[1., 1., 1.],
               [2., 2., 2.]])

    Elsewhere:
        - nnabla: `broadcast`
        - PyTorch: `torch.broadcast_to`
        - ONNX: `Expand`
    """
    return broadcast_to_operator(x, shape=_integers(shape))


@defop("nnl::tile")
def tile_operator(x: Array, *, reps: tuple[int, ...]) -> Array:
    """Repeat the array as a whole, so many times along each axis (the last ones, if fewer)."""
    return np.tile(x, reps)


@tile_operator.infer
def tile_infer(x: Spec, *, reps: tuple[int, ...]) -> Spec:
    """Lengths times repetitions."""
    if any(count < 0 for count in reps):
        raise ShapeError(f"repetitions {reps} must be at least 0")
    counts, lengths = _aligned(reps, x.shape)
    return x.with_shape(tuple(n * m for n, m in zip(counts, lengths, strict=True)))


@tile_operator.vjp
def tile_vjp(g: Any, y: Any, x: Any, *, reps: tuple[int, ...]) -> tuple[Any, ...]:
    """Sum the repetitions."""
    counts, lengths = _aligned(reps, x.shape)
    pairs = [n for pair in zip(counts, lengths, strict=True) for n in pair]
    once = [n for length in lengths for n in (1, length)]
    return (reshape(F.sum_to(reshape(g, pairs), shape=tuple(once)), x.shape),)


@tile_operator.samples
def tile_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Fewer and more repetitions than axes, 0-d, none, empty."""
    yield Sample(rng.normal(size=(2, 3)), reps=(2,))
    yield Sample(rng.normal(size=(2, 3)), reps=(2, 1, 3))
    yield Sample(rng.normal(size=()), reps=(3,))
    yield Sample(rng.normal(size=(2,)), reps=(0,))
    yield Sample(rng.normal(size=(0, 2)), reps=(2, 2))


def tile(x: Operand, reps: int | Sequence[int]) -> Variable:
    """Repeat ``x`` as a whole along each axis, as `numpy.tile` does.

    Args:
        x: any shape.
        reps: how often, for each axis; the last number is that of the last axis.

    Gradient:
        The sum over the copies.

    Examples:
        >>> F.tile(np.array([1.0, 2.0]), (2, 2)).d
        array([[1., 2., 1., 2.],
               [1., 2., 1., 2.]])

    Elsewhere:
        - nnabla: `tile`
        - PyTorch: `torch.tile`
        - ONNX: `Tile`
    """
    return tile_operator(x, reps=_integers(reps))


def meshgrid(*x: Operand, ij_indexing: bool = False) -> list[Variable]:
    """Return for each 1-D array its values at the points of the grid that all of them span.

    Args:
        *x: the arrays.
        ij_indexing: whether axis ``i`` of the grid belongs to array ``i``; otherwise the first two
            swap.

    Gradient:
        The sum over the axes that an array does not vary along.

    Examples:
        >>> columns, rows = F.meshgrid(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0]))
        >>> rows.d
        array([[10., 10., 10.],
               [20., 20., 20.]])

    Elsewhere:
        - nnabla: `meshgrid`
        - PyTorch: `torch.meshgrid`, whose `indexing="xy"` is the default here
        - ONNX: none, `Expand` of reshaped arrays
    """
    variables = [v if isinstance(v, Variable) else Variable.constant(v) for v in x]
    for position, variable in enumerate(variables):
        if variable.ndim != 1:
            raise ShapeError(f"meshgrid: array {position} of shape {variable.shape} must be 1-d")
    order = list(range(len(variables)))
    if not ij_indexing and len(order) > 1:
        order[:2] = [1, 0]
    grid = tuple(variables[position].size for position in order)
    result = []
    for position, variable in enumerate(variables):
        column = tuple(-1 if at == position else 1 for at in order)
        result.append(broadcast(reshape(variable, column), grid))
    return result


def zeros_like(x: Operand) -> Variable:
    """Return zeros of the shape and dtype of ``x``.

    Args:
        x: any shape and dtype.

    Gradient:
        None: the result does not depend on the values.

    Examples:
        >>> F.zeros_like(np.array([5.0, np.nan])).d
        array([0., 0.])

    Elsewhere:
        - nnabla: none, `F.constant(0, x.shape)`
        - PyTorch: `torch.zeros_like`
        - ONNX: none, `ConstantOfShape` of `Shape`
    """
    return _filled_like(x, 0)


def ones_like(x: Operand) -> Variable:
    """Return ones of the shape and dtype of ``x``.

    Args:
        x: any shape and dtype.

    Gradient:
        None: the result does not depend on the values.

    Examples:
        >>> F.ones_like(np.array([5.0, np.nan])).d
        array([1., 1.])

    Elsewhere:
        - nnabla: none, `F.constant(1, x.shape)`
        - PyTorch: `torch.ones_like`
        - ONNX: none, `ConstantOfShape` of `Shape`
    """
    return _filled_like(x, 1)


def _filled_like(x: Operand, value: int) -> Variable:
    like = x if isinstance(x, Variable) else np.asarray(x)
    return broadcast(Variable.constant(np.asarray(value, like.dtype)), like.shape)


@defop("nnl::shape")
def shape_operator(x: Array, *, start: int | None, end: int | None) -> Array:
    """Return the lengths of the axes from ``start`` to before ``end``."""
    return np.array(x.shape[start:end], np.int64)


@shape_operator.infer
def shape_infer(x: Spec, *, start: int | None, end: int | None) -> Spec:
    """One integer for each axis."""
    return Spec((len(x.shape[start:end]),), np.dtype(np.int64))


@shape_operator.vjp
def shape_vjp(g: Any, y: Any, x: Any, *, start: int | None, end: int | None) -> tuple[Any, ...]:
    """The shape does not depend on the elements."""
    return (None,)


@shape_operator.samples
def shape_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """All axes, some, 0-d, empty."""
    yield Sample(rng.normal(size=(2, 3, 4)), start=None, end=None)
    yield Sample(rng.normal(size=(2, 3, 4)), start=1, end=-1)
    yield Sample(rng.normal(size=()), start=None, end=None)
    yield Sample(rng.normal(size=(0, 2)), start=0, end=9)


def shape(x: Operand, start: int | None = None, end: int | None = None) -> Variable:
    """Return the lengths of the axes of ``x`` as integers.

    Args:
        x: any shape.
        start: the first axis; ``None`` for the first of all.
        end: the axis to end before; ``None`` for all.

    Gradient:
        None: lengths have no slope.

    Examples:
        >>> F.shape(np.zeros((2, 3, 4)), start=1).d
        array([3, 4])

    Elsewhere:
        - nnabla: `shape`
        - PyTorch: none, `x.shape`
        - ONNX: `Shape`
    """
    return shape_operator(x, start=start, end=end)


# What the above share ----------------------------------------------------------------------------


def _integers(values: int | Sequence[int]) -> tuple[int, ...]:
    """Return an argument that may be one integer, a list or an array as a tuple."""
    array = as_array(values)
    if (array.size and array.dtype.kind not in "iu") or array.ndim > 1:
        raise OperatorError(f"a list of integers is needed here, not {values!r}")
    return tuple(int(value) for value in array.reshape(-1))


def _aligned(
    reps: tuple[int, ...], lengths: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Put ones before the shorter of two."""
    ndim = max(len(reps), len(lengths))
    return (1,) * (ndim - len(reps)) + reps, (1,) * (ndim - len(lengths)) + lengths
