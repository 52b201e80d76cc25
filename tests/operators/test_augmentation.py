"""Random crops, flips, shifts and erased rectangles: what they may give, and their gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core import random
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.execute import forward_all
from nnl_core.graph.modes import auto_forward, recompute
from nnl_core.graph.variable import Variable

IMAGES = np.arange(24 * 3 * 6 * 5, dtype=np.float32).reshape(24, 3, 6, 5)  # all numbers differ

CALLS: dict[str, Callable[..., Variable]] = {
    "crop": lambda x, **given: F.random_crop(x, (3, 4), **given),
    "flip": lambda x, **given: F.random_flip(x, (2, 3), **given),
    "shift": lambda x, **given: F.random_shift(x, (2, 1), **given),
    "shift, reflected": lambda x, **given: F.random_shift(x, (2, 1), "reflect", **given),
    "shift, constant": lambda x, **given: F.random_shift(x, (2, 1), "constant", -1, **given),
    "erase": lambda x, **given: F.random_erase(
        x, 0.7, (0.1, 0.3), replacements=(-2, -1), n=2, **given
    ),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    before = random.get_state()
    random.seed(7)
    yield
    random.set_state(before)


def value(y: Variable) -> np.ndarray:
    y.forward()
    return np.array(y.d)


def leaf(array: Any = IMAGES) -> Variable:
    return Variable.from_numpy_array(np.asarray(array), need_grad=True)


# What all have in common -------------------------------------------------------------------------


@each_call
def test_each_run_draws_anew(call: Callable[..., Variable]) -> None:
    y = call(leaf())
    assert len({value(y).tobytes() for _ in range(4)}) == 4


@each_call
def test_the_global_seed_fixes_the_numbers(call: Callable[..., Variable]) -> None:
    first = value(call(leaf()))
    random.seed(7)
    np.testing.assert_array_equal(value(call(leaf())), first)


@each_call
def test_a_seed_of_its_own_fixes_the_numbers_whatever_was_drawn_before(
    call: Callable[..., Variable],
) -> None:
    first = value(call(leaf(), seed=3))
    value(call(leaf()))
    np.testing.assert_array_equal(value(call(leaf(), seed=3)), first)
    assert (value(call(leaf(), seed=4)) != first).any()


@each_call
def test_static_and_dynamic_graphs_give_the_same_numbers(call: Callable[..., Variable]) -> None:
    static = value(call(leaf()))
    random.seed(7)
    with auto_forward():
        np.testing.assert_array_equal(call(leaf()).d, static)


@each_call
def test_examples_go_each_its_own_way(call: Callable[..., Variable]) -> None:
    y = value(call(leaf(np.repeat(IMAGES[:1], 24, axis=0))))
    assert len({example.tobytes() for example in y}) > 1


@each_call
def test_the_gradient_is_that_of_the_elements_that_are_still_there(
    call: Callable[..., Variable],
) -> None:
    x = leaf()
    y = call(x)
    for _ in range(2):
        y.forward()
        x.grad.zero()
        weights = np.random.default_rng(1).normal(size=y.shape)
        y.backward(weights)
        expected = np.zeros(IMAGES.size)
        stays = y.d >= 0  # what replaces elements is negative
        np.add.at(expected, y.d[stays].astype(int), weights[stays])
        np.testing.assert_allclose(x.g.ravel(), expected, rtol=1e-5, atol=1e-6)


@each_call
def test_the_gradient_has_a_gradient(call: Callable[..., Variable]) -> None:
    x = leaf(IMAGES / 100)
    y = F.sum(call(F.mul(x, F.mul(x, x))))
    (first,) = grad(y, x)
    (second,) = grad(F.sum(first), x)
    forward_all([first, second])
    np.testing.assert_allclose(second.d * x.d, 2 * first.d, rtol=1e-5, atol=1e-6)


@each_call
def test_what_is_recomputed_draws_the_same(call: Callable[..., Variable]) -> None:
    x = leaf(IMAGES / 100)
    with recompute():
        y = call(F.mul_scalar(x, 1.0))
        z = F.mul(y, y)
    total = F.add_scalar(z, 1)
    (expected,) = grad(F.sum(F.mul(y, y)), x)
    forward_all([total, expected], clear_buffer=True)
    total.backward()
    np.testing.assert_allclose(x.g, expected.d, rtol=1e-5)


@each_call
def test_an_empty_batch_stays_empty(call: Callable[..., Variable]) -> None:
    assert value(call(leaf(IMAGES[:0]))).shape[0] == 0


@each_call
def test_the_input_may_take_another_shape(call: Callable[..., Variable]) -> None:
    x = leaf()
    y = call(x)
    y.forward()
    x.reset_shape((2, 3, 9, 7), True)
    x.d = np.arange(2 * 3 * 9 * 7).reshape(2, 3, 9, 7)
    y.forward()
    assert y.shape[:2] == (2, 3)


@pytest.mark.parametrize("call", [F.random_crop, F.random_flip, F.random_shift])
def test_whole_numbers_stay_whole(call: Callable[..., Variable]) -> None:
    assert value(call(np.arange(6, dtype=np.int16).reshape(2, 3))).dtype == np.int16


# Crop --------------------------------------------------------------------------------------------


def test_a_crop_is_one_of_the_windows_and_each_window_comes() -> None:
    x = np.arange(20.0).reshape(4, 5)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2)).reshape(-1, 3, 2)
    y = value(F.random_crop(np.repeat(x[None], 400, axis=0), (3, 2)))
    found = {example.tobytes() for example in y}
    assert found == {window.tobytes() for window in windows}


def test_a_crop_without_shape_is_the_input() -> None:
    np.testing.assert_array_equal(value(F.random_crop(IMAGES)), IMAGES)


def test_a_crop_of_channels_keeps_neighbours() -> None:
    y = value(F.random_crop(IMAGES, (2, 6, 5)))
    np.testing.assert_array_equal(y[:, 1] - y[:, 0], np.full((24, 6, 5), 30.0))


def test_a_crop_along_the_batch_keeps_the_same_examples_throughout() -> None:
    y = value(F.random_crop(IMAGES, (5, 3, 6, 5)))
    assert y.shape == (5, 3, 6, 5)
    first = int(y[0, 0, 0, 0]) // 90
    np.testing.assert_array_equal(y, IMAGES[first : first + 5])


def test_base_axis_says_how_many_axes_count_examples() -> None:
    x = np.arange(10.0) + np.zeros((4, 50, 1))
    starts = value(F.random_crop(x, (3,), base_axis=2))[:, :, 0]
    assert len({row.tobytes() for row in starts}) == 4
    starts = value(F.random_crop(x, (3,), base_axis=1))[:, :, 0]
    assert (starts == starts[:, :1]).all()
    starts = value(F.random_crop(x, (3,), base_axis=-3))[:, :, 0]
    assert (starts == starts[:1, :1]).all()


def test_a_crop_larger_than_the_input_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"random_crop.*\(7, 5\).*larger"):
        F.random_crop(IMAGES, (7, 5))


def test_a_crop_of_more_axes_than_there_are_is_refused() -> None:
    with pytest.raises(ShapeError, match="more numbers"):
        F.random_crop(IMAGES, (1, 1, 1, 1, 1))


# Flip --------------------------------------------------------------------------------------------


def test_flips_of_two_axes_are_independent_and_all_come() -> None:
    x = np.arange(6.0).reshape(2, 3)
    y = value(F.random_flip(np.repeat(x[None], 2000, axis=0), (1, 2)))
    counts = [
        int((y == x[rows, columns]).all(axis=(1, 2)).sum())
        for rows, columns in itertools.product(
            (slice(None), slice(None, None, -1)), (slice(None), slice(None, None, -1))
        )
    ]
    assert sum(counts) == 2000
    assert max(abs(count - 500) for count in counts) < 6 * np.sqrt(2000 * 0.25 * 0.75)


def test_a_flip_is_of_the_last_axis_unless_said_otherwise() -> None:
    y = value(F.random_flip(IMAGES))
    np.testing.assert_array_equal(np.sort(y, axis=3), IMAGES)


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(ShapeError, match="axis 4 is out of range"):
        F.random_flip(IMAGES, (4,))


# Shift -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("border_mode", "expected"),
    [
        ("nearest", [[3, 4, 4, 4], [2, 3, 4, 4], [1, 2, 3, 4], [1, 1, 2, 3], [1, 1, 1, 2]]),
        ("reflect", [[3, 4, 4, 3], [2, 3, 4, 4], [1, 2, 3, 4], [1, 1, 2, 3], [2, 1, 1, 2]]),
        ("constant", [[3, 4, 9, 9], [2, 3, 4, 9], [1, 2, 3, 4], [9, 1, 2, 3], [9, 9, 1, 2]]),
    ],
)
def test_all_shifts_come_and_the_border_is_as_asked(
    border_mode: str, expected: list[list[int]]
) -> None:
    x = np.repeat([[1.0, 2.0, 3.0, 4.0]], 300, axis=0)
    y = value(F.random_shift(x, (2,), border_mode, 9))
    assert {tuple(row) for row in y.tolist()} == {tuple(map(float, row)) for row in expected}


def test_reflection_goes_back_and_forth_over_a_long_way() -> None:
    x = np.repeat([[1.0, 2.0]], 300, axis=0)
    y = value(F.random_shift(x, (5,), "reflect"))
    assert {tuple(row) for row in y.tolist()} == {(1, 2), (1, 1), (2, 1), (2, 2)}


def test_channels_of_an_image_move_together() -> None:
    y = value(F.random_shift(IMAGES, (2, 2)))
    np.testing.assert_array_equal(y[:, 1] - y[:, 0], np.full((24, 6, 5), 30.0))


def test_a_shift_without_shifts_is_the_input() -> None:
    np.testing.assert_array_equal(value(F.random_shift(IMAGES)), IMAGES)


def test_a_constant_border_keeps_infinities_out() -> None:
    y = value(F.random_shift(np.full((50, 3), np.inf), (1,), "constant", 0))
    assert {tuple(row) for row in y.tolist()} == {
        (np.inf, np.inf, np.inf),
        (0, np.inf, np.inf),
        (np.inf, np.inf, 0),
    }


def test_an_unknown_border_and_negative_shifts_are_refused() -> None:
    with pytest.raises(OperatorError, match="'wrap' is unknown; it can be nearest"):
        F.random_shift(IMAGES, (1,), "wrap")
    with pytest.raises(OperatorError, match="must not be negative"):
        F.random_shift(IMAGES, (-1,))


# Erase -------------------------------------------------------------------------------------------


def rectangle(mask: np.ndarray) -> tuple[int, int]:
    """Return height and width of what is erased of an image, which must be one rectangle."""
    rows, columns = mask.any(axis=1), mask.any(axis=0)
    assert mask.sum() == rows.sum() * columns.sum()
    for line in (rows, columns):
        assert np.diff(np.flatnonzero(line)).tolist() == [1] * (line.sum() - 1)
    return int(rows.sum()), int(columns.sum())


@pytest.mark.parametrize("channel_last", [False, True])
def test_one_rectangle_of_the_asked_size_is_erased_in_all_channels(channel_last: bool) -> None:
    shape = (50, 12, 18, 3) if channel_last else (50, 3, 12, 18)
    y = value(
        F.random_erase(
            np.zeros(shape, np.float32), 1, (1 / 6, 1 / 6), (0.25, 0.25), (2, 3),
            channel_last=channel_last,
        )
    )  # fmt: skip
    assert ((y == 0) | ((y >= 2) & (y < 3))).all()
    masks = np.moveaxis(y, -1, 1) != 0 if channel_last else y != 0
    assert (masks == masks[:, :1]).all()
    # 1/6 of 12 by 18 is 36 elements: sqrt(36 / 4) rows of sqrt(36 * 4).
    assert {rectangle(mask) for mask in masks[:, 0]} == {(3, 12)}


def test_channels_may_lose_rectangles_of_their_own() -> None:
    y = value(F.random_erase(np.zeros((50, 3, 8, 8)), 1, (0.1, 0.2), share=False))
    masks = y != 0
    assert (masks.sum(axis=(2, 3)) > 0).all()
    assert (masks != masks[:, :1]).any()


def test_rectangles_are_erased_with_the_given_probability() -> None:
    y = value(F.random_erase(np.zeros((4000, 1, 3, 3)), 0.3, (0.5, 0.5), (1, 1), (1, 1)))
    erased = (y != 0).any(axis=(1, 2, 3)).mean()
    assert abs(erased - 0.3) < 6 * np.sqrt(0.3 * 0.7 / 4000)


def test_nothing_is_erased_with_probability_0() -> None:
    np.testing.assert_array_equal(value(F.random_erase(IMAGES, 0)), IMAGES)


def test_more_rectangles_erase_more() -> None:
    x = np.zeros((50, 1, 16, 16))
    one = value(F.random_erase(x, 1, (0.05, 0.05), (1, 1), (1, 1)))
    five = value(F.random_erase(x, 1, (0.05, 0.05), (1, 1), (1, 1), n=5))
    assert one.sum() == 50 * 16
    assert 50 * 16 * 3 < five.sum() <= 50 * 16 * 5


def test_a_rectangle_never_leaves_the_image() -> None:
    y = value(F.random_erase(np.zeros((50, 1, 4, 20)), 1, (0.9, 0.9), (9, 9), (1, 1)))
    assert (y.sum(axis=2) >= 0).all()
    assert {rectangle(mask) for mask in y[:, 0] != 0} == {(4, 3)}


def test_the_gradient_passes_what_is_erased_where_asked() -> None:
    x = leaf()
    y = F.random_erase(x, 1, ste_fine_grained=False)
    y.forward()
    y.backward()
    assert (y.d != IMAGES).any()
    np.testing.assert_array_equal(x.g, np.ones_like(IMAGES))


def test_nan_does_not_come_back_through_what_is_erased() -> None:
    x = leaf(np.full((1, 1, 4, 4), np.nan))
    y = F.random_erase(x, 1, (1, 1), (1, 1), (5, 5))
    y.forward()
    y.backward(np.full(y.shape, np.nan))
    np.testing.assert_array_equal(y.d, np.full((1, 1, 4, 4), 5.0))
    np.testing.assert_array_equal(x.g, np.zeros((1, 1, 4, 4)))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"prob": 1.5}, "prob 1.5"),
        ({"n": 0}, "n 0"),
        ({"area_ratios": (0.4, 0.2)}, "area_ratios"),
        ({"aspect_ratios": (0, 1)}, "aspect_ratios"),
        ({"replacements": (1,)}, "replacements"),
    ],
)
def test_arguments_outside_their_range_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(OperatorError, match=text):
        F.random_erase(IMAGES, **given)


def test_images_of_other_than_three_axes_are_refused() -> None:
    with pytest.raises(ShapeError, match="three axes"):
        F.random_erase(IMAGES, base_axis=2)
