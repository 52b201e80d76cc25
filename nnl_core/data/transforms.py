"""The transforms that come with the engine, and how a project file names them.

Each is a frozen data class that changes one ``field`` of a batch. Height and width of images are
their last axes.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, cast

import numpy as np

from nnl_core.data.source import Array
from nnl_core.data.transforming import Draws, EachSample, Transform
from nnl_core.errors import ConfigurationError, DataError
from nnl_core.graph.dtypes import is_floating
from nnl_core.hooks.loading import did_you_mean, resolve

Size: TypeAlias = int | Sequence[int]
Border: TypeAlias = Literal["constant", "edge", "reflect"]


@dataclass(frozen=True, kw_only=True)
class FieldTransform(ABC):
    """A transform of one field: subclasses say what becomes of its stacked samples."""

    random: ClassVar[bool] = False

    field: str = "x"

    def __call__(self, batch: dict[str, Array], draws: Draws) -> dict[str, Array]:
        """Change the field of a batch."""
        if self.field not in batch:
            hint = did_you_mean(self.field, batch) or f"; there are {', '.join(batch)}"
            raise DataError(f"there is no field {self.field!r} to transform{hint}")
        return {**batch, self.field: self.apply(batch[self.field], draws)}

    @abstractmethod
    def apply(self, samples: Array, draws: Draws) -> Array:
        """Return what becomes of stacked samples."""


@dataclass(frozen=True, kw_only=True)
class ToFloat(FieldTransform):
    """``float32``; unsigned integers are divided by the largest of their dtype, so 0 to 1."""

    def apply(self, samples: Array, draws: Draws) -> Array:
        """Convert."""
        made = samples.astype(np.float32)
        if samples.dtype.kind == "u":
            made /= np.float32(np.iinfo(samples.dtype).max)
        return made


@dataclass(frozen=True, kw_only=True)
class Normalize(FieldTransform):
    """``(x - mean) / deviation`` in ``float32``; numbers, or one for each channel (first axis)."""

    mean: float | Sequence[float]
    deviation: float | Sequence[float]

    def __post_init__(self) -> None:
        if not np.all(np.asarray(self.deviation, np.float32)):
            raise DataError("deviation must not be 0")

    def apply(self, samples: Array, draws: Draws) -> Array:
        """Shift and scale."""
        made = samples.astype(np.float32)
        made -= _per_channel(self.mean, samples)
        made /= _per_channel(self.deviation, samples)
        return made


@dataclass(frozen=True, kw_only=True)
class OneHot(FieldTransform):
    """A label, of shape () or (1,), as ``float32`` numbers: 1 at its place, 0 elsewhere."""

    classes: int
    field: str = "y"

    def apply(self, samples: Array, draws: Draws) -> Array:
        """Spread labels out."""
        if samples.dtype.kind not in "iu" or samples[0].size != 1:
            raise DataError(
                f"field {self.field!r} holds no labels: {samples.dtype} {samples[0].shape}"
            )
        labels = samples.reshape(-1).astype(np.int64)
        wrong = labels[(labels < 0) | (labels >= self.classes)]
        if wrong.size:
            raise DataError(f"label {wrong[0]} is not one of {self.classes} classes, from 0")
        made = np.zeros((len(labels), self.classes), np.float32)
        made[np.arange(len(labels)), labels] = 1
        return made


@dataclass(frozen=True, kw_only=True)
class Resize(FieldTransform):
    """Bring images to a size, linearly; what gets smaller is averaged. Integers are rounded."""

    size: Size

    def apply(self, samples: Array, draws: Draws) -> Array:
        """Multiply by a matrix along each of the last two axes."""
        height, width = _image_size(samples)
        rows, columns = _pair(self.size)
        wide = samples.astype(np.result_type(samples.dtype, np.float32))
        made: Array = _resampling(height, rows) @ wide @ _resampling(width, columns).T
        return (made if is_floating(samples.dtype) else np.rint(made)).astype(samples.dtype)


@dataclass(frozen=True, kw_only=True)
class CenterCrop(FieldTransform):
    """The middle of images; where it cannot be exact, half a pixel further up and left."""

    size: Size

    def apply(self, samples: Array, draws: Draws) -> Array:
        """Cut out."""
        height, width = _image_size(samples)
        rows, columns = _pair(self.size)
        top, left = _room(height, rows) // 2, _room(width, columns) // 2
        return samples[..., top : top + rows, left : left + columns].copy()


@dataclass(frozen=True, kw_only=True)
class RandomCrop(FieldTransform):
    """A part of images at a random place, all places alike, of ``size`` (default: as large).

    Before that, ``padding`` pixels are added on every side: ``border`` says which.
    """

    random: ClassVar[bool] = True

    size: Size | None = None
    padding: int = 0
    border: Border = "constant"

    def __post_init__(self) -> None:
        if self.padding < 0 or self.border not in ("constant", "edge", "reflect"):
            raise DataError("padding is not negative, border constant, edge or reflect")

    def apply(self, samples: Array, draws: Draws) -> Array:
        """Cut out of each image a part at its own place."""
        height, width = _image_size(samples)
        rows, columns = (height, width) if self.size is None else _pair(self.size)
        around = [(0, 0)] * (samples.ndim - 2) + [(self.padding, self.padding)] * 2
        padded = np.pad(samples, around, mode=self.border)
        spare_rows = _room(height + 2 * self.padding, rows)
        spare_columns = _room(width + 2 * self.padding, columns)
        made = np.empty((*samples.shape[:-2], rows, columns), samples.dtype)
        for row, generator in enumerate(draws.generators):
            top = int(generator.integers(spare_rows + 1))
            left = int(generator.integers(spare_columns + 1))
            made[row] = padded[row, ..., top : top + rows, left : left + columns]
        return made


def random_shift(*, pixels: int, border: Border = "constant", field: str = "x") -> RandomCrop:
    """Move images by up to so many pixels, up or down and left or right."""
    return RandomCrop(padding=pixels, border=border, field=field)


@dataclass(frozen=True, kw_only=True)
class RandomFlip(FieldTransform):
    """Mirror images, each with a ``probability``: left to right, or upside down."""

    random: ClassVar[bool] = True

    direction: Literal["horizontal", "vertical"] = "horizontal"
    probability: float = 0.5

    def __post_init__(self) -> None:
        if self.direction not in ("horizontal", "vertical") or not 0 <= self.probability <= 1:
            raise DataError("direction is horizontal or vertical, probability from 0 to 1")

    def apply(self, samples: Array, draws: Draws) -> Array:
        """Mirror some of the images."""
        _image_size(samples)
        chosen = [generator.random() < self.probability for generator in draws.generators]
        axis = -1 if self.direction == "horizontal" else -2
        made = samples.copy()
        made[chosen] = np.flip(samples[chosen], axis)
        return made


@dataclass(frozen=True, kw_only=True)
class Cutout(FieldTransform):
    """Set a rectangle of images to ``value``; its centre is any pixel, so part may lie outside."""

    random: ClassVar[bool] = True

    size: Size
    value: float = 0.0

    def apply(self, samples: Array, draws: Draws) -> Array:
        """Blank a part of each image at its own place."""
        height, width = _image_size(samples)
        rows, columns = _pair(self.size)
        made = samples.copy()
        for row, generator in enumerate(draws.generators):
            top = int(generator.integers(height)) - rows // 2
            left = int(generator.integers(width)) - columns // 2
            made[row, ..., max(top, 0) : top + rows, max(left, 0) : left + columns] = self.value
        return made


@dataclass(frozen=True, kw_only=True)
class Noise(FieldTransform):
    """Add normally distributed numbers of this standard ``deviation``; to a floating field only."""

    random: ClassVar[bool] = True

    deviation: float

    def apply(self, samples: Array, draws: Draws) -> Array:
        """Add noise to each sample."""
        if not is_floating(samples.dtype):
            raise DataError(
                f"noise needs a floating field, not {samples.dtype}; put to_float first"
            )
        made = samples.copy()
        for row, generator in enumerate(draws.generators):
            noise = self.deviation * generator.standard_normal(samples.shape[1:], np.float32)
            made[row] += noise.astype(samples.dtype)
        return made


TRANSFORMS: dict[str, Callable[..., Transform]] = {
    "center_crop": CenterCrop,
    "cutout": Cutout,
    "noise": Noise,
    "normalize": Normalize,
    "one_hot": OneHot,
    "random_crop": RandomCrop,
    "random_flip": RandomFlip,
    "random_shift": random_shift,
    "resize": Resize,
    "to_float": ToFloat,
}
"""What a project file calls them."""


def make_transforms(
    entries: Iterable[str | Mapping[str, object]],
    where: str = "transforms",
    load: Callable[[str, str], object] = resolve,
) -> list[Transform]:
    """Make transforms of a list such as ``["to_float", {name = "random_crop", padding = 4}]``.

    A name is one of `TRANSFORMS`, or ``"module:attribute"``: a class, which makes a transform of
    batches from the arguments, or a function of one sample, called as `EachSample` says.
    ``load(target, wanted_by)`` imports it. Raises ConfigurationError, beginning with ``where``.
    """
    return [_make(entry, f"{where}[{number}]", load) for number, entry in enumerate(entries)]


def _make(
    entry: str | Mapping[str, object], where: str, load: Callable[[str, str], object]
) -> Transform:
    arguments = {"name": entry} if isinstance(entry, str) else dict(entry)
    name = arguments.pop("name", None)
    if not isinstance(name, str):
        raise ConfigurationError(f"{where}: write a name, or a table with a name, not {entry!r}")
    if ":" in name:
        found = load(name, where)
        if not callable(found):
            raise ConfigurationError(f"{where}: {name!r} is neither a class nor a function")
        if not isinstance(found, type):
            return EachSample(found, **arguments)
        factory = cast(Callable[..., Transform], found)
    elif name in TRANSFORMS:
        factory = TRANSFORMS[name]
    else:
        hint = did_you_mean(name, TRANSFORMS) or f"; known: {', '.join(TRANSFORMS)}"
        raise ConfigurationError(f"{where}: no transform {name!r}{hint}")
    known = list(inspect.signature(factory).parameters)
    for key in arguments:
        if key not in known:
            hint = did_you_mean(key, known) or f"; it takes {', '.join(known)}"
            raise ConfigurationError(f"{where}: {name} takes no {key!r}{hint}")
    try:
        return factory(**arguments)
    except (DataError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{where}, {name}: {error}") from error


def _image_size(samples: Array) -> tuple[int, int]:
    if samples.ndim < 3:
        raise DataError(f"an image has height and width; a sample has shape {samples.shape[1:]}")
    return samples.shape[-2], samples.shape[-1]


def _pair(size: Size) -> tuple[int, int]:
    sizes = (size, size) if isinstance(size, int) else tuple(size)
    if len(sizes) != 2 or min(sizes) < 1:
        raise DataError(f"a size is height and width, at least 1, not {size!r}")
    return sizes[0], sizes[1]


def _room(length: int, part: int) -> int:
    if part > length:
        raise DataError(f"{part} pixels cannot be cut out of {length}")
    return length - part


def _per_channel(value: float | Sequence[float], samples: Array) -> Array:
    values = np.asarray(value, np.float32)
    if values.ndim == 0:
        return values
    if values.shape != samples.shape[1:2]:
        raise DataError(
            f"{len(values)} numbers do not go with samples of shape {samples.shape[1:]}; "
            "give one, or one for each channel"
        )
    return values.reshape(-1, *[1] * (samples.ndim - 2))


def _resampling(length: int, wanted: int) -> Array:
    """Return the matrix (wanted, length) of linear interpolation between centres of pixels.

    Where pixels get larger, the triangle that weighs them grows with them.
    """
    scale = length / wanted
    support = max(scale, 1.0)
    centres = (np.arange(wanted) + 0.5) * scale - 0.5
    distance = np.abs(np.arange(length) - centres[:, np.newaxis]) / support
    weights = np.clip(1 - distance, 0, None)
    return cast(Array, (weights / weights.sum(1, keepdims=True)).astype(np.float32))
