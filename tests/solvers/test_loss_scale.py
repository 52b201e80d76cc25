"""Dynamic loss scaling: small gradients survive, steps that overflow are skipped."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, S, Variable
from nnl_core.errors import SolverError


def build(solver, dtype="float32", **options):
    """Return a weight, the factor that is its gradient, and a step that computes in float16."""
    w, x = nnl.Parameter((2,), dtype=dtype), Variable((2,), dtype="float16")
    w.d, x.d = 1, 1
    solver.set_parameters({"w": w})
    loss = F.sum(F.cast(F.cast(w, "float16") * x, "float32"))
    return w, x, nnl.compile_step(loss, solver, **options)


def plain(w, rate=1.0):
    solver = S.Sgd(rate)
    solver.set_parameters({"w": w})
    return solver


def tiny(w):
    """Return a loss whose gradient, 2^-30, is zero in half precision unless it is scaled."""
    half = F.cast(w, "float16") * 2.0**-15
    return F.sum(F.cast(half, "float32") * 2.0**-15)


def test_without_a_scale_a_small_gradient_is_lost():
    w = nnl.Parameter((2,))
    w.d = 1
    nnl.compile_step(tiny(w), plain(w, 2.0**29)).run()
    np.testing.assert_array_equal(w.d, [1, 1])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
def test_a_scale_saves_small_gradients(dtype, split):
    w = nnl.Parameter((2,), dtype=dtype)
    w.d = 1
    step = nnl.compile_step(tiny(w), plain(w, 2.0**29), loss_scale=S.DynamicLossScale(2.0**15))
    if split:
        step.compute_gradients()
        assert step.update()
    else:
        assert step.run()
    np.testing.assert_array_equal(w.d, [0.5, 0.5])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
def test_a_step_that_overflows_changes_nothing_and_halves_the_scale(dtype, split):
    scale = S.DynamicLossScale(2.0**15)
    solver = S.Momentum(2.0**-10, 0.5)
    solver.keep_average(0.5)
    w, x, step = build(solver, dtype, loss_scale=scale)
    x.d = [128, 1]
    for halvings in range(1, 8):
        if split:
            step.compute_gradients()
            assert not step.update()
        else:
            assert not step.run()
        np.testing.assert_array_equal(w.d, [1, 1])
        state = solver.get_states()["w"]
        assert state.t == 0
        assert not state.pstate["m"].any()
        np.testing.assert_array_equal(state.pstate["average"], [1, 1])
        assert (scale.scale, scale.skipped) == (2.0 ** (15 - halvings), halvings)
    assert step.run()  # 128 * 256 fits
    np.testing.assert_array_equal(w.g, [128, 1])
    np.testing.assert_array_equal(w.d, [1 - 0.125, 1 - 2.0**-10])
    assert solver.get_states()["w"].t == 1


def test_a_skipped_update_does_not_count_for_the_bias_correction():
    scale = S.DynamicLossScale(2.0**10)
    w, x, step = build(S.Adam(0.25), loss_scale=scale)
    x.d = [np.inf, 1]
    assert not step.run()
    x.d = [1, 1]
    assert step.run()
    np.testing.assert_allclose(w.d, 0.75, rtol=1e-5)  # Adam's first step is as long as its rate


def test_one_part_that_overflows_skips_the_whole_step():
    scale = S.DynamicLossScale(2.0**10)
    w, x, step = build(S.Sgd(0.5), accumulate=2, loss_scale=scale)
    x.d = 200
    assert not step.run()
    assert scale.skipped == 0
    x.d = 1
    assert not step.run()
    assert (scale.scale, scale.skipped) == (2.0**9, 1)
    assert not step.run()
    assert step.run()
    np.testing.assert_array_equal(w.d, [0.5, 0.5])


def test_one_group_that_overflows_holds_all_back():
    a, b = nnl.Parameter((1,)), nnl.Parameter((1,), dtype="float64")
    a.d, b.d = 1, 1
    x = Variable((1,), dtype="float16")
    x.d = 64
    solver = S.Sgd(0.5)
    solver.set_parameters({"a": a, "b": b})
    loss = F.sum(F.cast(F.cast(a, "float16") * x, "float64") + b)
    step = nnl.compile_step(loss, solver, loss_scale=S.DynamicLossScale(2.0**10))
    assert not step.run()
    assert (float(a.d[0]), float(b.d[0])) == (1, 1)
    assert step.run()
    assert (float(a.d[0]), float(b.d[0])) == (-31, 0.5)


def test_the_scale_grows_after_updates_in_a_row():
    scale = S.DynamicLossScale(8.0, factor=4.0, interval=3)
    for finite, expected in [
        *((True, 8.0), (True, 8.0), (True, 32.0)),
        *((True, 32.0), (False, 8.0)),
        *((True, 8.0), (True, 8.0), (True, 32.0)),
    ]:
        scale.update(finite)
        assert scale.scale == expected


def test_gradients_that_are_never_finite_end_in_an_error():
    w, x, step = build(S.Sgd(0.5), loss_scale=S.DynamicLossScale(1.0))
    x.d = np.nan
    with pytest.raises(SolverError, match="not finite even with a loss scale of"):
        for _ in range(100):
            step.run()
    np.testing.assert_array_equal(w.d, [1, 1])


def test_a_scale_goes_on_from_its_state():
    one, other = S.DynamicLossScale(8.0, interval=3), S.DynamicLossScale(2.0, interval=3)
    for finite in (False, True, True):
        one.update(finite)
    other.set_state(one.get_state())
    other.update(True)
    assert (other.scale, other.skipped) == (8.0, 1)


def test_gradients_by_hand_are_scaled_and_unscaled():
    w = nnl.Parameter((2,))
    w.d = 1
    solver, scale = plain(w, 2.0**29), S.DynamicLossScale(2.0**15)
    loss = tiny(w)
    loss.forward()
    solver.zero_grad()
    loss.backward(scale.scale)
    solver.scale_grad(1 / scale.scale)
    assert not solver.check_inf_or_nan_grad()
    solver.update()
    np.testing.assert_array_equal(w.d, [0.5, 0.5])


@pytest.mark.parametrize(
    "arguments",
    [{"scale": 0.0}, {"scale": float("inf")}, {"factor": 1.0}, {"interval": 0}],
    ids=str,
)
def test_numbers_without_meaning_are_errors(arguments):
    with pytest.raises(SolverError, match=next(iter(arguments))):
        S.DynamicLossScale(**arguments)
