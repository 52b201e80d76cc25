"""Tests for operators that resample, warp and correlate pictures on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnl_core.errors import OperatorError
from nnl_core.graph.operator import Array, lookup
from nnl_core.operators.resampling import Resized, Rule

Compute = Callable[..., tuple[Array, ...]]


RULES = {
    "linear": Rule("linear"),
    "aligned": Rule("linear", "align_corners"),
    "nearest": Rule("nearest", "asymmetric", "floor"),
    "cubic": Rule("cubic"),
    "area": Rule("area"),
}
AXES = {
    "longer": (Resized(2, 17, 40), Resized(3, 13, 30)),
    "shorter": (Resized(2, 17, 5), Resized(3, 13, 4)),
    "one axis": (Resized(1, 3, 7),),
    "apart": (Resized(0, 2, 3), Resized(3, 13, 20)),
}


def reference(name: str, *arrays: Array, **attributes: Any) -> Array:
    """Return the meaning of a call, in float64."""
    wide = [array.astype(np.float64) for array in arrays]
    result: Array = lookup(name).reference(*wide, **attributes)
    return result


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES.keys())
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_pictures_change_their_size_and_gradients_come_back(
    compute: Compute, rule: Rule, axes: tuple[Resized, ...]
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 17, 13)).astype(np.float32)
    (y,) = compute("nnl::resize", x, axes=axes, rule=rule)
    target = reference("nnl::resize", x, axes=axes, rule=rule)
    np.testing.assert_allclose(y, target, rtol=1e-5, atol=1e-5)
    g = rng.normal(size=y.shape).astype(np.float32)
    (back,) = compute("nnl::resize_adjoint", g, axes=axes, rule=rule)
    target = reference("nnl::resize_adjoint", g, axes=axes, rule=rule)
    np.testing.assert_allclose(back, target, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lengths, places", [((9, 11), (20, 30)), ((4, 5, 6), (3, 7, 50))])
def test_points_read_pictures_and_write_their_gradients(
    compute: Compute, lengths: tuple[int, ...], places: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 5, *lengths)).astype(np.float32)
    points = rng.uniform(-2, 12, (2, *places, len(lengths))).astype(np.float32)
    options: dict[str, Any] = {
        "method": "linear", "padding": "zero", "cells": False, "orders": (0,) * len(lengths),
    }  # fmt: skip
    (y,) = compute("nnl::sample_points", x, points, **options)
    target = reference("nnl::sample_points", x, points, **options)
    np.testing.assert_allclose(y, target, rtol=1e-4, atol=1e-4)
    g = rng.normal(size=y.shape).astype(np.float32)
    (back,) = compute("nnl::sample_points_adjoint", g, points, shape=lengths, **options)
    target = reference("nnl::sample_points_adjoint", g, points, shape=lengths, **options)
    np.testing.assert_allclose(back, target, rtol=1e-4, atol=1e-4)


def test_what_is_not_finite_spoils_only_who_reads_it(compute: Compute) -> None:
    x = np.array([[[[np.inf, 1, 2, np.nan]]]], np.float32)
    points = np.array([[[1.5, 0], [1, 0], [2, 0], [0, 0], [np.nan, 0]]], np.float32)
    options: dict[str, Any] = {
        "method": "linear", "padding": "repeat", "cells": False, "orders": (0, 0),
    }  # fmt: skip
    (y,) = compute("nnl::sample_points", x, points, **options)
    np.testing.assert_array_equal(y[0, 0], [1.5, 1, 2, np.inf, np.nan])


REGIONS: dict[str, Any] = {
    "output_size": (3, 7), "spatial_scale": (0.5, 0.25), "sampling_ratio": 0,
}  # fmt: skip


def test_boxes_are_pooled_and_gradients_come_back(compute: Compute) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(3, 4, 20, 30)).astype(np.float32)
    corners = np.sort(rng.uniform(-4, 130, (20, 2, 2)), axis=1).reshape(20, 4)
    boxes = np.concatenate([rng.integers(0, 3, (20, 1)), corners], axis=1).astype(np.float32)
    (y,) = compute("nnl::roi_align", x, boxes, **REGIONS)
    target = lookup("nnl::roi_align").reference(x, boxes, **REGIONS)
    np.testing.assert_allclose(y, target, rtol=1e-4, atol=1e-5)
    g = rng.normal(size=y.shape).astype(np.float32)
    (back,) = compute("nnl::roi_align_adjoint", g, boxes, shape=x.shape, **REGIONS)
    target = lookup("nnl::roi_align_adjoint").reference(g, boxes, shape=x.shape, **REGIONS)
    np.testing.assert_allclose(back, target, rtol=1e-4, atol=1e-4)


BAD_BOXES = {
    "not finite": ([0, 0, 0, np.inf, 3], "a box is not finite"),
    "enormous": ([0, 0, 0, 1e12, 3], "too many points"),
    "of no picture": ([1, 0, 0, 2, 3], "not among the 1"),
}


@pytest.mark.parametrize("box, message", BAD_BOXES.values(), ids=BAD_BOXES.keys())
def test_bad_boxes_are_an_error(compute: Compute, box: list[float], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        compute("nnl::roi_align", np.ones((1, 1, 4, 4)), np.array([box]), **REGIONS)
