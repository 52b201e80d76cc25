"""Images cropped, flipped, shifted and partly erased at random, each example in its own way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.modes import no_grad
from nnl_core.graph.operator import Array, Operator, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating
from nnl_core.operators.stochastic import generator_of, random_key

__all__ = ["random_crop", "random_erase", "random_flip", "random_shift"]

BORDERS = ("nearest", "reflect", "constant")


# Elements that come from elsewhere in their example ----------------------------------------------


def examples(shape: tuple[int, ...], base: int) -> int:
    """Return how many draws there are: one for each example, and one where there is none."""
    return max(1, math.prod(shape[:base]))


def places(
    x: tuple[int, ...],
    y: tuple[int, ...],
    base: int,
    along: Callable[[int], Array],
) -> Array:
    """Return where in ``x``, laid out in one row, each element of ``y`` comes from.

    ``along(axis)`` gives the positions along an axis, one row for each example. Along the axes
    before ``base``, which count examples, the first row holds for all. A negative position makes
    the place negative.
    """
    total = np.zeros(y, np.int64)
    outside = np.zeros((), bool)
    for axis, length in enumerate(y):
        rows = along(axis)
        behind = (1,) * (len(y) - axis - 1)
        if axis < base:
            positions = rows[0].reshape(length, *behind)
        else:
            count = math.prod(y[:base])
            positions = rows[:count].reshape(*y[:base], *(1,) * (axis - base), length, *behind)
        total += positions * math.prod(x[axis + 1 :])
        outside = outside | (positions < 0)
    return np.where(outside, -1, total) if outside.any() else total


def _take(x: Array, at: Array) -> tuple[Array, Array]:
    return x.reshape(-1)[at] if at.size else np.empty(at.shape, x.dtype), at


def _return(g: Any, at: Variable, x: Spec) -> Variable:
    """Add gradients to the places that the elements come from."""
    sums = F.gather_adjoint(F.reshape(g, (-1,)), F.reshape(at, (-1,)), size=x.size, axis=0,
                            batch_dims=0)  # fmt: skip
    result: Variable = F.reshape(sums, x.shape)
    return result


def _key(rng: np.random.Generator) -> Array:
    return rng.integers(0, 2**63, size=2, dtype=np.uint64)


def _specs(x: Spec, shape: tuple[int, ...]) -> tuple[Spec, Spec]:
    return x.with_shape(shape), Spec(shape, np.dtype(np.int64))


def _lasting(values: Sequence[int], ndim: int, name: str, default: int) -> tuple[int, ...]:
    """Complete numbers for the last axes to numbers for all."""
    if len(values) > ndim:
        raise ShapeError(f"{name} {tuple(values)} has more numbers than the input has axes")
    return (*(default,) * (ndim - len(values)), *values)


@defop("nnl::random_crop", save=("places",), outputs=("y", "places"))
def random_crop_operator(
    x: Array, key: Array, *, shape: tuple[int, ...], base_axis: int = 1
) -> tuple[Array, Array]:
    """Cut a part of ``shape`` out of each example; return also where its elements were."""
    base = normalize_axis(base_axis, x.ndim)
    cut = _cut(x.shape, shape)
    room = np.array([n - m for n, m in zip(x.shape, cut, strict=True)], np.int64)
    starts = generator_of(key).integers(0, room + 1, (examples(cut, base), x.ndim))
    return _take(
        x, places(x.shape, cut, base, lambda axis: starts[:, axis, None] + np.arange(cut[axis]))
    )


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
    return _specs(x, cut)


@random_crop_operator.vjp
def random_crop_vjp(
    g: Any, y: Any, x: Any, key: Any, *, shape: tuple[int, ...], base_axis: int
) -> tuple[Any, ...]:
    """Put the gradient where the part was, and 0 elsewhere."""
    return _return(g[0], y[1], x), None


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


@defop("nnl::random_flip", save=("places",), outputs=("y", "places"))
def random_flip_operator(
    x: Array, key: Array, *, axes: tuple[int, ...], base_axis: int = 1
) -> tuple[Array, Array]:
    """Reverse each example along each of the axes, or not; return also where elements were."""
    base = normalize_axis(base_axis, x.ndim)
    flips = generator_of(key).random((examples(x.shape, base), x.ndim)) < 0.5
    may = {normalize_axis(axis, x.ndim) for axis in axes}

    def along(axis: int) -> Array:
        positions = np.arange(x.shape[axis])
        if axis not in may:
            return np.broadcast_to(positions, (len(flips), len(positions)))
        return np.where(flips[:, axis, None], positions[::-1], positions)

    return _take(x, places(x.shape, x.shape, base, along))


@random_flip_operator.infer
def random_flip_infer(
    x: Spec, key: Spec, *, axes: tuple[int, ...], base_axis: int
) -> tuple[Spec, Spec]:
    """The input's shape."""
    for axis in (*axes, base_axis):
        normalize_axis(axis, x.ndim)
    return _specs(x, x.shape)


