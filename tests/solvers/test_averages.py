"""Exponential moving averages of parameters."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import S
from nnl_core.errors import SolverError
from nnl_core.parameters import Parameter


def make(dtype=np.float32, decay=0.75):
    w = Parameter((2,), dtype=dtype)
    w.d, w.g = [0, 8], [1, 2]
    solver = S.Sgd(1.0)
    solver.set_parameters({"w": w})
    solver.keep_average(decay)
    return w, solver


def average(solver):
    return solver.get_states()["w"].pstate["average"]


def test_an_average_begins_as_the_parameter_and_follows_it():
    _, solver = make()
    np.testing.assert_array_equal(average(solver), [0, 8])
    solver.update()
    np.testing.assert_array_equal(average(solver), [-0.25, 8 - 0.5])
    solver.update()
    np.testing.assert_array_equal(
        average(solver), [0.75 * -0.25 + 0.25 * -2, 0.75 * 7.5 + 0.25 * 4]
    )


def test_averages_are_in_place_inside_a_block_and_the_parameters_after_it():
    w, solver = make()
    solver.update()
    before = w.d.copy()
    with solver.averaged():
        np.testing.assert_array_equal(w.d, [-0.25, 7.5])
        with pytest.raises(SolverError, match="averages are in place"):
            solver.update()
    np.testing.assert_array_equal(w.d, before)
    solver.update()


def test_parameters_come_back_after_an_error():
    w, solver = make()
    solver.update()
    before = w.d.copy()
    with pytest.raises(KeyError), solver.averaged():
        raise KeyError
    np.testing.assert_array_equal(w.d, before)


def test_half_precision_parameters_have_wider_averages():
    # The average moves by a step of 2^-12 that half precision does not know near 8.
    w, solver = make(np.float16, decay=1 - 2.0**-12)
    w.g = [0, 1]
    solver.update()
    assert average(solver).dtype == np.float32
    assert average(solver)[1] == 8 - 2.0**-12


def test_averages_are_saved_and_loaded_with_the_states(tmp_path):
    w, solver = make()
    solver.update()
    solver.save_states(tmp_path / "s.npz")
    expected = average(solver)
    other = S.Sgd(1.0)
    other.set_parameters({"w": w})
    with pytest.raises(SolverError, match="average"):
        other.load_states(tmp_path / "s.npz")
    other.keep_average(0.75)
    other.load_states(tmp_path / "s.npz")
    np.testing.assert_array_equal(average(other), expected)


def test_averages_begin_in_the_middle_of_training_and_end_there():
    w, solver = make(decay=None)
    solver.update()
    solver.keep_average(0.5)
    np.testing.assert_array_equal(average(solver), w.d)
    solver.update()
    np.testing.assert_array_equal(average(solver), [-1.5, 5])
    solver.keep_average(None)
    assert solver.get_states()["w"].pstate == {}
    assert solver.get_states()["w"].t == 2


def test_a_frozen_parameter_keeps_its_average():
    w, solver = make()
    solver.update()
    v = Parameter((1,))
    v.g = 1
    solver.set_parameters({"v": v}, reset=False)
    w.need_grad = False
    solver.update()
    np.testing.assert_array_equal(average(solver), [-0.25, 7.5])


def test_asking_for_averages_that_nobody_kept_is_an_error():
    _, solver = make(decay=None)
    with pytest.raises(SolverError, match="keep_average"), solver.averaged():
        pass


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_a_decay_without_meaning_is_an_error(decay):
    with pytest.raises(SolverError, match="decay="):
        make(decay=decay)
