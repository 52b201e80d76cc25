"""Augmented images: each change alone against what it must do to images that show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core import random
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.execute import forward_all
from nnl_core.graph.modes import recompute
from nnl_core.graph.variable import Variable

IMAGES = np.random.default_rng(0).normal(size=(40, 3, 6, 5)).astype(np.float32)
LINE = np.arange(40.0)
RAMPS = np.broadcast_to(
    np.stack(np.broadcast_arrays(LINE[:, None], LINE), axis=0), (200, 2, 40, 40)
)
"""Images whose two channels say in which row and column a pixel is."""

PART = (2, 4, 4)

EVERYTHING: dict[str, Any] = {
    "shape": (3, 5, 8), "pad": (2, 2), "min_scale": 0.8, "max_scale": 1.2, "angle": 0.2,
    "aspect_ratio": 1.1, "distortion": 0.1, "flip_lr": True, "brightness": 0.1,
    "brightness_each": True, "contrast": 1.1, "contrast_center": 0.5, "contrast_each": True,
    "noise": 0.1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    before = random.get_state()
    random.seed(7)
    yield
    random.set_state(before)


def augmented(x: Any, **given: Any) -> np.ndarray:
    y = F.image_augmentation(np.asarray(x), **given)
    y.forward()
    return np.array(y.d, np.float64)


def slopes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how much further a step down and a step to the right goes: (images, channels) each.

    Images that show the border, where steps differ, are left out.
    """
    down, right = np.diff(y, axis=2), np.diff(y, axis=3)
    inside = np.ones(len(y), bool)
    for steps in (down, right):
        inside &= (abs(steps - steps[:, :, :1, :1]) < 1e-4).all(axis=(1, 2, 3))
    assert inside.sum() > 120
    return down[inside, :, 0, 0], right[inside, :, 0, 0]


# Where pixels come from --------------------------------------------------------------------------


def test_nothing_is_altered_unless_asked() -> None:
    np.testing.assert_array_equal(augmented(IMAGES), IMAGES.astype(np.float64))


def test_twice_the_size_interpolates_half_way_and_repeats_the_border() -> None:
    y = augmented([[0.0, 1.0], [2.0, 3.0]], shape=(4, 4), min_scale=2, max_scale=2)
    line = np.array([0, 0.5, 1, 1])
    np.testing.assert_allclose(y, 2 * line[:, None] + line, atol=1e-6)


def test_half_the_size_takes_each_second_pixel() -> None:
    x = np.arange(24.0).reshape(1, 4, 6)
    y = augmented(x, shape=(1, 2, 3), min_scale=0.5, max_scale=0.5)
    np.testing.assert_array_equal(y, x[:, ::2, ::2])


def test_a_part_is_seen_from_anywhere() -> None:
    y = augmented(RAMPS, shape=PART)
    corners = y[:, :, 0, 0]
    assert (corners >= 0).all()
    assert (corners <= 36).all()
    assert (corners.min(axis=0) < 3).all()
    assert (corners.max(axis=0) > 33).all()
    down, right = slopes(y)
    np.testing.assert_allclose(down, [[1, 0]] * 200, atol=1e-4)
    np.testing.assert_allclose(right, [[0, 1]] * 200, atol=1e-4)


def test_padding_repeats_the_border() -> None:
    y = augmented(RAMPS[:, 1:], pad=(0, 3))
    starts = y[:, 0, 0, 0]
    assert starts.min() == 0  # the part reached to the left: columns of zeros
    assert 2 < starts.max() <= 3
    assert (np.diff(y, axis=3) >= 0).all()
    assert y.max() == 39


def test_scales_are_between_the_two_asked_in_equal_shares_of_their_logarithms() -> None:
    down, right = slopes(augmented(RAMPS, shape=PART, min_scale=0.8, max_scale=1.25))
    step = right[:, 1]
    np.testing.assert_allclose(right[:, 0], 0, atol=1e-4)
    np.testing.assert_allclose(down, np.stack([step, 0 * step], axis=1), atol=1e-4)
    assert 0.8 - 1e-4 <= step.min() < 0.83
    assert 1.21 < step.max() <= 1.25 + 1e-4
    assert abs((step < 1).mean() - 0.5) < 6 * np.sqrt(0.25 / len(step))


def test_stretching_keeps_the_area() -> None:
    down, right = slopes(augmented(RAMPS, shape=PART, aspect_ratio=1.7))
    np.testing.assert_allclose(down[:, 0] * right[:, 1], 1, rtol=1e-4)
    ratio = down[:, 0] / right[:, 1]
    assert 1 / 1.7 - 1e-4 <= ratio.min() < 0.65
    assert 1.5 < ratio.max() <= 1.7 + 1e-4


def test_turning_keeps_lengths_and_angles() -> None:
    down, right = slopes(augmented(RAMPS, shape=PART, angle=0.6))
    for step in (down, right):
        np.testing.assert_allclose((step**2).sum(axis=1), 1, rtol=1e-4)
    np.testing.assert_allclose((down * right).sum(axis=1), 0, atol=1e-4)
    angles = np.arctan2(right[:, 0], down[:, 0])
    assert -0.6 - 1e-4 <= angles.min() < -0.5
    assert 0.5 < angles.max() <= 0.6 + 1e-4


def test_mirrors_come_half_the_time_and_independently() -> None:
    y = augmented(np.repeat(IMAGES[:1], 400, axis=0), flip_lr=True, flip_ud=True)
    x = IMAGES[0]
    counts = [
        int((abs(y - z).max(axis=(1, 2, 3)) < 1e-6).sum())
        for z in (x, x[:, ::-1], x[:, :, ::-1], x[:, ::-1, ::-1])
    ]
    assert sum(counts) == 400
    assert max(abs(count - 100) for count in counts) < 6 * np.sqrt(400 * 0.25 * 0.75)


