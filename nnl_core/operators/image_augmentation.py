"""Images scaled, turned, distorted, flipped, lightened and made noisy at random."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import wholes
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating, wide
from nnl_core.operators.stochastic import generator_of, random_key

__all__ = ["image_augmentation"]


class Lengths(NamedTuple):
    """How many images there are, of how many channels, and how high and wide."""

    images: int
    channels: int
    height: int
    width: int


def _lengths(shape: tuple[int, ...]) -> Lengths:
    channels = shape[-3] if len(shape) > 2 else 1
    return Lengths(math.prod(shape[:-3]), channels, *shape[-2:])


def _augmented(x: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*x[: len(x) - len(shape)], *shape)


@defop(
    "nnl::image_augmentation",
    save=("places", "weights", "contrasts"),
    outputs=("y", "places", "weights", "contrasts"),
)
def image_augmentation_operator(
    x: Array,
    key: Array,
    *,
    shape: tuple[int, ...],
    pad: tuple[int, int],
    min_scale: float,
    max_scale: float,
    angle: float,
    aspect_ratio: float,
    distortion: float,
    flip_lr: bool,
    flip_ud: bool,
    brightness: float,
    brightness_each: bool,
    contrast: float,
    contrast_center: float,
    contrast_each: bool,
    noise: float,
) -> tuple[Array, ...]:
    """Augment each image in its own way.

    Also return what the gradient needs: the four elements that each is interpolated from and their
    weights, ``(images, 4 * pixels)``, and the factor of each channel, ``(images, channels)``.
    """
    generator = generator_of(key)
    given, wanted = _lengths(x.shape), _lengths(_augmented(x.shape, shape))
    rows, columns = _source(
        generator, given, wanted, pad, (min_scale, max_scale), angle, aspect_ratio, distortion,
        flip_lr, flip_ud,
    )  # fmt: skip
    places, weights = _corners(rows, columns, given)
    values = wide(x)
    weights = weights.astype(values.dtype, copy=False)
    y = np.empty((*given[:2], wanted.height * wanted.width), values.dtype)
    for image, pixels in enumerate(values.reshape(*given[:2], given.height * given.width)):
        taken = np.take(pixels, places[image], axis=1, mode="clip") * weights[image]
        np.sum(taken.reshape(given.channels, 4, -1), axis=1, out=y[image])

    per = (*given[:2], 1)
    added = _either(generator.uniform(-brightness, brightness, per), brightness_each)
    spread = abs(math.log(contrast))
    factors = np.exp(_either(generator.uniform(-spread, spread, per), contrast_each))
    strength = noise * generator.random((given.images, 1, 1))
    y *= factors.astype(y.dtype)
    y += ((added - contrast_center) * factors + contrast_center).astype(y.dtype)
    if noise:
        y += strength.astype(y.dtype) * generator.standard_normal(y.shape, np.float32)
    return (
        y.reshape(_augmented(x.shape, shape)).astype(x.dtype, copy=False),
        places,
        weights.astype(x.dtype, copy=False),
        factors[:, :, 0].astype(x.dtype),
    )


def _either(each: Array, apart: bool) -> Array:
    """Return a number for each channel, or the first for all."""
    return each if apart else np.broadcast_to(each[:, :1], each.shape)


def _source(
    generator: np.random.Generator,
    given: Lengths,
    wanted: Lengths,
    pad: tuple[int, int],
    scales: tuple[float, float],
    angle: float,
    aspect_ratio: float,
    distortion: float,
    flip_lr: bool,
    flip_ud: bool,
) -> tuple[Array, Array]:
    """Return the row and the column that each pixel comes from, ``(images, height, width)``."""
    one = (given.images, 1, 1)

    def draw() -> Array:
        return generator.random(one, np.float32)

    low, high = (math.log(scale) for scale in scales)
    scale = np.exp(low + (high - low) * draw())
    stretch = np.exp(math.log(aspect_ratio) * (draw() - 0.5))
    across, down = scale * stretch, scale / stretch
    turn = angle * (2 * draw() - 1)
    mirrored = np.where((draw() < 0.5) & flip_lr, np.float32(-1), np.float32(1))
    upside_down = np.where((draw() < 0.5) & flip_ud, np.float32(-1), np.float32(1))

    # Pixels around the centre of the result, pulled outwards or inwards.
    dy = np.arange(wanted.height, dtype=np.float32)[:, None] - np.float32(wanted.height / 2)
    dx = np.arange(wanted.width, dtype=np.float32) - np.float32(wanted.width / 2)
    if distortion:
        bend = np.expm1(distortion * (2 * draw() - 1))
        squares = (dy * (2 / wanted.height)) ** 2 + (dx * (2 / wanted.width)) ** 2
        pull = (1 + bend * squares) / (1 + bend)
        dy, dx = dy * pull, dx * pull
    dx, dy = (dx + 0.5) / across, (dy + 0.5) / down

    # The part that is seen has its centre anywhere within the padded and scaled input.
    room_down = (given.height + 2 * pad[0]) * down - wanted.height
    room_across = (given.width + 2 * pad[1]) * across - wanted.width
    center_row = (draw() * room_down + (wanted.height - 1) / 2) / down - pad[0]
    center_column = (draw() * room_across + (wanted.width - 1) / 2) / across - pad[1]
    cos, sin = np.cos(turn), np.sin(turn)
    rows = center_row + upside_down * sin * dx + upside_down * cos * dy
    columns = center_column + mirrored * cos * dx - mirrored * sin * dy
    return rows, columns


def _corners(rows: Array, columns: Array, given: Lengths) -> tuple[Array, Array]:
    """Return the four places around each point and their weights; outside, the border goes on."""
    rows = np.clip(rows, 0, given.height - 1)
    columns = np.clip(columns, 0, given.width - 1)
    top, left = rows.astype(np.int64), columns.astype(np.int64)
    below, beside = rows - top, columns - left
    places = np.empty((len(rows), 4, *rows.shape[1:]), np.int64)
    weights = np.empty(places.shape, np.float32)
    down = (top < given.height - 1) * given.width
    np.add(top * given.width, left, out=places[:, 0])
    np.add(places[:, 0], left < given.width - 1, out=places[:, 1])
    np.add(places[:, :2], down[:, None], out=places[:, 2:])
    np.multiply(below, 1 - beside, out=weights[:, 2])
    np.multiply(below, beside, out=weights[:, 3])
    np.subtract(beside, weights[:, 3], out=weights[:, 1])
    np.subtract(1 - beside, weights[:, 2], out=weights[:, 0])
    flat = (len(rows), math.prod(places.shape[1:]) if len(rows) else 0)
    return places.reshape(flat), weights.reshape(flat)


@image_augmentation_operator.infer
def image_augmentation_infer(
    x: Spec, key: Spec, *, shape: tuple[int, ...], **_: Any
) -> tuple[Spec, ...]:
    """``shape`` in place of the last axes."""
    if x.ndim < 2 or len(shape) < 2 or len(shape) > x.ndim:
        raise ShapeError(f"input and shape {shape} need at least height and width")
    augmented = _augmented(x.shape, shape)
    if augmented[:-2] != x.shape[:-2]:
        raise ShapeError(f"shape {shape} changes more than height and width")
    if not all(x.shape[-2:]) or not all(shape[-2:]):
        raise ShapeError("images must have at least one pixel")
    given, wanted = _lengths(x.shape), _lengths(augmented)
    corners = (given.images, 4 * wanted.height * wanted.width if given.images else 0)
    return (
        x.with_shape(augmented),
        Spec(corners, np.dtype(np.int64)),
        x.with_shape(corners),
        x.with_shape((given.images, given.channels)),
    )


@image_augmentation_operator.vjp
def image_augmentation_vjp(g: Any, y: Any, x: Any, key: Any, **_: Any) -> tuple[Any, ...]:
    """Spread the gradient over the four elements that each pixel comes from."""
    if g[0] is None:
        return None, None
    _, places, weights, contrasts = y
    images, channels, height, width = _lengths(x.shape)
    pixels = places.shape[1] // 4
    scaled = F.reshape(g[0], (images, channels, 1, pixels)) * F.reshape(
        contrasts, (images, channels, 1, 1)
    )
    shares = scaled * F.reshape(weights, (images, 1, 4, pixels))
    sums = F.gather_adjoint(
        F.reshape(shares, (images, channels, 4 * pixels)), places, size=height * width, axis=2,
        batch_dims=1,
    )  # fmt: skip
    return F.reshape(sums, x.shape), None


@image_augmentation_operator.samples
def image_augmentation_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Nothing altered, everything, images without channels, one pixel, no image."""
    still: dict[str, Any] = {
        "pad": (0, 0), "min_scale": 1.0, "max_scale": 1.0, "angle": 0.0, "aspect_ratio": 1.0,
        "distortion": 0.0, "flip_lr": False, "flip_ud": False, "brightness": 0.0,
        "brightness_each": False, "contrast": 1.0, "contrast_center": 0.0,
        "contrast_each": False, "noise": 0.0,
    }  # fmt: skip
    moved = still | {
        "pad": (1, 2), "min_scale": 0.5, "max_scale": 2.0, "angle": 0.5, "aspect_ratio": 1.3,
        "distortion": 0.2, "flip_lr": True, "flip_ud": True, "brightness": 0.3,
        "brightness_each": True, "contrast": 1.5, "contrast_center": 0.5, "contrast_each": True,
        "noise": 0.1,
    }  # fmt: skip
    together = moved | {"brightness_each": False, "contrast_each": False, "noise": 0.0}
    for x, shape, attributes in [
        ((2, 3, 5, 4), (3, 5, 4), still),
        ((2, 3, 5, 4), (3, 4, 6), moved),
        ((2, 2, 1, 4, 3), (3, 3), together),
        ((5, 4), (2, 3), moved),
        ((2, 1, 1), (3, 2), moved),
        ((0, 3, 5, 4), (5, 4), moved),
    ]:
        key = rng.integers(0, 2**63, size=2, dtype=np.uint64)
        yield Sample(rng.normal(size=x), key, shape=shape, **attributes)


