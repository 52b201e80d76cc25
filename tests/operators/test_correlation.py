"""Correlation of patches of two images."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core.errors import ShapeError


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_it_is_what_its_definition_says() -> None:
    x1, x2 = draw(2, 3, 6, 7), draw(2, 3, 6, 7, seed=1)
    around = [(0, 0), (0, 0), (9, 9), (9, 9)]
    wide1, wide2 = np.pad(x1, around), np.pad(x2, around)
    y = F.patch_correlation(
        x1, x2, patch=(2, 3), shift=(3, 1), patch_step=(2, 1), shift_step=(2, 1),
        padding=(1, 0, 2, 1),
    ).d  # fmt: skip
    rows, columns = range(-1, 6 - 1, 2), range(-2, 8 - 2)  # where patches begin
    assert y.shape == (2, 4, 3, len(rows), len(columns))
    for (s, dy), (t, dx) in itertools.product(enumerate((-3, -1, 1, 3)), enumerate((-1, 0, 1))):
        for (p, top), (q, left) in itertools.product(enumerate(rows), enumerate(columns)):
            first = wide1[:, :, 9 + top : 11 + top, 9 + left : 12 + left]
            second = wide2[:, :, 9 + top + dy : 11 + top + dy, 9 + left + dx : 12 + left + dx]
            np.testing.assert_allclose(
                y[:, s, t, p, q], (first * second).sum(axis=(1, 2, 3)), rtol=1e-12
            )


def test_padding_belongs_to_both_images() -> None:
    x = np.arange(1.0, 4).reshape(1, 1, 1, 3)
    y = F.patch_correlation(x, x, shift=(0, 1), padding=(0, 0, 1, 0)).d
    assert y[0, 0, :, 0].tolist() == [[0, 0, 2, 6], [0, 1, 4, 9], [0, 2, 6, 0]]


def test_channels_may_be_last_and_then_so_are_the_shifts() -> None:
    x1, x2 = draw(2, 3, 4, 5), draw(2, 3, 4, 5, seed=1)
    options: dict[str, Any] = {"patch": 2, "shift": (1, 2)}
    first = F.patch_correlation(x1, x2, **options).d
    last = F.patch_correlation(
        np.moveaxis(x1, 1, -1), np.moveaxis(x2, 1, -1), channel_last=True, **options
    ).d
    np.testing.assert_allclose(last, first.transpose(0, 3, 4, 1, 2), rtol=1e-12)


@pytest.mark.parametrize(
    ("one", "each"), [(1, (1, 1, 1, 1)), ((2, 1), (2, 2, 1, 1)), ((0, 0), (0, 0, 0, 0))]
)
def test_padding_may_be_given_in_short(one: Any, each: tuple[int, ...]) -> None:
    x1, x2 = draw(1, 2, 3, 4), draw(1, 2, 3, 4, seed=1)
    short, long = (F.patch_correlation(x1, x2, patch=2, padding=p).d for p in (one, each))
    np.testing.assert_array_equal(short, long)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x2": (1, 2, 4, 3)}, r"not \(1, 2, 3, 4\) and \(1, 2, 4, 3\)"),
        ({"patch": (5, 1)}, "a window that covers 5 does not fit in an axis of length 3"),
        ({"shift": -1}, r"shift \(-1, -1\) must hold 2 lengths of at least 0"),
        ({"padding": (1, 2, 3)}, r"padding \(1, 2, 3\) must hold 4 lengths"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], message: str) -> None:
    second = draw(*options.pop("x2", (1, 2, 3, 4)))
    with pytest.raises(ShapeError, match=message):
        F.patch_correlation(draw(1, 2, 3, 4), second, **options)