def test_distortion_moves_along_the_line_to_the_centre() -> None:
    ramp = np.broadcast_to(np.arange(9.0), (200, 1, 9, 9))
    y = augmented(ramp, distortion=0.5)
    # A pixel at distance r comes from (1 + k r^2) / (1 + k) times as far; find the k of each image.
    u = (np.arange(9) - 4.5) / 4.5
    k = np.expm1(np.linspace(-0.5, 0.5, 4001))[:, None]
    expected = np.clip(u * (1 + k * (u**2 + u[4] ** 2)) / (1 + k) * 4.5 + 4.5, 0, 8)
    distances = abs(y[:, 0, 4, None, :] - expected).max(axis=2)
    assert distances.min(axis=1).max() < 2e-3
    assert len(np.unique(distances.argmin(axis=1))) > 100


# How bright they are -----------------------------------------------------------------------------


@pytest.mark.parametrize("each", [False, True])
def test_brightness_is_added_to_channels_together_or_apart(each: bool) -> None:
    added = augmented(IMAGES, brightness=0.3, brightness_each=each) - IMAGES
    np.testing.assert_allclose(added, added[:, :, :1, :1] + 0 * added, atol=1e-5)
    of_channels = added[:, :, 0, 0]
    assert (abs(of_channels) <= 0.3 + 1e-5).all()
    assert of_channels.min() < -0.2
    assert of_channels.max() > 0.2
    assert bool((np.ptp(of_channels, axis=1) < 1e-5).all()) is not each


@pytest.mark.parametrize("each", [False, True])
def test_contrast_multiplies_what_differs_from_its_centre(each: bool) -> None:
    y = augmented(IMAGES, contrast=1.5, contrast_center=0.25, contrast_each=each)
    factors = ((y - 0.25) * (IMAGES - 0.25)).sum(axis=(2, 3)) / np.square(IMAGES - 0.25).sum((2, 3))
    np.testing.assert_allclose(y - 0.25, factors[:, :, None, None] * (IMAGES - 0.25), atol=1e-5)
    assert 1 / 1.5 - 1e-5 <= factors.min() < 0.75
    assert 1.35 < factors.max() <= 1.5 + 1e-5
    assert bool((np.ptp(factors, axis=1) < 1e-5).all()) is not each


def test_noise_is_as_strong_as_drawn_for_each_image() -> None:
    deviations = augmented(np.zeros((300, 1, 20, 20)), noise=0.5).std(axis=(1, 2, 3))
    assert deviations.max() < 0.5 * 1.3
    assert abs(deviations.mean() - 0.25) < 6 * 0.5 / np.sqrt(12 * 300)


# What holds for all ------------------------------------------------------------------------------


def test_shape_and_dtype_are_as_asked() -> None:
    y = F.image_augmentation(IMAGES, **EVERYTHING)
    assert y.shape == (40, 3, 5, 8)
    assert y.dtype == np.float32
    assert F.image_augmentation(IMAGES.astype(np.float16)).dtype == np.float16


def test_runs_differ_and_a_seed_repeats_them() -> None:
    def build() -> Variable:
        return F.image_augmentation(IMAGES, **EVERYTHING, seed=4)

    def run(y: Variable) -> np.ndarray:
        y.forward()
        return np.array(y.d)

    y, again = build(), build()
    first = [run(y) for _ in range(2)]
    assert (first[0] != first[1]).any()
    random.seed(99)
    np.testing.assert_array_equal([run(again) for _ in range(2)], first)


def test_the_gradient_is_the_transpose_of_what_the_pixels_go_through() -> None:
    x = Variable.from_numpy_array(IMAGES.astype(np.float64), need_grad=True)
    y = F.image_augmentation(x, **{**EVERYTHING, "noise": 0.0, "brightness": 0.0}, seed=1)
    weights = np.random.default_rng(2).normal(size=y.shape)
    (dx,) = grad(y, x, weights)
    forward_all([y, dx])
    # y is affine in x: twice the image gives, less what 0 gives, twice the change.
    y0 = F.image_augmentation(0 * x.d, **{**EVERYTHING, "noise": 0.0, "brightness": 0.0}, seed=1)
    y0.forward()
    assert float((weights * (y.d - y0.d)).sum()) == pytest.approx(float((dx.d * x.d).sum()))


def test_what_is_recomputed_is_altered_in_the_same_way() -> None:
    x = Variable.from_numpy_array(IMAGES, need_grad=True)
    with recompute():
        y = F.image_augmentation(F.mul_scalar(x, 1.0), **EVERYTHING)
        z = F.mul(y, y)
    total = F.sum(z)
    (expected,) = grad(F.sum(F.mul(y, y)), x)
    forward_all([total, expected], clear_buffer=True)
    total.backward()
    np.testing.assert_allclose(x.g, expected.d, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["min_scale", "max_scale", "aspect_ratio", "contrast"])
def test_factors_that_are_not_positive_are_refused(name: str) -> None:
    with pytest.raises(OperatorError, match=f"{name} 0 must be positive"):
        F.image_augmentation(IMAGES, **{name: 0})


@pytest.mark.parametrize(
    ("shape", "text"),
    [((4, 5, 8), "more than height and width"), ((5,), "at least height"), ((3, 0, 5), "pixel")],
)
def test_shapes_that_no_image_can_take_are_refused(shape: tuple[int, ...], text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        F.image_augmentation(IMAGES, shape)