def image_augmentation(
    x: Operand,
    shape: Sequence[int] | None = None,
    pad: Sequence[int] = (0, 0),
    min_scale: float = 1.0,
    max_scale: float = 1.0,
    angle: float = 0.0,
    aspect_ratio: float = 1.0,
    distortion: float = 0.0,
    flip_lr: bool = False,
    flip_ud: bool = False,
    brightness: float = 0.0,
    brightness_each: bool = False,
    contrast: float = 1.0,
    contrast_center: float = 0.0,
    contrast_each: bool = False,
    noise: float = 0.0,
    seed: int = -1,
) -> Variable:
    """Alter each image in its own way: where its pixels come from, then how bright they are.

    The image is scaled by ``s`` and stretched, turned and mirrored around its centre; of the
    result, padded beforehand, a part of ``shape`` is seen, which is anywhere in it. Pixels are
    interpolated linearly between four; outside, the image's border goes on. Then

        y = (pixel + b - contrast_center) * c + contrast_center + e * normal noise

    with ``s`` in ``[min_scale, max_scale]``, ``c`` in ``[1 / contrast, contrast]`` (their
    logarithms uniform), ``b`` uniform in ``[-brightness, brightness]`` and ``e`` in ``[0, noise]``.

    Args:
        x: images ``(..., channels, height, width)`` or one ``(height, width)``, floating.
        shape: lengths of the last axes of the result, which may alter height and width; by
            default those of ``x``.
        pad: rows above and below, and columns to the left and right, to which the part that is seen
            may reach.
        min_scale: the smallest scale; 0.5 halves height and width.
        max_scale: the largest scale.
        angle: the largest angle, to both sides, in radians.
        aspect_ratio: the largest ratio of width to height that the image is stretched to, and
            inverse of the smallest.
        distortion: with ``d`` uniform in ``[-distortion, distortion]`` and ``k = exp(d) - 1``, a
            pixel at distance ``r`` from the centre (the border's middle having 1) comes from
            ``(1 + k r^2) / (1 + k)`` times as far.
        flip_lr: whether to mirror left and right, with probability one half.
        flip_ud: whether to mirror top and bottom, with probability one half.
        brightness: the most that is added or taken away.
        brightness_each: whether each channel has a brightness of its own.
        contrast: the largest factor, and inverse of the smallest.
        contrast_center: the value that the factor leaves as it is.
        contrast_each: whether each channel has a factor of its own.
        noise: the largest standard deviation of the noise.
        seed: at least 0 for a sequence of its own; -1 for the one that ``nnl.seed`` begins.

    Raises:
        OperatorError: a scale, ``aspect_ratio`` or ``contrast`` is not positive.
        ShapeError: ``shape`` alters more than height and width.

    Gradient:
        To the pixels that each is interpolated from, times the factor of its channel.

    Examples:
        >>> x = np.array([[[0.0, 2.0]]])
        >>> F.image_augmentation(x, shape=(2, 4), min_scale=2, max_scale=2).d
        array([[[0., 1., 2., 2.],
                [0., 1., 2., 2.]]])

    Elsewhere:
        - nnabla: `image_augmentation`, which has no gradient
        - PyTorch: none, `torchvision.transforms.RandomAffine` and `ColorJitter` do parts of it
        - ONNX: none, `GridSample` with random grids
    """
    variable = floating(x)
    positive = {
        "min_scale": min_scale, "max_scale": max_scale, "aspect_ratio": aspect_ratio,
        "contrast": contrast,
    }  # fmt: skip
    for name, number in positive.items():
        if not 0 < number < math.inf:
            raise OperatorError(f"image_augmentation: {name} {number} must be positive")
    if len(pad) != 2 or min(pad) < 0:
        raise OperatorError(f"image_augmentation: pad {tuple(pad)} must be rows and columns")
    wanted = variable.shape if shape is None else shape
    y: Variable = image_augmentation_operator(
        variable, random_key(seed),
        shape=wholes(wanted, "shape"), pad=(int(pad[0]), int(pad[1])),
        min_scale=float(min_scale), max_scale=float(max_scale), angle=float(angle),
        aspect_ratio=float(aspect_ratio), distortion=float(distortion), flip_lr=bool(flip_lr),
        flip_ud=bool(flip_ud), brightness=abs(float(brightness)),
        brightness_each=bool(brightness_each), contrast=float(contrast),
        contrast_center=float(contrast_center), contrast_each=bool(contrast_each),
        noise=float(noise),
    )[0]  # fmt: skip
    return y
