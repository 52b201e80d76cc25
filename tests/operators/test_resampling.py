"""Arrays of other lengths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.cpu.kernels import resampling as kernels
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.variable import Variable
from nnl_core.operators.resampling import COORDINATES, Resized, Rule, resize_operator


def gradient(function: Any, x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The gradient of ``function`` at ``x`` with output weights ``g``."""
    leaf = Variable.from_numpy_array(x, need_grad=True)
    y = function(leaf)
    y.forward()
    y.backward(g)
    return np.array(leaf.g)


SIZES = st.integers(1, 9)


# Alignment ---------------------------------------------------------------------------------------


@given(length=SIZES, size=SIZES, mode=st.sampled_from(["linear", "nearest", "cubic"]))
@settings(deadline=None)
def test_aligned_corners_keep_the_outermost_elements(length: int, size: int, mode: str) -> None:
    x = np.random.default_rng(length).normal(size=length)
    y = F.interpolate(x, output_size=(size,), mode=mode, align_corners=True).d
    assert y[0] == x[0]
    if size > 1:
        np.testing.assert_allclose(y[-1], x[-1])


@pytest.mark.parametrize(
    ("alignment", "position"),
    [
        ({"align_corners": True}, lambda i, n, m: i * (n - 1) / (m - 1)),
        ({"half_pixel": True}, lambda i, n, m: (i + 0.5) * n / m - 0.5),
        ({}, lambda i, n, m: i * n / m),
    ],
    ids=["align_corners", "half_pixel", "neither"],
)
@given(length=SIZES, size=st.integers(2, 9))
@settings(deadline=None)
def test_linear_is_numpys_interp_at_the_positions_of_each_alignment(
    alignment: dict[str, bool], position: Any, length: int, size: int
) -> None:
    x = np.random.default_rng(size).normal(size=length)
    expected = np.interp(position(np.arange(size), length, size), np.arange(length), x)
    y = F.interpolate(x, output_size=(size,), **alignment)
    np.testing.assert_allclose(y.d, expected, atol=1e-12)


