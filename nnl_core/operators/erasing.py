"""Rectangles of images erased at random."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.modes import no_grad
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating
from nnl_core.operators.stochastic import generator_of, random_key

__all__ = ["random_erase"]


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
    mask = np.zeros((), bool)
    for _ in range(n):
        area = generator.uniform(*area_ratios, draws) * (height * width)
        aspect = generator.uniform(*aspect_ratios, draws)
        tall = np.minimum(np.rint(np.sqrt(area * aspect)), height).astype(np.int64)
        wide = np.minimum(np.rint(np.sqrt(area / aspect)), width).astype(np.int64)
        top = generator.integers(0, height - tall + 1)
        left = generator.integers(0, width - wide + 1)
        erased = generator.random(draws) < prob
        mask = mask | (
            erased & (top <= row) & (row < top + tall) & (left <= column) & (column < left + wide)
        )
    mask = np.broadcast_to(mask, (draws[0], *inner)).reshape(x.shape).copy()
    low, high = replacements
    y = x.copy()
    y[mask] = low + (high - low) * generator.random(np.count_nonzero(mask), np.float32)
    return y, mask


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
            rng.normal(size=shape), rng.integers(0, 2**63, size=2, dtype=np.uint64),
            prob=prob, area_ratios=(0.1, 0.4), aspect_ratios=(0.3, 3.3), replacements=(2.0, 3.0),
            n=n, share=share, base_axis=base_axis, channel_last=channel_last,
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
    count = 1 if n is None else whole(n, "n")
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
    with no_grad(not ste_fine_grained):
        erased: Variable = random_erase_operator(variable, random_key(seed), **attributes)[0]
    if ste_fine_grained:
        return erased
    result: Variable = pass_gradient(variable, erased)
    return result
