"""Parameters that learn at another rate, decay otherwise, or stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import S
from nnl_core.builtin import SOLVERS
from nnl_core.errors import SolverError
from nnl_core.parameters import Parameter


def make(*names):
    parameters = {name: Parameter((2,)) for name in names}
    for parameter in parameters.values():
        parameter.d, parameter.g = 1, 1
    return parameters


def updated(solver, parameters, groups):
    solver.set_parameters(parameters)
    solver.set_groups(groups)
    solver.update()
    return {name: float(parameter.d[0]) for name, parameter in parameters.items()}


def test_patterns_are_names_scopes_and_shell_patterns():
    names = ("conv/W", "conv/b", "convolution/W", "bn/b", "head")
    groups = [
        S.ParameterGroup("head", rate_factor=0.0),
        S.ParameterGroup("conv", rate_factor=0.5),
        S.ParameterGroup("*/b", rate_factor=0.25),
    ]
    assert updated(S.Sgd(1.0), make(*names), groups) == {
        "conv/W": 0.5,
        "conv/b": 0.5,  # the first group that it belongs to
        "convolution/W": 0.0,
        "bn/b": 0.75,
        "head": 1.0,
    }


def test_a_schedule_moves_the_rates_of_all_groups():
    parameters = make("a", "b")
    solver = S.Sgd(1.0)
    solver.set_parameters(parameters)
    solver.set_groups([S.ParameterGroup("b", rate_factor=0.5)])
    solver.set_learning_rate(0.5)
    solver.update()
    assert [float(p.d[0]) for p in parameters.values()] == [0.5, 0.75]


KINDS = [getattr(S, record.name) for record in SOLVERS]
RELATIVE = (S.AdamW, S.SgdW, S.AdaBound, S.AMSBound)  # to the rate that they were made with


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in RELATIVE], ids=lambda kind: kind.__name__
)
def test_a_rate_of_a_group_is_that_of_a_solver_of_its_own(kind):
    rng = np.random.default_rng(0)
    parameters, alone = make("a", "b"), make("b")
    solver = kind()
    solver.set_parameters(parameters)
    solver.set_groups([S.ParameterGroup("b", rate_factor=0.25)])
    other = kind(solver.learning_rate() * 0.25)
    other.set_parameters(alone)
    for _ in range(3):
        gradient = rng.normal(size=2)
        parameters["b"].g = alone["b"].g = gradient
        solver.update()
        other.update()
    assert np.array_equal(parameters["b"].d, alone["b"].d)


def test_decay_is_a_group_s_own():
    parameters = make("a", "b")
    solver = S.Sgd(1.0)
    solver.set_parameters(parameters)
    solver.set_groups([S.ParameterGroup("b", decay_factor=0.0)])
    solver.weight_decay(0.5)
    assert [float(p.g[0]) for p in parameters.values()] == [1.5, 1.0]


@pytest.mark.parametrize(("called", "expected"), [(False, [0.5, 0.75]), (True, [0.75, 0.875])])
def test_fused_decay_is_a_group_s_own(called, expected):
    parameters = make("a", "b")
    for parameter in parameters.values():
        parameter.g = 0
    solver = S.AdamW(1.0, wd=0.5)
    solver.set_parameters(parameters)
    solver.set_groups([S.ParameterGroup("b", decay_factor=0.5)])
    if called:
        solver.weight_decay(0.25)
    solver.update()
    assert [float(p.d[0]) for p in parameters.values()] == expected


def test_frozen_parameters_stay_and_count_no_update():
    parameters = make("a", "b")
    solver = S.Momentum(1.0)
    assert updated(solver, parameters, [S.ParameterGroup("b", frozen=True)]) == {"a": 0, "b": 1}
    assert {name: state.t for name, state in solver.get_states().items()} == {"a": 1, "b": 0}


def test_groups_may_change_and_states_go_on():
    parameters = make("a", "b")
    solver = S.Momentum(1.0, 0.5)
    updated(solver, parameters, [S.ParameterGroup("b", frozen=True)])
    solver.set_groups([])
    solver.update()
    # m is 1, then 1.5
    assert [float(p.d[0]) for p in parameters.values()] == [1 - 1 - 1.5, 0]


def test_all_frozen_is_an_error_that_says_so():
    with pytest.raises(SolverError, match="none of its 2 parameters needs a gradient and is not"):
        updated(S.Sgd(), make("a", "b"), [S.ParameterGroup("*", frozen=True)])


def test_a_group_of_no_parameter_is_an_error_with_a_hint():
    with pytest.raises(SolverError, match=r"'covn1'; did you mean 'conv1'"):
        updated(S.Sgd(), make("conv1/W"), [S.ParameterGroup("covn1")])


@pytest.mark.parametrize("name", ["rate_factor", "decay_factor"])
def test_negative_factors_are_errors(name):
    with pytest.raises(SolverError, match=f"{name}=-1"):
        S.ParameterGroup("a", **{name: -1.0})