@given(length=SIZES, size=SIZES)
@settings(deadline=None)
def test_nearest_takes_the_element_at_or_before_the_position(length: int, size: int) -> None:
    x, i = np.arange(length), np.arange(size)
    plain = F.interpolate(x, output_size=(size,), mode="nearest")
    np.testing.assert_array_equal(plain.d, i * length // size)
    middle = F.interpolate(x, output_size=(size,), mode="nearest", half_pixel_for_nn=True)
    np.testing.assert_array_equal(middle.d, (2 * i + 1) * length // (2 * size))


def test_nearest_keeps_integers_and_other_modes_make_floats_of_them() -> None:
    x = np.array([1, 2])
    assert F.interpolate(x, output_size=(4,), mode="nearest").dtype == np.int64
    assert F.interpolate(x, output_size=(4,)).dtype == np.float32


def test_one_element_with_half_pixels_is_the_first_but_the_middle_where_cubic() -> None:
    x = np.arange(4.0)
    assert F.interpolate(x, output_size=(1,), half_pixel=True).d == 0
    assert F.interpolate(x, output_size=(1,), half_pixel=True, mode="cubic").d == 1.5


# What is made of the elements ---------------------------------------------------------------------


@given(
    lengths=st.tuples(SIZES, SIZES),
    sizes=st.tuples(SIZES, SIZES),
    mode=st.sampled_from(["linear", "nearest", "cubic", "area"]),
)
@settings(deadline=None)
def test_a_constant_stays_one(lengths: tuple[int, int], sizes: tuple[int, int], mode: str) -> None:
    y = F.interpolate(np.full(lengths, 3.0), output_size=sizes, mode=mode)
    np.testing.assert_allclose(y.d, np.full(sizes, 3.0))


def test_several_axes_have_the_product_of_the_weights() -> None:
    r, c, z = np.ogrid[:3, :4, :5]
    x = (r * c * z).astype(float)
    y = F.interpolate(x, output_size=(5, 7, 9), align_corners=True).d
    lines = [np.linspace(0, n - 1, m) for n, m in ((3, 5), (4, 7), (5, 9))]
    np.testing.assert_allclose(y, np.einsum("i,j,k->ijk", *lines), atol=1e-12)


@given(length=st.integers(1, 12), size=st.integers(1, 12))
@settings(deadline=None)
def test_area_is_the_mean_of_what_each_window_touches(length: int, size: int) -> None:
    x = np.random.default_rng(0).normal(size=length)
    means = [
        x[math.floor(i * length / size) : math.ceil((i + 1) * length / size)].mean()
        for i in range(size)
    ]
    y = F.interpolate(x, output_size=(size,), mode="area")
    np.testing.assert_allclose(y.d, means, atol=1e-12)


def test_cubic_with_a_half_reproduces_a_parabola_inside() -> None:
    # Keys' kernel is of third order for a = -1/2 alone.
    x = np.arange(8.0)
    y = F.onnx_resize(x**2, sizes=(22,), mode="cubic", cubic_coeff_a=-0.5,
                      coordinate_transformation_mode="align_corners").d  # fmt: skip
    at = np.arange(22) / 3
    inside = (at >= 1) & (at <= 6)
    np.testing.assert_allclose(y[inside], at[inside] ** 2, atol=1e-12)
    assert abs(y[1] - at[1] ** 2) > 1e-2


def test_cubic_in_the_middle_weighs_by_the_kernel_at_a_half_and_three_halves() -> None:
    x = np.eye(4)
    y = F.interpolate(x, output_size=(2,), mode="cubic", half_pixel=True).d
    # Positions 1/2 and 5/2; W(1/2) = 1/2 - a/8, W(3/2) = a/8, with a = -3/4.
    near, far = 0.5 + 0.75 / 8, -0.75 / 8
    np.testing.assert_allclose(y[:, 0], [near + far, near, far, 0], atol=1e-12)


def test_scale_gives_the_length_rounded_down_and_the_ratio_of_lengths_the_positions() -> None:
    x = np.arange(5.0)
    by_scale = F.interpolate(x, scale=(1.5,), half_pixel=True)
    assert by_scale.shape == (7,)
    by_size = F.interpolate(x, output_size=(7,), half_pixel=True)
    np.testing.assert_array_equal(by_scale.d, by_size.d)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic", "area"])
def test_channels_last_are_left_alone(mode: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 3))
    last = F.interpolate(x, output_size=(7, 3), mode=mode, channel_last=True).d
    first = F.interpolate(np.moveaxis(x, -1, 1), output_size=(7, 3), mode=mode).d
    np.testing.assert_allclose(last, np.moveaxis(first, 1, -1), atol=1e-12)


# Numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["linear", "cubic", "area", "nearest"])
def test_nan_spreads_to_what_reads_it_and_no_further(mode: str) -> None:
    x = np.arange(12.0)
    x[4] = np.nan
    y = F.interpolate(x, output_size=(24,), mode=mode, half_pixel=mode in ("linear", "cubic")).d
    touched = np.flatnonzero(np.isnan(y))
    assert set(touched) >= {8, 9}
    assert touched.min() >= 4
    assert touched.max() <= 13


def test_half_precision_sums_in_single() -> None:
    x = np.ones(4096, np.float16)
    y = F.interpolate(x, output_size=(1,), mode="area")
    assert (y.dtype, y.d[0]) == (np.float16, 1)


def test_an_empty_batch_stays_empty() -> None:
    assert F.interpolate(np.zeros((0, 3, 4, 4)), output_size=(2, 8)).d.shape == (0, 3, 2, 8)


@given(
    length=SIZES, size=SIZES, coordinates=st.sampled_from(COORDINATES),
    mode=st.sampled_from(["linear", "nearest", "cubic"]),
)  # fmt: skip
@settings(deadline=None)
def test_the_gradient_is_the_transposed_map(
    length: int, size: int, coordinates: str, mode: str
) -> None:
    def resized(x: Any) -> Variable:
        return F.onnx_resize(x, sizes=(1, size), mode=mode, roi=(0, -0.3, 1, 1.2),
                             coordinate_transformation_mode=coordinates)  # fmt: skip

    matrix = np.stack([resized(row[None]).d[0] for row in np.eye(length)])
    g = np.random.default_rng(0).normal(size=(1, size))
    np.testing.assert_allclose(gradient(resized, np.ones((1, length)), g), g @ matrix.T, atol=1e-12)


def test_what_no_result_is_made_of_has_gradient_zero_whatever_comes_in() -> None:
    dx = gradient(
        lambda x: F.interpolate(x, output_size=(2,), mode="nearest"),
        np.arange(4.0),
        np.array([np.inf, 1.0]),
    )
    np.testing.assert_array_equal(dx, [np.inf, 0, 1, 0])


def test_blocks_of_rows_give_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 100)
    x = np.random.default_rng(0).normal(size=(5, 3, 4, 2))
    axes = (Resized(2, 4, 7), Resized(3, 2, 1))
    y = kernels.resize(x, axes=axes, rule=Rule("linear"))
    np.testing.assert_array_equal(y, resize_operator.reference(x, axes=axes, rule=Rule("linear")))


