"""Images cropped, flipped and shifted at random, each example in its own way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import whole, wholes
from nnl_core.graph.operator import Array, Operator, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.moving import count_examples, outside, pick, put
from nnl_core.operators.stochastic import generator_of, random_key

__all__ = ["random_crop", "random_flip", "random_shift"]

BORDERS = ("nearest", "reflect", "constant")


def _moved(x: Array, positions: Sequence[Array], base: int) -> tuple[Array, Array]:
    """Take the elements at the positions along each axis; return also the rows of `pick`."""
    rows = np.concatenate(positions, axis=1).astype(np.int64, copy=False)
    lengths = tuple(one.shape[1] for one in positions)
    return pick.reference(x, rows, lengths=lengths, base=base), rows


def _moved_back(g: Any, y: Any, x: Spec, base_axis: int) -> tuple[Any, ...]:
    base = normalize_axis(base_axis, x.ndim)
    return put(g[0], y[1], shape=x.shape, base=base), None


def _key(rng: np.random.Generator) -> Array:
    return rng.integers(0, 2**63, size=2, dtype=np.uint64)


def _specs(x: Spec, shape: tuple[int, ...], base_axis: int) -> tuple[Spec, Spec]:
    count = count_examples(shape, normalize_axis(base_axis, x.ndim))
    return x.with_shape(shape), Spec((count, sum(shape)), np.dtype(np.int64))


def _lasting(values: Sequence[int], ndim: int, name: str, default: int) -> tuple[int, ...]:
    """Complete numbers for the last axes to numbers for all."""
    if len(values) > ndim:
        raise ShapeError(f"{name} {tuple(values)} has more numbers than the input has axes")
    return (*(default,) * (ndim - len(values)), *values)


@defop("nnl::random_crop", save=("rows",), outputs=("y", "rows"))
def random_crop_operator(
    x: Array, key: Array, *, shape: tuple[int, ...], base_axis: int = 1
) -> tuple[Array, Array]:
    """Cut a part of ``shape`` out of each example; return also the rows of `pick`."""
    base = normalize_axis(base_axis, x.ndim)
    cut = _cut(x.shape, shape)
    room = np.array([n - m for n, m in zip(x.shape, cut, strict=True)], np.int64)
    starts = generator_of(key).integers(0, room + 1, (count_examples(cut, base), x.ndim))
    return _moved(x, [starts[:, axis, None] + np.arange(m) for axis, m in enumerate(cut)], base)


def _cut(x: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    wanted = _lasting(shape, len(x), "shape", -1)
    return tuple(n if m < 0 else m for n, m in zip(x, wanted, strict=True))


@random_crop_operator.infer
def random_crop_infer(
    x: Spec, key: Spec, *, shape: tuple[int, ...], base_axis: int
) -> tuple[Spec, Spec]:
    """``shape`` in place of the last axes."""
    normalize_axis(base_axis, x.ndim)
    cut = _cut(x.shape, shape)
    if any(m > n for n, m in zip(x.shape, cut, strict=True)):
        raise ShapeError(f"a part of shape {tuple(shape)} is larger than the input")
    return _specs(x, cut, base_axis)


@random_crop_operator.vjp
def random_crop_vjp(
    g: Any, y: Any, x: Any, key: Any, *, shape: tuple[int, ...], base_axis: int
) -> tuple[Any, ...]:
    """Put the gradient where the part was, and 0 elsewhere."""
    return _moved_back(g, y, x, base_axis)


@random_crop_operator.samples
def random_crop_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Two axes, all axes, examples in two axes and in none, the whole, nothing."""
    x = rng.normal(size=(3, 2, 5, 4))
    yield Sample(x, _key(rng), shape=(3, 2), base_axis=1)
    yield Sample(x, _key(rng), shape=(2, 1, 4, 4), base_axis=1)
    yield Sample(x, _key(rng), shape=(2, 3), base_axis=2)
    yield Sample(x, _key(rng), shape=(3,), base_axis=0)
    yield Sample(x, _key(rng), shape=(), base_axis=-2)
    yield Sample(x[:0], _key(rng), shape=(3, 2), base_axis=1)


@defop("nnl::random_flip", save=("rows",), outputs=("y", "rows"))
def random_flip_operator(
    x: Array, key: Array, *, axes: tuple[int, ...], base_axis: int = 1
) -> tuple[Array, Array]:
    """Reverse each example along each of the axes, or not; return also the rows of `pick`."""
    base = normalize_axis(base_axis, x.ndim)
    flips = generator_of(key).random((count_examples(x.shape, base), x.ndim)) < 0.5
    may = {normalize_axis(axis, x.ndim) for axis in axes}

    def along(axis: int) -> Array:
        positions = np.arange(x.shape[axis])
        if axis not in may:
            return np.broadcast_to(positions, (len(flips), len(positions)))
        return np.where(flips[:, axis, None], positions[::-1], positions)

    return _moved(x, [along(axis) for axis in range(x.ndim)], base)


