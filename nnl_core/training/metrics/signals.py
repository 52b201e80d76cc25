"""How close signals and images are to what they should be."""

from __future__ import annotations

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ModelError, ShapeError
from nnl_core.graph.variable import Variable
from nnl_core.training.metrics.base import CountedMean, Sums, counted
from nnl_core.training.metrics.shapes import alike, where

DECIBEL = 10 / np.log(10)


class _Ratio(Sums):
    """Ten times the decimal logarithm of a power divided by that of the error."""

    def __init__(self, each: bool = False) -> None:
        super().__init__()
        self.each = each

    def power(self, target: Variable) -> Variable:
        """Return, for each row, the mean power that the error is compared with."""
        raise ModelError(f"metric {type(self).__name__} does not define its power")

    def measure(
        self, output: Variable, target: Variable, counts: Variable | None = None
    ) -> Variable:
        """Sum powers and errors, or ratios, of samples, and count them."""
        samples = output.shape[0]
        target = F.reshape(alike(output, target), (samples, -1))
        power = self.power(target)
        error = F.mean(F.squared_error(F.reshape(output, target.shape), target), axis=1)
        if self.each:
            power, error = DECIBEL * (F.log(power) - F.log(error)), F.zeros_like(error)
        if counts is None:
            counts = F.constant(1, (samples,))
        return F.stack(*(F.sum(where(counts, x, 0)) for x in (power, error, counts)))

    def value(self) -> float:
        """Return decibels; infinite where output and target are equal, NaN of no samples."""
        power, error, samples = np.broadcast_to(self.state, 3).astype(np.float64)
        if not samples:
            return float("nan")
        if self.each:
            return float(power / samples)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(10 * np.log10(power / error))


class Psnr(_Ratio):
    """Peak signal-to-noise ratio in decibels: the squared ``data_range`` over the squared error.

    ``each`` takes the mean of the samples' ratios, as results on images are published, instead of
    the ratio of all samples together.
    """

    def __init__(self, data_range: float = 1.0, each: bool = False) -> None:
        super().__init__(each)
        self.data_range = _range(data_range)

    def power(self, target: Variable) -> Variable:
        """Return the squared range."""
        return F.constant(self.data_range**2, target.shape[:1])


class Snr(_Ratio):
    """Signal-to-noise ratio in decibels: the squared target over the squared error.

    ``each`` takes the mean of the samples' ratios instead of the ratio of all samples together.
    """

    def power(self, target: Variable) -> Variable:
        """Return the mean square of the target."""
        return F.mean(F.square(target), axis=1)


class Ssim(CountedMean):
    """Structural similarity of images, as Wang et al. (2004) have it, and its mean over images.

    Statistics are weighted by a Gaussian window of 11 by 11 pixels with a deviation of 1.5, where
    it fits into the image; ``k1 = 0.01``, ``k2 = 0.03``. Images are the last two axes; of several
    channels the mean is taken. ``data_range`` is the difference of the largest and the smallest
    value that pixels may have.
    """

    size, deviation, k1, k2 = 11, 1.5, 0.01, 0.03

    def __init__(self, data_range: float = 1.0) -> None:
        super().__init__()
        self.data_range = _range(data_range)

    def measure(
        self, output: Variable, target: Variable, counts: Variable | None = None
    ) -> Variable:
        """Sum similarities over images, and count images."""
        if output.ndim < 3 or min(output.shape[-2:]) < self.size:
            raise ShapeError(
                f"output has shape {output.shape}; images are its last two axes, and have at least "
                f"{self.size} by {self.size} pixels"
            )
        height, width = output.shape[-2:]
        x = F.reshape(output, (-1, 1, height, width))
        y = F.reshape(alike(output, target), (-1, 1, height, width))
        # Variances do not change with what is subtracted, but lose fewer digits.
        middle = F.mean(y, axis=(2, 3), keepdims=True)
        x, y = x - middle, y - middle
        maps = F.concatenate(x, y, x * x, y * y, x * y, axis=1)
        mean_x, mean_y, xx, yy, xy = F.split(self._blurred(maps), axis=1)
        c1, c2 = (self.k1 * self.data_range) ** 2, (self.k2 * self.data_range) ** 2
        middle = F.reshape(middle, (-1, 1, 1))
        at_x, at_y = mean_x + middle, mean_y + middle
        light = (2 * at_x * at_y + c1) / (at_x * at_x + at_y * at_y + c1)
        variances = xx - mean_x * mean_x + yy - mean_y * mean_y
        structure = (2 * (xy - mean_x * mean_y) + c2) / (variances + c2)
        samples = output.shape[0]
        found = F.mean(F.reshape(light * structure, (samples, -1)), axis=1)
        return counted(found, F.constant(1, (samples,)) if counts is None else counts)

    def _blurred(self, maps: Variable) -> Variable:
        """Return means of maps (images, maps, height, width), weighted by the window."""
        images, count, height, width = maps.shape
        places = np.arange(self.size) - self.size // 2
        window = np.exp(-(places**2) / (2 * self.deviation**2))
        window = (window / window.sum()).astype(np.float32)
        maps = F.reshape(maps, (images * count, 1, height, width))
        maps = F.convolution(maps, window.reshape(1, 1, -1, 1))
        maps = F.convolution(maps, window.reshape(1, 1, 1, -1))
        return F.reshape(maps, (images, count, *maps.shape[2:]))


def _range(data_range: float) -> float:
    if not data_range > 0:
        raise ModelError(f"data_range = {data_range}: say how far apart values can be")
    return float(data_range)