@random_flip_operator.vjp
def random_flip_vjp(
    g: Any, y: Any, x: Any, key: Any, *, axes: tuple[int, ...], base_axis: int
) -> tuple[Any, ...]:
    """Reverse the gradient back."""
    return _return(g[0], y[1], x), None


@random_flip_operator.samples
def random_flip_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Two axes, the examples' own, counted from the end, none; nothing to flip."""
    x = rng.normal(size=(4, 2, 3))
    for axes, base_axis in (((1, 2), 1), ((0, 2), 1), ((-1,), 2), ((2,), 0), ((), 1)):
        yield Sample(x, _key(rng), axes=axes, base_axis=base_axis)
    yield Sample(x[:0], _key(rng), axes=(1, 2), base_axis=1)


@defop("nnl::random_shift", save=("places",), outputs=("y", "places"))
def random_shift_operator(
    x: Array,
    key: Array,
    *,
    shifts: tuple[int, ...],
    border_mode: str = "nearest",
    constant_value: float = 0.0,
    base_axis: int = 1,
) -> tuple[Array, Array]:
    """Shift each example by up to ``shifts`` along its axes; return also where elements were.

    That is -1 for elements from outside, which are ``constant_value``.
    """
    base = normalize_axis(base_axis, x.ndim)
    most = np.array(_lasting(shifts, x.ndim, "shifts", 0), np.int64)
    by = generator_of(key).integers(-most, most + 1, (examples(x.shape, base), x.ndim))

    def along(axis: int) -> Array:
        length = x.shape[axis]
        positions = np.arange(length) - by[:, axis, None]
        if border_mode == "nearest":
            return np.clip(positions, 0, length - 1)
        if border_mode == "reflect":
            turn = positions % (2 * max(length, 1))
            return np.where(turn < length, turn, 2 * length - 1 - turn)
        return np.where((0 <= positions) & (positions < length), positions, -1)

    at = places(x.shape, x.shape, base, along)
    y, _ = _take(x, at)
    return np.where(at < 0, np.asarray(constant_value).astype(x.dtype), y), at


@random_shift_operator.infer
def random_shift_infer(
    x: Spec, key: Spec, *, shifts: tuple[int, ...], border_mode: str, constant_value: float,
    base_axis: int,
) -> tuple[Spec, Spec]:  # fmt: skip
    """The input's shape."""
    normalize_axis(base_axis, x.ndim)
    _lasting(shifts, x.ndim, "shifts", 0)
    return _specs(x, x.shape)


@random_shift_operator.vjp
def random_shift_vjp(
    g: Any, y: Any, x: Any, key: Any, *, shifts: tuple[int, ...], border_mode: str,
    constant_value: float, base_axis: int,
) -> tuple[Any, ...]:  # fmt: skip
    """Shift the gradient back; what came from one place is summed, what came from none is lost."""
    gradient, at = g[0], y[1]
    if border_mode == "constant":
        gradient = F.where(F.greater_equal_scalar(at, 0), gradient, 0.0)
        at = F.maximum_scalar(at, 0)
    return _return(gradient, at, x), None


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


# Erased rectangles -------------------------------------------------------------------------------


