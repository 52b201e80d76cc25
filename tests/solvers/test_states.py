"""States of solvers: getting, setting, saving, loading."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import S
from nnl_core.builtin import SOLVERS
from nnl_core.errors import FileError, SolverError
from nnl_core.parameters import Parameter
from nnl_core.solvers import SolverState

KINDS = [getattr(S, record.name) for record in SOLVERS]


def make():
    return {"net/W": Parameter((2, 3)), "net/b": Parameter((3,))}


def train(solver, parameters, steps, rng):
    for _ in range(steps):
        for parameter in parameters.values():
            parameter.g = rng.normal(size=parameter.shape)
        solver.update()


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_training_goes_on_from_saved_states_as_if_never_stopped(kind, suffix, tmp_path):
    whole, stopped = make(), make()
    solver = kind()
    solver.set_parameters(whole)
    train(solver, whole, 5, np.random.default_rng(0))

    rng = np.random.default_rng(0)
    first = kind()
    first.set_parameters(stopped)
    train(first, stopped, 2, rng)
    first.save_states(tmp_path / f"states.{suffix}")
    second = kind()
    second.set_parameters(stopped)
    second.load_states(tmp_path / f"states.{suffix}")
    train(second, stopped, 3, rng)
    for name, parameter in whole.items():
        assert np.array_equal(parameter.d, stopped[name].d)


def test_states_are_copies():
    parameters = make()
    solver = S.Momentum()
    solver.set_parameters(parameters)
    train(solver, parameters, 1, np.random.default_rng(0))
    state = solver.get_states()["net/b"].pstate["m"]
    before = state.copy()
    train(solver, parameters, 1, np.random.default_rng(1))
    assert np.array_equal(state, before)


def test_a_solver_that_never_updated_has_zero_states():
    solver = S.Adam()
    solver.set_parameters(make())
    state = solver.get_states()["net/W"]
    assert state.t == 0
    assert {name: array.shape for name, array in state.pstate.items()} == {
        "mean": (2, 3),
        "var": (2, 3),
    }


@pytest.mark.parametrize(
    ("name", "state", "message"),
    [
        ("other", SolverState(1, {"m": np.zeros(3)}), "no parameter 'other'"),
        ("net/b", SolverState(1, {"v": np.zeros(3)}), r"\['v'\] where it needs \['m'\]"),
        ("net/b", SolverState(1, {"m": np.zeros(4)}), r"shape \(4,\)"),
    ],
)
def test_states_that_do_not_fit_change_nothing(name, state, message):
    solver = S.Momentum()
    solver.set_parameters(make())
    good = SolverState(7, {"m": np.ones((2, 3))})
    with pytest.raises(SolverError, match=message):
        solver.set_states({"net/W": good, name: state})
    assert solver.get_states()["net/W"].t == 0


def test_states_of_another_solver_are_an_error_naming_both(tmp_path):
    solver = S.Momentum()
    solver.set_parameters(make())
    solver.save_states(tmp_path / "s.npz")
    other = S.Adam()
    other.set_parameters(make())
    with pytest.raises(SolverError, match="'Momentum', not of 'Adam'"):
        other.load_states(tmp_path / "s.npz")


def test_parameters_are_no_states(tmp_path):
    from nnl_core.parameters import save_parameters

    save_parameters(tmp_path / "p.npz", make())
    solver = S.Sgd()
    solver.set_parameters(make())
    with pytest.raises((SolverError, FileError), match=r"p\.npz"):
        solver.load_states(tmp_path / "p.npz")