@random_flip_operator.infer
def random_flip_infer(
    x: Spec, key: Spec, *, axes: tuple[int, ...], base_axis: int
) -> tuple[Spec, Spec]:
    """The input's shape."""
    for axis in (*axes, base_axis):
        normalize_axis(axis, x.ndim)
    return _specs(x, x.shape, base_axis)


@random_flip_operator.vjp
def random_flip_vjp(
    g: Any, y: Any, x: Any, key: Any, *, axes: tuple[int, ...], base_axis: int
) -> tuple[Any, ...]:
    """Reverse the gradient back."""
    return _moved_back(g, y, x, base_axis)


@random_flip_operator.samples
def random_flip_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Two axes, the examples' own, counted from the end, none; nothing to flip."""
    x = rng.normal(size=(4, 2, 3))
    for axes, base_axis in (((1, 2), 1), ((0, 2), 1), ((-1,), 2), ((2,), 0), ((), 1)):
        yield Sample(x, _key(rng), axes=axes, base_axis=base_axis)
    yield Sample(x[:0], _key(rng), axes=(1, 2), base_axis=1)


@defop("nnl::random_shift", save=("rows",), outputs=("y", "rows"))
def random_shift_operator(
    x: Array,
    key: Array,
    *,
    shifts: tuple[int, ...],
    border_mode: str = "nearest",
    constant_value: float = 0.0,
    base_axis: int = 1,
) -> tuple[Array, Array]:
    """Shift each example by up to ``shifts`` along its axes; return also the rows of `pick`.

    With a constant border, a position outside is -1.
    """
    base = normalize_axis(base_axis, x.ndim)
    most = np.array(_lasting(shifts, x.ndim, "shifts", 0), np.int64)
    by = generator_of(key).integers(-most, most + 1, (count_examples(x.shape, base), x.ndim))

    def along(axis: int) -> Array:
        length = x.shape[axis]
        positions = np.arange(length) - by[:, axis, None]
        if border_mode == "nearest":
            return np.clip(positions, 0, length - 1)
        if border_mode == "reflect":
            turn = positions % (2 * max(length, 1))
            return np.where(turn < length, turn, 2 * length - 1 - turn)
        return np.where((0 <= positions) & (positions < length), positions, -1)

    y, rows = _moved(x, [along(axis) for axis in range(x.ndim)], base)
    if border_mode == "constant" and constant_value:
        np.copyto(y, np.asarray(constant_value).astype(x.dtype), where=outside(rows, x.shape, base))
    return y, rows


@random_shift_operator.infer
def random_shift_infer(
    x: Spec, key: Spec, *, shifts: tuple[int, ...], border_mode: str, constant_value: float,
    base_axis: int,
) -> tuple[Spec, Spec]:  # fmt: skip
    """The input's shape."""
    normalize_axis(base_axis, x.ndim)
    _lasting(shifts, x.ndim, "shifts", 0)
    return _specs(x, x.shape, base_axis)


@random_shift_operator.vjp
def random_shift_vjp(
    g: Any, y: Any, x: Any, key: Any, *, shifts: tuple[int, ...], border_mode: str,
    constant_value: float, base_axis: int,
) -> tuple[Any, ...]:  # fmt: skip
    """Shift the gradient back; what came from one place is summed, what came from none is lost."""
    return _moved_back(g, y, x, base_axis)


