"""Pooling, channels first and last: what loops over windows in Python find."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnl_core as nnl
from nnl_core import F, Variable


@st.composite
def cases(draw):
    """Draw data with ties and NaN, and how windows go over it."""
    axes = draw(st.integers(1, 2))
    kernel = [draw(st.integers(1, 4)) for _ in range(axes)]
    stride = draw(st.sampled_from([kernel, [1] * axes, [2] * axes, [3] * axes]))
    pad = [draw(st.tuples(st.integers(0, k - 1), st.integers(0, k - 1))) for k in kernel]
    spatial = [draw(st.integers(k, 3 * k + 5)) for k in kernel]
    shape = (draw(st.integers(0, 2)), draw(st.sampled_from([1, 3, 17])), *spatial)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.integers(-4, 4, shape).astype(draw(st.sampled_from(["float32", "float64"])))
    x[rng.random(shape) < draw(st.sampled_from([0.0, 0.05]))] = np.nan
    options = {
        "kernel": kernel,
        "stride": stride,
        "pad": pad,
        "ignore_border": draw(st.booleans()),
    }
    return x, options, draw(st.booleans())


def windows(x, places, kernel, stride, pad, **others):
    """Yield for each window its place, and the slices of the data in it."""
    for place in np.ndindex(*places):
        inside = []
        for axis, (o, k, s, (before, _)) in enumerate(
            zip(place, kernel, stride, pad, strict=True), start=2
        ):
            start = o * s - before
            inside.append(slice(max(0, start), min(x.shape[axis], start + k)))
        yield place, tuple(inside)


def variable(x, last):
    """Return a variable, whose channels lie last in memory if wanted, and what to differentiate."""
    if not last:
        leaf = Variable.from_numpy_array(x, need_grad=True)
        return leaf, leaf, lambda g: g
    leaf = Variable.from_numpy_array(np.ascontiguousarray(np.moveaxis(x, 1, -1)), need_grad=True)
    order = (0, x.ndim - 1, *range(1, x.ndim - 1))
    return leaf, F.transpose(leaf, order), lambda g: np.moveaxis(g, -1, 1)


def gradient(y, leaf, g):
    (dx,) = nnl.grad([y], [leaf], grad_outputs=[Variable.from_numpy_array(g)])
    dx.forward()
    return dx.d


def winner(part):
    """Return the place of the first NaN, else of the first maximum."""
    return np.unravel_index(np.argmax(part), part.shape)


checked = settings(max_examples=15, deadline=None)


@checked
@given(case=cases())
def test_the_largest_of_each_window_is_found_and_gets_the_gradient(case):
    x, options, last = case
    leaf, seen, arranged = variable(x, last)
    y = F.max_pooling(seen, **options)
    y.forward()
    g = np.random.default_rng(0).integers(-5, 5, y.shape).astype(x.dtype)
    expected, dx = np.empty_like(y.d), np.zeros_like(x)
    for place, inside in windows(x, y.shape[2:], **options):
        for n, c in itertools.product(*map(range, x.shape[:2])):
            part = x[(n, c, *inside)]
            expected[(n, c, *place)] = part[winner(part)]
            dx[(n, c, *inside)][winner(part)] += g[(n, c, *place)]
    np.testing.assert_array_equal(y.d, expected)
    np.testing.assert_array_equal(arranged(gradient(y, leaf, g)), dx)


@checked
@given(case=cases())
def test_windows_are_summed_and_share_the_gradient(case):
    x, options, last = case
    leaf, seen, arranged = variable(x, last)
    y = F.sum_pooling(seen, **options)
    y.forward()
    g = np.random.default_rng(0).integers(-5, 5, y.shape).astype(x.dtype)
    expected, dx = np.zeros_like(y.d), np.zeros_like(x)
    for place, inside in windows(x, y.shape[2:], **options):
        axes = tuple(range(2, x.ndim))
        expected[(..., *place)] = x[(..., *inside)].sum(axis=axes)
        dx[(..., *inside)] += g[(..., *place)].reshape(*g.shape[:2], *[1] * len(axes))
    np.testing.assert_array_equal(y.d, expected)
    np.testing.assert_array_equal(arranged(gradient(y, leaf, g)), dx)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("including", "corner"), [(True, 4 / 9), (False, 1.0)])
def test_padding_is_a_part_of_the_average_or_not(last, including, corner):
    _, seen, _ = variable(np.ones((2, 24, 30, 30), np.float32), last)
    y = F.average_pooling(seen, (3, 3), (1, 1), pad=(1, 1), including_pad=including)
    y.forward()
    np.testing.assert_allclose(y.d[:, :, ::29, ::29], corner, rtol=1e-6)
    np.testing.assert_allclose(y.d[:, :, 1:-1, 1:-1], 1.0, rtol=1e-6)


@pytest.mark.parametrize("last", [False, True])
def test_second_derivatives_go_to_the_same_places(last):
    x = np.random.default_rng(0).normal(size=(2, 20, 13, 13))
    _, seen, _ = variable(x, last)
    h = np.random.default_rng(1).normal(size=x.shape)
    g = Variable.from_numpy_array(np.zeros((2, 20, 6, 6)), need_grad=True)
    y = F.max_pooling(seen, (3, 3), (2, 2))
    (dx,) = nnl.grad([y], [seen], grad_outputs=[g])
    (taken,) = nnl.grad([dx], [g], grad_outputs=[Variable.from_numpy_array(h)])
    taken.forward()
    for place, inside in windows(x, (6, 6), (3, 3), (2, 2), ((0, 0), (0, 0))):
        for n, c in itertools.product(range(2), range(20)):
            where = winner(x[(n, c, *inside)])
            assert taken.d[(n, c, *place)] == h[(n, c, *inside)][where]