@defop("nnl::random_erase", save=("mask",), outputs=("y", "mask"))
def random_erase_operator(
    x: Array,
    key: Array,
    *,
    prob: float,
    area_ratios: tuple[float, float],
    aspect_ratios: tuple[float, float],
    replacements: tuple[float, float],
    n: int,
    share: bool,
    base_axis: int,
    channel_last: bool,
) -> tuple[Array, Array]:
    """Replace up to ``n`` rectangles of each image by random numbers; return also where."""
    generator = generator_of(key)
    base = normalize_axis(base_axis, x.ndim)
    channel, across = (2, (0, 1)) if channel_last else (0, (1, 2))
    inner = x.shape[base:]
    height, width = (inner[axis] for axis in across)
    channels = 1 if share else inner[channel]
    lengths = [1, 1, 1]
    lengths[channel] = channels
    draws = (math.prod(x.shape[:base]), *lengths)
    row = np.arange(height).reshape([height if axis == across[0] else 1 for axis in range(3)])
    column = np.arange(width).reshape([width if axis == across[1] else 1 for axis in range(3)])
    mask = np.zeros((draws[0], *inner), bool)
    for _ in range(n):
        area = generator.uniform(*area_ratios, draws) * (height * width)
        aspect = generator.uniform(*aspect_ratios, draws)
        tall = np.minimum(np.rint(np.sqrt(area * aspect)), height).astype(np.int64)
        wide = np.minimum(np.rint(np.sqrt(area / aspect)), width).astype(np.int64)
        top = generator.integers(0, height - tall + 1)
        left = generator.integers(0, width - wide + 1)
        erased = generator.random(draws) < prob
        mask |= (
            erased & (top <= row) & (row < top + tall) & (left <= column) & (column < left + wide)
        )
    mask = mask.reshape(x.shape)
    low, high = replacements
    numbers = low + (high - low) * generator.random(x.shape, np.float32)
    return np.where(mask, numbers.astype(x.dtype), x), mask


@random_erase_operator.infer
def random_erase_infer(x: Spec, key: Spec, *, base_axis: int, **_: Any) -> tuple[Spec, Spec]:
    """The input's shape."""
    if x.ndim - normalize_axis(base_axis, x.ndim) != 3:
        raise ShapeError(
            f"behind base_axis {base_axis} there must be three axes: channels, height and width"
        )
    return x, x.with_dtype(bool)


@random_erase_operator.vjp
def random_erase_vjp(g: Any, y: Any, x: Any, key: Any, **_: Any) -> tuple[Any, ...]:
    """The gradient of what is still there."""
    if g[0] is None:
        return None, None
    return F.where(y[1], 0.0, g[0]), None


@random_erase_operator.samples
def random_erase_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Always, sometimes and never; channels together and apart, first and last; no image."""
    for prob, n, share, channel_last, base_axis, shape in [
        (1.0, 1, True, False, 1, (3, 2, 6, 5)),
        (1.0, 3, False, False, 1, (3, 2, 6, 5)),
        (0.5, 2, False, True, -3, (2, 2, 6, 5, 3)),
        (0.0, 1, True, False, 0, (2, 6, 5)),
        (1.0, 1, True, False, 1, (0, 2, 6, 5)),
    ]:
        yield Sample(
            rng.normal(size=shape), _key(rng), prob=prob, area_ratios=(0.1, 0.4),
            aspect_ratios=(0.3, 3.3), replacements=(2.0, 3.0), n=n, share=share,
            base_axis=base_axis, channel_last=channel_last,
        )  # fmt: skip


@defop("nnl::pass_gradient")
def pass_gradient(x: Array, value: Array) -> Array:
    """Return ``value``, and give its gradient to ``x`` as if it were that."""
    return value.copy()


@pass_gradient.infer
def pass_gradient_infer(x: Spec, value: Spec) -> Spec:
    """That of both."""
    if x != value:
        raise ShapeError("a value that stands for another must have its shape and dtype")
    return value


@pass_gradient.vjp(surrogate=True)
def pass_gradient_vjp(g: Any, y: Any, x: Any, value: Any) -> tuple[Any, ...]:
    """All to the first."""
    return g, None


@pass_gradient.samples
def pass_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Some, one, none."""
    for shape in ((2, 3), (), (0, 3)):
        yield Sample(rng.normal(size=shape), rng.normal(size=shape))


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
    cut = () if shape is None else tuple(int(length) for length in shape)
    if any(length < 0 for length in cut):
        raise OperatorError(f"random_crop: shape {cut} has a negative length")
    return _apply(random_crop_operator, x, seed, shape=cut, base_axis=int(base_axis))


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
    chosen = (-1,) if axes is None else tuple(int(axis) for axis in axes)
    return _apply(random_flip_operator, x, seed, axes=chosen, base_axis=int(base_axis))


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
    most = () if shifts is None else tuple(int(shift) for shift in shifts)
    if border_mode not in BORDERS:
        raise OperatorError(
            f"random_shift: border_mode {border_mode!r} is unknown; it can be {', '.join(BORDERS)}"
        )
    if any(shift < 0 for shift in most):
        raise OperatorError(f"random_shift: shifts {most} must not be negative")
    return _apply(
        random_shift_operator, x, seed, shifts=most, border_mode=border_mode,
        constant_value=float(constant_value), base_axis=int(base_axis),
    )  # fmt: skip