@random_shift_operator.samples
def random_shift_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each border; by more than there is; examples in two axes and in none; nothing to shift."""
    x = rng.normal(size=(3, 2, 4, 3))
    for border_mode in BORDERS:
        given = {"border_mode": border_mode, "constant_value": 0.5}
        yield Sample(x, _key(rng), shifts=(1, 2), base_axis=1, **given)
        yield Sample(x, _key(rng), shifts=(1, 0, 9), base_axis=2, **given)
        yield Sample(x, _key(rng), shifts=(1, 1, 1, 1), base_axis=0, **given)
        yield Sample(x[:0], _key(rng), shifts=(1, 2), base_axis=1, **given)
    yield Sample(x, _key(rng), shifts=(), base_axis=1)


# What users call ---------------------------------------------------------------------------------


def _apply(operator: Operator, x: Operand, seed: int, **attributes: Any) -> Variable:
    given = x if isinstance(x, Variable) else Variable.constant(x)
    result: Variable = operator(given, random_key(seed), **attributes)[0]
    return result


def random_crop(
    x: Operand, shape: Sequence[int] | None = None, base_axis: int = 1, seed: int = -1
) -> Variable:
    """Cut a part of ``shape`` out of each example, each time from another place.

    All places are equally likely. Axes before ``base_axis`` count examples, which are cut each in
    its own way; where ``shape`` shortens one of those, the same examples are kept throughout. Any
    dtype.

    Args:
        x: the input.
        shape: lengths of the last axes of the part, each at most the input's; all others stay.
            By default nothing is cut.
        base_axis: the first axis that belongs to an example.
        seed: at least 0 for a sequence of its own; -1 for the one that ``nnl.seed`` begins.

    Returns:
        The parts, of ``x``'s dtype.

    Raises:
        ShapeError: the part is larger than the input.

    Gradient:
        Put where the part was cut out, and 0 elsewhere.

    Examples:
        >>> x = np.arange(12.0).reshape(1, 3, 4)
        >>> y = F.random_crop(x, (2, 2)).d
        >>> bool((y - y[0, 0, 0] == [[[0, 1], [4, 5]]]).all())
        True

    Elsewhere:
        - nnabla: `random_crop`
        - PyTorch: `torchvision.transforms.RandomCrop`, one place for a whole batch; `size` for
          `shape`
        - ONNX: none, `RandomUniform` for the starts and `Slice`
    """
    cut = () if shape is None else wholes(shape, "shape")
    if any(length < 0 for length in cut):
        raise OperatorError(f"random_crop: shape {cut} has a negative length")
    return _apply(random_crop_operator, x, seed, shape=cut, base_axis=whole(base_axis, "base_axis"))


def random_flip(
    x: Operand, axes: Sequence[int] | None = None, base_axis: int = 1, seed: int = -1
) -> Variable:
    """Reverse each example along each of the axes, with probability one half for each axis.

    Axes before ``base_axis`` count examples, which are reversed each in its own way; where ``axes``
    names one of those, the order of the examples is reversed. Any dtype.

    Args:
        x: the input.
        axes: the axes, counted in ``x``; by default the last.
        base_axis: the first axis that belongs to an example.
        seed: at least 0 for a sequence of its own; -1 for the one that ``nnl.seed`` begins.

    Gradient:
        Reversed back.

    Examples:
        >>> y = F.random_flip(np.array([[1.0, 2.0, 3.0]] * 20)).d
        >>> sorted({tuple(row) for row in y.tolist()})
        [(1.0, 2.0, 3.0), (3.0, 2.0, 1.0)]

    Elsewhere:
        - nnabla: `random_flip`
        - PyTorch: `torchvision.transforms.RandomHorizontalFlip`, the whole batch at once; vertical
          by `RandomVerticalFlip`
        - ONNX: none, `Bernoulli` and `Where` over a reversed copy
    """
    chosen = (-1,) if axes is None else wholes(axes, "axes")
    return _apply(
        random_flip_operator, x, seed, axes=chosen, base_axis=whole(base_axis, "base_axis")
    )


def random_shift(
    x: Operand,
    shifts: Sequence[int] | None = None,
    border_mode: str = "nearest",
    constant_value: float = 0,
    base_axis: int = 1,
    seed: int = -1,
) -> Variable:
    """Shift each example by whole numbers, uniform in ``[-shift, shift]`` along each axis.

    Axes before ``base_axis`` count examples, which are shifted each in its own way; where
    ``shifts`` has a number for one of those, all move together along it. Any dtype.

    Args:
        x: the input.
        shifts: the largest shifts along the last axes; by default nothing is shifted.
        border_mode: what moves in at the border: ``"nearest"``, the outermost element again;
            ``"reflect"``, the elements mirrored at the border, ``c b a | a b c | c b a``; or
            ``"constant"``.
        constant_value: what moves in with ``border_mode="constant"``.
        base_axis: the first axis that belongs to an example.
        seed: at least 0 for a sequence of its own; -1 for the one that ``nnl.seed`` begins.

    Raises:
        OperatorError: ``border_mode`` is unknown, or a shift negative.

    Gradient:
        Shifted back; an element that moved in more than once gets the sum.

    Examples:
        >>> y = F.random_shift(np.array([[1.0, 2.0, 3.0]] * 50), (1,)).d
        >>> sorted({tuple(row) for row in y.tolist()})
        [(1.0, 1.0, 2.0), (1.0, 2.0, 3.0), (2.0, 3.0, 3.0)]

    Elsewhere:
        - nnabla: `random_shift`
        - PyTorch: `torchvision.transforms.RandomAffine`, with `translate` as shares of the size
        - ONNX: none, `Pad` and `Slice` at a random place
    """
    most = () if shifts is None else wholes(shifts, "shifts")
    if border_mode not in BORDERS:
        raise OperatorError(
            f"random_shift: border_mode {border_mode!r} is unknown; it can be {', '.join(BORDERS)}"
        )
    if any(shift < 0 for shift in most):
        raise OperatorError(f"random_shift: shifts {most} must not be negative")
    return _apply(
        random_shift_operator, x, seed, shifts=most, border_mode=border_mode,
        constant_value=float(constant_value), base_axis=whole(base_axis, "base_axis"),
    )  # fmt: skip