# ONNX --------------------------------------------------------------------------------------------

PLANE = np.arange(1.0, 17).reshape(1, 1, 4, 4)


def test_onnx_cubic_as_its_documentation_shows_it() -> None:
    y = F.onnx_resize(PLANE, scales=(1, 1, 0.8, 0.8), mode="cubic").d[0, 0]
    np.testing.assert_allclose(
        y,
        [
            [1.47119141, 2.78125, 4.08251953],
            [6.71142578, 8.02148438, 9.32275391],
            [11.91650391, 13.2265625, 14.52783203],
        ],
        rtol=1e-6,
    )


def test_onnx_crop_reads_a_part_of_each_axis() -> None:
    y = F.onnx_resize(
        PLANE,
        roi=(0, 0, 0.4, 0.6, 1, 1, 0.6, 0.8),
        sizes=(1, 1, 3, 3),
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
    ).d[0, 0]
    rows, columns = np.linspace(1.2, 1.8, 3), np.linspace(1.8, 2.4, 3)
    np.testing.assert_allclose(y, 1 + 4 * rows[:, None] + columns)


def test_onnx_crop_outside_gives_the_extrapolation_value_and_no_gradient() -> None:
    def cropped(x: Any) -> Variable:
        return F.onnx_resize(x, roi=(0.5, 1.5), sizes=(3,), mode="linear", extrapolation_value=9,
                             coordinate_transformation_mode="tf_crop_and_resize")  # fmt: skip

    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(cropped(x).d, [2, 3, 9])
    np.testing.assert_allclose(gradient(cropped, x, np.ones(3)), [0, 1, 1])


def test_onnx_crop_of_an_axis_that_keeps_its_length_is_made() -> None:
    y = F.onnx_resize(np.arange(5.0), roi=(0, 0.5), sizes=(5,), mode="linear",
                      coordinate_transformation_mode="tf_crop_and_resize")  # fmt: skip
    np.testing.assert_allclose(y.d, [0, 0.5, 1, 1.5, 2])


def test_onnx_scales_of_a_crop_give_the_length_of_its_part() -> None:
    y = F.onnx_resize(np.arange(10.0), roi=(0.2, 0.7), scales=(2.0,),
                      coordinate_transformation_mode="tf_crop_and_resize")  # fmt: skip
    assert y.shape == (10,)


@pytest.mark.parametrize(
    ("coordinates", "positions"),
    [
        ("half_pixel", [0.25, 1.75]),
        ("pytorch_half_pixel", [0.25, 1.75]),
        ("align_corners", [0, 2]),
        ("asymmetric", [0, 1.5]),
        ("tf_half_pixel_for_nn", [0.75, 2.25]),
        ("tf_crop_and_resize", [0.5, 1.5]),
    ],
)
def test_onnx_positions(coordinates: str, positions: list[float]) -> None:
    x = np.array([0.0, 1.0, 2.0])
    y = F.onnx_resize(x, roi=(0.25, 0.75), sizes=(2,), mode="linear",
                      coordinate_transformation_mode=coordinates)  # fmt: skip
    np.testing.assert_allclose(y.d, np.clip(positions, 0, 2))


