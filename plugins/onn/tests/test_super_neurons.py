"""Super neurons: kernels shifted by each connection's own offset."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, S, Variable
from nnl_core.errors import OperatorError, ShapeError
from nnl_onn.self_onn import self_operate
from nnl_onn.super_neurons import super_operate, super_operational


@pytest.fixture(autouse=True)
def own_parameters():
    with nnl.parameter_scope("", {}):
        yield


def drawn(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [Variable.from_numpy_array(rng.uniform(-1, 1, shape)) for shape in shapes]


def interpolated(plane, places):
    """Values of a plane at places with fractions, 0 outside of it."""
    value = np.zeros(places[0].shape)
    corners = np.meshgrid(*[(0, 1)] * plane.ndim)
    for corner in zip(*(part.ravel() for part in corners), strict=True):
        weight, index = np.ones(value.shape), []
        inside = np.ones(value.shape, bool)
        for place, up, length in zip(places, corner, plane.shape, strict=True):
            low = np.floor(place)
            weight = weight * (place - low if up else 1 - (place - low))
            at = (low + up).astype(int)
            inside &= (at >= 0) & (at < length)
            index.append(at.clip(0, length - 1))
        value += weight * inside * plane[tuple(index)]
    return value


def by_definition(x, w, shift, pad, stride, dilation, group):
    """Sum over connections, powers and taps of the input, interpolated at each shifted place."""
    maps, inner, order, *kernel = w.shape
    spatial = x.shape[2:]
    axes = range(len(kernel))
    counts = [(spatial[a] + 2 * pad - (kernel[a] - 1) * dilation - 1) // stride + 1 for a in axes]
    y = np.zeros((x.shape[0], maps, *counts))
    grids = np.meshgrid(*map(np.arange, counts), indexing="ij")
    for n, m, c, q in np.ndindex(x.shape[0], maps, inner, order):
        channel = m // (maps // group) * inner + c
        for tap in np.ndindex(*kernel):
            places = [grids[a] * stride + tap[a] * dilation - pad + shift[m, c, a] for a in axes]
            y[n, m] += w[(m, c, q, *tap)] * interpolated(x[n, channel] ** (q + 1), places)
    return y


@pytest.mark.parametrize(
    ("spatial", "options"),
    [
        ((8,), {"pad": 1, "stride": 1, "dilation": 2, "group": 1}),
        ((6, 5), {"pad": 1, "stride": 1, "dilation": 1, "group": 2}),
        ((7, 6), {"pad": 0, "stride": 2, "dilation": 1, "group": 1}),
        ((3, 4, 3), {"pad": 1, "stride": 1, "dilation": 1, "group": 2}),
    ],
)
def test_each_connection_reads_beside_its_kernel(spatial, options):
    inner = 2 // options["group"]
    x, w = drawn((1, 2, *spatial), (2, inner, 2, *(2,) * len(spatial)))
    shift = 2.5 * drawn((2, inner, len(spatial)), seed=1)[0].d
    y = super_operate(x, w, Variable.from_numpy_array(shift), 2.5, **options)
    np.testing.assert_allclose(y.d, by_definition(x.d, w.d, shift, **options), atol=1e-12)


def test_a_shift_of_nothing_changes_nothing():
    x, w = drawn((2, 3, 6, 5), (4, 3, 2, 3, 3))
    shift = Variable.from_numpy_array(np.zeros((4, 3, 2)))
    y = super_operate(x, w, shift, 2, pad="same", border="replicate")
    expected = self_operate(x, w, pad="same", border="replicate")
    np.testing.assert_allclose(y.d, expected.d, atol=1e-12)


def test_shifts_beyond_the_limit_are_cut_there():
    x, w = drawn((1, 1, 9), (1, 1, 1, 3))
    far, limit = (Variable.from_numpy_array(np.full((1, 1, 1), s)) for s in (7.0, 1.5))
    np.testing.assert_allclose(
        super_operate(x, w, far, 1.5).d, super_operate(x, w, limit, 1.5).d, atol=1e-12
    )


def slope(x, w, shift, factor, index, steps):
    ends = []
    for step in steps:
        moved = shift.copy()
        moved[index] += step
        y = super_operate(x, w, Variable.from_numpy_array(moved), 2, pad=1)
        ends.append(float((y.d * factor).sum()))
    return (ends[1] - ends[0]) / (steps[1] - steps[0])


@pytest.mark.parametrize(
    ("kind", "steps"), [("between elements", (-1e-6, 1e-6)), ("whole", (0.0, 1e-6))]
)
def test_the_gradient_of_shifts_is_the_slope(kind, steps):
    x, w, noise, factor = drawn((1, 2, 5, 6), (2, 2, 3, 3, 3), (2, 2, 2), (1, 2, 5, 6))
    shift = 1.8 * noise.d if kind != "whole" else np.round(noise.d)
    variable = Variable.from_numpy_array(shift, need_grad=True)
    y = F.sum(super_operate(x, w, variable, 2, pad=1) * factor)
    gradient = nnl.grad([y], [variable])[0].d
    slopes = np.empty(shift.shape)
    for index in np.ndindex(shift.shape):
        slopes[index] = slope(x, w, shift, factor.d, index, steps)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-5)


def test_a_layer_learns_where_to_look():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (8, 1, 24)).astype(np.float32)
    x = np.apply_along_axis(lambda row: np.convolve(row, np.ones(7) / 7, "same"), -1, x)
    target = np.zeros_like(x)
    target[..., :-2] = x[..., 2:]
    y = super_operational(
        Variable.from_numpy_array(x), 1, (1,), order=1, limit=3, bounded=False, with_bias=False,
        w_init=np.ones((1, 1, 1, 1)), shift_init=np.zeros((1, 1, 1)),
    )  # fmt: skip
    loss = F.mean(F.squared_error(y, Variable.from_numpy_array(target)))
    solver = S.Adam(0.1)
    solver.set_parameters(nnl.get_parameters())
    step = nnl.compile_step(loss, solver)
    for _ in range(100):
        step.run()
    raw = nnl.get_parameters()["super_operational/shift"].d.item()
    assert 3 * np.tanh(raw / 3) == pytest.approx(2, abs=0.1)


def test_backends_agree():
    x, w, shift = drawn((2, 3, 6, 5), (4, 3, 2, 3, 3), (4, 3, 2))
    given = [Variable.from_numpy_array(one.d.astype(np.float32)) for one in (x, w, shift)]
    results = []
    for backend in ("numpy", "native"):
        with nnl.backend_scope(backend):
            y = super_operate(*given, 1, pad=1)
            gradients = nnl.grad([F.sum(F.sin(y))], given)
            nnl.forward_all([y, *gradients])
            results.append([one.d.copy() for one in (y, *gradients)])
    for first, second in zip(*results, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)


def test_random_shifts_are_drawn_in_the_limit_and_not_trained():
    super_operational(Variable((1, 8, 9, 9)), 16, (3, 3), limit=1.5, shifts="random")
    assert "super_operational/shift" not in nnl.get_parameters()
    shift = nnl.get_parameters(grad_only=False)["super_operational/shift"]
    assert shift.shape == (16, 8, 2)
    assert 1.4 < np.abs(shift.d).max() <= 1.5


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_limit_that_cannot_be_is_refused(limit):
    x, w, shift = drawn((1, 1, 5), (1, 1, 1, 3), (1, 1, 1))
    with pytest.raises(OperatorError, match="super_operate: limit"):
        super_operate(x, w, shift, limit)


def test_shifts_of_another_shape_are_refused():
    x, w, shift = drawn((1, 1, 5), (1, 1, 1, 3), (1, 1, 2))
    with pytest.raises(ShapeError, match="super_operate: shifts"):
        super_operate(x, w, shift, 1)
