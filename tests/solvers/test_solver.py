"""What all solvers do alike: parameters, groups, gradients and the update."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, S
from nnl_core.builtin import SOLVERS
from nnl_core.errors import SolverError, StaleValueError
from nnl_core.parameters import Parameter

ALL = [getattr(S, record.name) for record in SOLVERS]
RATES = {S.Adadelta: 50.0, S.Lars: 5.0, S.Adagrad: 1.0, S.Lion: 0.02}
ARGUMENTS = {S.AdamW: {"wd": 0}, S.SgdW: {"wd": 0}, S.Lion: {"beta2": 0.5}}


def parameter(values, gradient=None, dtype=np.float32):
    array = np.asarray(values, dtype)
    result = Parameter(array.shape, dtype=dtype)
    result.d = array
    result.g = np.ones_like(array) if gradient is None else gradient
    return result


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_quadratic_is_minimised(kind):
    w = parameter([3.0, -2.0, 0.5])
    target = nnl.Variable((3,))
    target.d = [1, 2, -1]
    loss = (w - target) * (w - target)
    solver = kind(RATES.get(kind, 0.05), **ARGUMENTS.get(kind, {}))
    solver.set_parameters({"w": w})
    for _ in range(300):
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
    np.testing.assert_allclose(w.d, target.d, atol=0.06)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_update_is_the_same_for_parameters_alone_and_together(kind):
    rng = np.random.default_rng(1)
    shapes = [(3, 5), (), (17,), (0, 2)]
    together = {str(i): parameter(rng.normal(size=s)) for i, s in enumerate(shapes)}
    alone = {name: parameter(p.d) for name, p in together.items()}
    solver = kind()
    solver.set_parameters(together)
    solvers = {name: kind() for name in alone}
    for name, single in solvers.items():
        single.set_parameters({name: alone[name]})
    for _ in range(3):
        for name, p in together.items():
            p.g = alone[name].g = rng.normal(size=p.shape)
            solvers[name].update()
        solver.update()
    for name, p in together.items():
        assert np.array_equal(p.d, alone[name].d)


def test_float64_parameters_are_updated_in_float64():
    w = parameter([1.0], [1.0], np.float64)
    solver = S.Sgd(1e-10)
    solver.set_parameters({"w": w})
    solver.update()
    assert w.d[0] == 1.0 - 1e-10


def test_half_precision_parameters_are_updated_in_single_precision():
    # Adam's eps of 1e-8, and (1 - beta2) g^2 of 1e-9, are zero in half precision.
    w = parameter([1.0], [1e-3], np.float16)
    solver = S.Adam(0.25)
    solver.set_parameters({"w": w})
    solver.update()
    assert w.dtype == np.float16
    np.testing.assert_allclose(w.d, 0.75, rtol=1e-3)


def test_parameters_of_several_dtypes_are_updated_by_one_solver():
    parameters = {"a": parameter([1.0]), "b": parameter([1.0], dtype=np.float64)}
    solver = S.Sgd(0.5)
    solver.set_parameters(parameters)
    solver.update()
    assert [float(p.d[0]) for p in parameters.values()] == [0.5, 0.5]
    assert len(solver.flat_groups) == 2


def test_a_backward_pass_after_an_update_is_refused_until_forward_runs_again():
    w = parameter([2.0])
    loss = w * w
    loss.forward()
    loss.backward()
    solver = S.Sgd(0.1)
    solver.set_parameters({"w": w})
    solver.update()
    with pytest.raises(StaleValueError):
        loss.backward()
    loss.forward()
    loss.backward()


def test_two_solvers_with_a_parameter_in_common_update_it_in_turn():
    a, b, c = parameter([1.0]), parameter([1.0]), parameter([1.0])
    first, second = S.Sgd(0.5), S.Momentum(0.25)
    first.set_parameters({"a": a, "b": b})
    second.set_parameters({"b": b, "c": c})
    first.update()
    second.update()
    first.update()
    assert [float(p.d[0]) for p in (a, b, c)] == [0.0, -0.25, 0.75]


def test_a_parameter_added_later_starts_its_own_count():
    old, new, fresh = parameter([1.0]), parameter([1.0], [0.3]), parameter([1.0], [0.3])
    solver = S.Adam(0.1)
    solver.set_parameters({"old": old})
    solver.update()
    solver.update()
    solver.set_parameters({"new": new}, reset=False)
    solver.update()
    other = S.Adam(0.1)
    other.set_parameters({"fresh": fresh})
    other.update()
    assert np.array_equal(new.d, fresh.d)
    assert {name: state.t for name, state in solver.get_states().items()} == {"old": 3, "new": 1}


def test_reset_forgets_states_and_retain_state_keeps_them():
    w = parameter([1.0])
    solver = S.Momentum(0.1)
    solver.set_parameters({"w": w})
    solver.update()
    momentum = solver.get_states()["w"].pstate["m"]
    solver.set_parameters({"w": w}, reset=False, retain_state=True)
    assert np.array_equal(solver.get_states()["w"].pstate["m"], momentum)
    solver.set_parameters({"w": w}, reset=False)
    assert solver.get_states()["w"].t == 0
    solver.update()
    solver.set_parameters({"w": w})
    assert solver.get_states()["w"].t == 0


def test_a_frozen_parameter_is_left_alone_and_keeps_its_state():
    a, b = parameter([1.0]), parameter([1.0])
    solver = S.Momentum(0.5, 0.5)
    solver.set_parameters({"a": a, "b": b})
    solver.update()
    a.need_grad = False
    solver.update()
    assert float(a.d[0]) == 0.5
    a.need_grad = True
    solver.update()
    # m = 0.5 after the first update, 0.75 after the second of a, 0.875 after the third of b
    assert float(a.d[0]) == -0.25
    assert float(b.d[0]) == 1 - 0.5 - 0.75 - 0.875


def test_removed_parameters_are_left_alone():
    a, b = parameter([1.0]), parameter([1.0])
    solver = S.Sgd(0.5)
    solver.set_parameters({"a": a, "b": b})
    solver.remove_parameters(["a"])
    solver.update()
    assert (float(a.d[0]), float(b.d[0])) == (1.0, 0.5)
    assert list(solver.get_parameters()) == ["b"]
    with pytest.raises(SolverError, match="no parameter 'a'"):
        solver.remove_parameters(["a"])


def test_groups_are_the_same_objects_from_step_to_step():
    solver = S.Adam()
    solver.set_parameters({"w": parameter([1.0])})
    groups = solver.flat_groups
    data = groups[0].data
    solver.update()
    assert solver.flat_groups is groups
    assert groups[0].data is data


def test_setting_the_learning_rate_counts_from_the_next_update():
    w = parameter([1.0])
    solver = S.Sgd(0.5)
    solver.set_parameters({"w": w})
    solver.update()
    solver.set_learning_rate(0.25)
    solver.update()
    assert float(w.d[0]) == 0.25
    assert solver.learning_rate() == 0.25


def test_decoupled_decay_follows_the_learning_rate_schedule():
    w = parameter([1.0], [0.0])
    solver = S.AdamW(0.1, wd=0.5)
    solver.set_parameters({"w": w})
    solver.set_learning_rate(0.05)
    solver.update()
    assert float(w.d[0]) == 0.75


def test_what_is_not_finite_is_used_as_it_is():
    w = parameter([1.0, 1.0], [np.nan, 1.0])
    solver = S.Sgd(0.5)
    solver.set_parameters({"w": w})
    solver.update()
    np.testing.assert_array_equal(w.d, [np.nan, 0.5])


def test_a_released_gradient_stops_the_update():
    w = parameter([1.0])
    solver = S.Sgd()
    solver.set_parameters({"w": w})
    w.grad.clear()
    with pytest.raises(nnl.NnlError, match="released"):
        solver.update()


def test_a_rule_with_norms_sees_one_parameter_at_a_time():
    class NormalisedSgd(S.Solver):
        per_parameter = True
        state_names = ("sum",)

        def rule(self, parameter, gradient, states, scalars):
            norm = F.sqrt(F.sum(gradient * gradient))
            total = states["sum"] + norm
            return parameter - scalars["rate"] * gradient / norm, {"sum": total}

    a, b = parameter([1.0, 1.0], [3.0, 4.0]), parameter([[1.0]], [[2.0]])
    solver = NormalisedSgd(1.0)
    solver.set_parameters({"a": a, "b": b})
    solver.update()
    np.testing.assert_allclose(a.d, [0.4, 0.2], rtol=1e-6)
    np.testing.assert_allclose(b.d, [[0.0]], atol=1e-6)
    np.testing.assert_allclose(solver.get_states()["a"].pstate["sum"], [5, 5], rtol=1e-6)


# Errors ------------------------------------------------------------------------------------------


def test_an_update_without_parameters_is_an_error():
    with pytest.raises(SolverError, match="call set_parameters"):
        S.Sgd().update()


def test_an_update_with_frozen_parameters_alone_is_an_error():
    solver = S.Sgd()
    solver.set_parameters({"w": Parameter((1,), need_grad=False)})
    with pytest.raises(SolverError, match="none of its 1 parameters"):
        solver.update()


def test_integer_parameters_are_an_error():
    with pytest.raises(SolverError, match="'w' is int64"):
        S.Sgd().set_parameters({"w": Parameter((1,), dtype=np.int64)})


def test_a_parameter_under_two_names_is_an_error():
    w = parameter([1.0])
    with pytest.raises(SolverError, match="'a' and 'b' share"):
        S.Sgd().set_parameters({"a": w, "b": w.get_unlinked_variable()})


def test_something_that_is_no_variable_is_an_error():
    with pytest.raises(SolverError, match="'w' is a ndarray"):
        S.Sgd().set_parameters({"w": np.zeros(2)})


def test_parameters_without_names_are_an_error():
    with pytest.raises(SolverError, match=r"such as get_parameters\(\), not a list"):
        S.Sgd().set_parameters([parameter([1.0])])


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: S.Sgd(-1), "learning rate=-1"),
        (lambda: S.Sgd(float("nan")), "learning rate=nan"),
        (lambda: S.Momentum(momentum=1.0), "momentum=1.0"),
        (lambda: S.Adam(beta2=1.5), "beta2=1.5"),
        (lambda: S.RMSprop(eps=-1e-8), "eps=-1e-08"),
        (lambda: S.Adam(alpha="0.1"), "learning rate='0.1' is not a number"),
    ],
)
def test_numbers_without_meaning_are_errors(make, named):
    with pytest.raises(SolverError, match=named):
        make()


def test_a_parameter_that_changed_its_shape_is_an_error_where_it_has_a_state():
    w = parameter([1.0])
    solver = S.Momentum()
    solver.set_parameters({"w": w})
    solver.update()
    w.reset_shape((3,), force=True)
    with pytest.raises(SolverError, match=r"\(1,\).*\(3,\)"):
        solver.update()


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_solver_is_made_again_from_what_it_tells(kind):
    solver = kind()
    solver.set_learning_rate(0.25)
    assert kind(**solver.info).info == solver.info
    assert repr(solver).startswith(f"{kind.__name__}({kind.rate_name}=0.25")


@pytest.mark.parametrize("kind", [*ALL, S.DynamicLossScale], ids=lambda kind: kind.__name__)
def test_a_page_explains_each_argument_and_names_counterparts(kind):
    page = inspect.cleandoc(kind.__doc__)
    arguments = page.partition("Args:\n")[2].partition("\n\n")[0]
    explained = re.findall(r"^    (\w+): ", arguments, re.MULTILINE)
    assert explained == list(inspect.signature(kind).parameters)
    counterparts = page.partition("Elsewhere:\n")[2].splitlines()
    assert [line.split(":")[0].strip(" -") for line in counterparts] == [
        "nnabla",
        "PyTorch",
        "ONNX",
    ]


def test_info_tells_the_arguments():
    solver = S.Adam(0.5)
    solver.set_learning_rate(0.25)
    assert solver.info == {"alpha": 0.25, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    assert solver.name == "Adam"


@pytest.mark.parametrize(
    ("solver", "given", "hint"),
    [
        (S.Adam, "lr", "its learning rate is 'alpha'"),
        (S.Sgd, "learning_rate", "its learning rate is 'lr'"),
        (S.Adam, "beta3", "did you mean 'beta"),
    ],
)
def test_an_argument_that_a_solver_does_not_have_is_told_from_what_it_has(solver, given, hint):
    with pytest.raises(TypeError, match=f"{solver.__name__} has no argument '{given}'; {hint}"):
        solver(**{given: 0.1})