@pytest.mark.parametrize(
    ("nearest", "taken"),
    [
        ("round_prefer_floor", [0, 0, 1, 1, 2]),
        ("round_prefer_ceil", [0, 1, 1, 2, 2]),
        ("floor", [0, 0, 1, 1, 2]),
        ("ceil", [0, 1, 1, 2, 2]),
    ],
)
def test_onnx_rounds_positions_halfway_as_told(nearest: str, taken: list[int]) -> None:
    y = F.onnx_resize(np.arange(3), sizes=(5,), nearest_mode=nearest,
                      coordinate_transformation_mode="align_corners")  # fmt: skip
    np.testing.assert_array_equal(y.d, taken)


def test_onnx_uses_the_given_scale_for_positions_and_not_the_ratio_of_lengths() -> None:
    y = F.onnx_resize(np.arange(5.0), scales=(0.7,), mode="linear",
                      coordinate_transformation_mode="asymmetric")  # fmt: skip
    np.testing.assert_allclose(y.d, [0, 1 / 0.7, 2 / 0.7])


def test_onnx_excludes_what_is_outside_and_brings_the_weights_back_to_one() -> None:
    def resized(x: np.ndarray, exclude: bool) -> np.ndarray:
        return F.onnx_resize(x, sizes=(8,), mode="cubic", exclude_outside=exclude).d

    np.testing.assert_allclose(resized(np.ones(4), True), 1)
    x = np.array([1.0, 0, 0, 0])
    # Position -1/4: elements 0 and 1 are inside, with W(1/4) and W(5/4).
    w = [1.25 * 0.25**3 - 2.25 * 0.25**2 + 1, -0.75 * (1.25**3 - 5 * 1.25**2 + 8 * 1.25 - 4)]
    np.testing.assert_allclose(resized(x, True)[0], w[0] / (w[0] + w[1]))
    np.testing.assert_allclose(resized(x, False)[0], 1 - w[1])


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either scale or output_size"),
        ({"output_size": (2,), "mode": "lanczos"}, "mode 'lanczos' is not one of nearest, linear"),
        ({"output_size": (2,), "align_corners": True, "half_pixel": True}, "choose one of"),
        ({"output_size": (2,), "mode": "area", "half_pixel": True}, "takes no alignment"),
    ],
)
def test_interpolate_refuses_arguments_that_do_not_go_together(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(OperatorError, match=message):
        F.interpolate(np.zeros((1, 4)), **arguments)


def test_interpolate_refuses_more_axes_than_there_are() -> None:
    with pytest.raises(ShapeError, match=r"2 axes are to be resized, and x has shape \(4,\)"):
        F.interpolate(np.zeros(4), output_size=(2, 2))


def test_interpolate_refuses_to_make_something_of_nothing() -> None:
    with pytest.raises(ShapeError, match="axis 1 cannot be resized from 0 to 3"):
        F.interpolate(np.zeros((2, 0)), output_size=(3,))
    with pytest.raises(ShapeError, match="axis 0 cannot be resized from 4 to 0"):
        F.interpolate(np.zeros(4), scale=(0.1,))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, OperatorError, "either scales or sizes"),
        ({"sizes": (2,), "scales": (0.5,)}, OperatorError, "either scales or sizes"),
        ({"sizes": (2,), "mode": "area"}, OperatorError, "mode 'area' is not one of"),
        ({"sizes": (2,), "nearest_mode": "up"}, OperatorError, "nearest_mode 'up'"),
        ({"sizes": (2,), "coordinate_transformation_mode": "x"}, OperatorError, "mode 'x' is not"),
        ({"sizes": (2, 2)}, ShapeError, r"2 scales or sizes for x of shape \(4,\)"),
        (
            {"sizes": (2,), "coordinate_transformation_mode": "tf_crop_and_resize"},
            ShapeError,
            "roi must hold 2 numbers",
        ),
    ],
)
def test_onnx_resize_refuses_arguments_that_do_not_go_together(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        F.onnx_resize(np.zeros(4), **arguments)