def random_erase(
    x: Operand,
    prob: float = 0.5,
    area_ratios: Sequence[float] = (0.02, 0.4),
    aspect_ratios: Sequence[float] = (0.3, 3.3333),
    replacements: Sequence[float] = (0.0, 255.0),
    n: int | None = None,
    share: bool = True,
    inplace: bool = False,
    base_axis: int = 1,
    seed: int = -1,
    channel_last: bool = False,
    ste_fine_grained: bool = True,
) -> Variable:
    """Replace rectangles of each image by random numbers (Zhong et al. 2017).

    Of an image of ``height`` by ``width``, a rectangle has ``sqrt(a r)`` rows and ``sqrt(a / r)``
    columns, rounded and at most all, where ``a / (height width)`` is uniform in ``area_ratios`` and
    ``r`` in ``aspect_ratios``. All its places inside the image are equally likely.

    Args:
        x: images ``(..., channels, height, width)``, floating.
        prob: probability of each rectangle to be erased.
        area_ratios: lowest and highest share of the area.
        aspect_ratios: lowest and highest ratio of height to width.
        replacements: lowest and highest of the numbers, which are uniform, one for each element.
        n: how many rectangles there are, which may overlap; by default 1.
        share: whether all channels of an image lose the same rectangles, or each its own.
        inplace: a hint that planning memory makes needless.
        base_axis: the first axis that belongs to an image; three are behind it.
        seed: at least 0 for a sequence of its own; -1 for the one that ``nnl.seed`` begins.
        channel_last: whether images are ``(..., height, width, channels)``.
        ste_fine_grained: whether the gradient stops at what is erased.

    Raises:
        OperatorError: ``prob`` is not in [0, 1], or the ranges are no two ascending numbers.
        ShapeError: there are not three axes behind ``base_axis``.

    Gradient:
        0 for what is erased, and passed on elsewhere; all of it without ``ste_fine_grained``, as
        if nothing were erased.

    Examples:
        >>> x = np.zeros((1, 1, 4, 4))
        >>> y = F.random_erase(x, prob=1, area_ratios=(0.25, 0.25), aspect_ratios=(1, 1),
        ...                    replacements=(7, 7)).d
        >>> int((y == 7).sum())
        4

    Elsewhere:
        - nnabla: `random_erase`, where rectangles have one more row and column; channels last on
          GPUs only
        - PyTorch: `torchvision.transforms.RandomErasing`, one rectangle; `scale` for
          `area_ratios`, `ratio` for `aspect_ratios`
        - ONNX: none, `Where` with a mask made outside the graph
    """
    variable = floating(x)
    count = 1 if n is None else int(n)
    ranges = {
        "area_ratios": area_ratios, "aspect_ratios": aspect_ratios, "replacements": replacements,
    }  # fmt: skip
    for name, given in ranges.items():
        if len(given) != 2 or not given[0] <= given[1]:
            raise OperatorError(f"random_erase: {name} {tuple(given)} must be two, low and high")
    if not 0 <= prob <= 1 or count < 1 or area_ratios[0] < 0 or aspect_ratios[0] <= 0:
        raise OperatorError(
            f"random_erase: prob {prob} must be in [0, 1], n {count} at least 1, area_ratios "
            f"{tuple(area_ratios)} not negative and aspect_ratios {tuple(aspect_ratios)} positive"
        )
    attributes: dict[str, Any] = {
        name: (float(low), float(high)) for name, (low, high) in ranges.items()
    }
    attributes |= {"prob": float(prob), "n": count, "share": bool(share)}
    attributes |= {"base_axis": int(base_axis), "channel_last": bool(channel_last)}
    if ste_fine_grained:
        return _apply(random_erase_operator, variable, seed, **attributes)
    with no_grad():
        erased = _apply(random_erase_operator, variable, seed, **attributes)
    result: Variable = pass_gradient(variable, erased)
    return result
