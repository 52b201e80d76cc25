"""Windows as columns, and columns summed back."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core.errors import ShapeError


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape)


@pytest.mark.parametrize(
    ("shape", "kernel"), [((2, 3, 8), (3,)), ((2, 3, 6, 7), (3, 2)), ((1, 2, 4, 5, 4), (2, 3, 2))]
)
def test_a_convolution_is_a_product_with_the_columns(
    shape: tuple[int, ...], kernel: tuple[int, ...]
) -> None:
    count = len(kernel)
    x, weight = draw(*shape), draw(4, shape[1], *kernel)
    options = {"pad": (1,) * count, "stride": (2,) * count, "dilation": (2,) * count}
    convolved = F.convolution(x, weight, **options).d
    product = weight.reshape(4, -1) @ F.unfold(x, kernel, **options).d
    np.testing.assert_allclose(product.reshape(convolved.shape), convolved, rtol=1e-12)


def test_rows_are_channels_then_taps_and_columns_are_placements() -> None:
    x = np.arange(8.0).reshape(1, 2, 2, 2)
    assert F.unfold(x, (1, 2)).d.tolist() == [[[0, 2], [1, 3], [4, 6], [5, 7]]]


def test_fold_counts_the_windows_that_hold_an_element() -> None:
    ones = np.ones((1, 1, 3, 4))
    counts = F.fold(F.unfold(ones, 2), (3, 4), 2).d
    assert counts[0, 0].tolist() == [[1, 2, 2, 1], [2, 4, 4, 2], [1, 2, 2, 1]]


def test_one_number_stands_for_all_axes() -> None:
    x = draw(2, 3, 6, 7)
    one, each = F.unfold(x, 2, 1, 2, 3), F.unfold(x, (2, 2), (1, 1), (2, 2), (3, 3))
    np.testing.assert_array_equal(one.d, each.d)


def test_integers_become_floating() -> None:
    assert F.unfold(np.ones((1, 1, 3), int), 2).dtype == np.float32


def test_an_input_without_spatial_axes_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"no spatial axes.*\(batch, channels, \*spatial\)"):
        F.unfold(draw(2, 3), 2)


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"a multiple of 4, 6\): input shapes \(1, 4, 5\)"):
        F.fold(draw(1, 4, 5), (3, 4), 2)
    with pytest.raises(ShapeError, match="a multiple of 4, 6"):
        F.fold(draw(1, 3, 6), (3, 4), 2)
