"""Options of compiled steps: parts of a step, clipping, groups and averages, split or whole."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, S, Variable
from nnl_core.builtin import SOLVERS
from nnl_core.errors import SolverError


class Fit:
    """A network with two layers, made anew with the same numbers each time."""

    def __init__(self, kind=S.Adam, rows=8, **options):
        nnl.clear_parameters()
        nnl.seed(3)
        self.x, self.t = Variable((rows, 5)), Variable((rows, 1), dtype="int64")
        hidden = F.tanh(PF.affine(self.x, 7, name="first"))
        logits = PF.affine(hidden, 3, name="second")
        self.loss = F.mean(F.softmax_cross_entropy(logits, self.t))
        rng = np.random.default_rng(0)
        self.rows, self.labels = rng.normal(size=(24, 5)), rng.integers(0, 3, size=(24, 1))
        self.solver = kind()
        self.solver.set_parameters(nnl.get_parameters())
        self.step = nnl.compile_step(self.loss, self.solver, **options)

    def feed(self, start):
        stop = start + self.x.shape[0]
        self.x.d, self.t.d = self.rows[start:stop], self.labels[start:stop]

    @property
    def values(self):
        return {name: p.d.copy() for name, p in self.solver.get_parameters().items()}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


GROUPS = [
    S.ParameterGroup("first", rate_factor=0.5, decay_factor=0.0),
    S.ParameterGroup("*/b", frozen=True),
]
OPTIONS = {
    "plain": {},
    "decay": {"weight_decay": 0.1},
    "clipped by value": {"clip_grad_value": 0.01},
    "clipped each": {"clip_grad_norm_each": 0.05},
    "clipped": {"clip_grad_norm": 0.05},
    "in parts": {"accumulate": 3, "weight_decay": 0.1},
    "scaled": {"loss_scale": (1024.0,), "clip_grad_norm": 0.05},
    "scaled parts": {"loss_scale": (1024.0,), "accumulate": 2, "clip_grad_value": 0.02},
}


def trained(split, kind=S.Adam, groups=(), average=None, loss_scale=None, **options):
    if loss_scale is not None:
        options["loss_scale"] = S.DynamicLossScale(*loss_scale)
    fit = Fit(kind, **options)
    fit.solver.set_groups(groups)
    fit.solver.keep_average(average)
    for number in range(6):
        fit.feed(8 * (number % 3))
        if split:
            fit.step.compute_gradients()
            if (number + 1) % options.get("accumulate", 1) == 0:
                fit.step.update()
        else:
            fit.step.run()
    states = fit.solver.get_states()
    arrays = {f"{n}/{k}": a for n, state in states.items() for k, a in state.pstate.items()}
    counts = {f"{n}/t": np.array(state.t) for n, state in states.items()}
    return fit.values | arrays | counts


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("groups", [(), GROUPS], ids=["alike", "grouped"])
def test_split_and_whole_steps_agree_bit_for_bit(options, groups):
    whole = trained(False, groups=groups, average=0.9, **options)
    assert_equal(whole, trained(True, groups=groups, average=0.9, **options))


@pytest.mark.parametrize("record", SOLVERS, ids=lambda record: record.name)
def test_split_and_whole_steps_of_all_solvers_agree_bit_for_bit(record):
    options = {"kind": getattr(S, record.name), "groups": GROUPS, "weight_decay": 0.1}
    options |= {"accumulate": 2, "loss_scale": (64.0,), "average": 0.5}
    assert_equal(trained(False, **options), trained(True, **options))


# Parts of a step ---------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_make_the_step_of_the_large_batch(parts):
    large = Fit(rows=24)
    large.feed(0)
    small = Fit(rows=24 // parts, accumulate=parts)
    expected, found = [], []
    Fit(rows=24)  # so that both begin with the same parameters
    for fit, values, count in ((large, expected, 1), (small, found, parts)):
        for number in range(3 * count):
            fit.feed((24 // parts) * (number % parts) if count > 1 else 0)
            updated = fit.step.run()
            assert updated == ((number + 1) % count == 0)
        values.append(fit.values)
    for name, value in expected[0].items():
        np.testing.assert_allclose(found[0][name], value, rtol=1e-4, atol=1e-6)
    assert all(state.t == 3 for state in small.solver.get_states().values())


def test_nothing_moves_before_the_last_part_and_gradients_are_the_mean():
    w, x = nnl.Parameter((1,)), Variable((1,))
    w.d = 1
    solver = S.Sgd(1.0)
    solver.set_parameters({"w": w})
    step = nnl.compile_step(F.sum(w * x), solver, accumulate=4)
    for value, total in zip((1, 2, 3), (0.25, 0.75, 1.5), strict=True):
        x.d = value
        assert not step.run()
        assert (float(w.d[0]), float(w.g[0])) == (1.0, total)
    x.d = 4
    assert step.run()
    assert float(w.d[0]) == 1 - 2.5
    x.d = 8
    step.run()
    assert float(w.g[0]) == 2.0


def test_parts_may_have_weights_and_end_early():
    w, x = nnl.Parameter((1,)), Variable((1,))
    w.d = 0
    solver = S.Sgd(1.0)
    solver.set_parameters({"w": w})
    step = nnl.compile_step(F.sum(w * x), solver, accumulate=4)
    x.d = 8
    step.run(0.75)
    x.d = 4
    assert step.run(0.25, update=True)
    assert float(w.d[0]) == -7.0


def test_small_parts_of_half_precision_gradients_are_not_lost():
    # 1 + 2^-11 is 1 in half precision, whose next number is 1 + 2^-10.
    w, x = nnl.Parameter((1,), dtype="float16"), Variable((1,), dtype="float16")
    w.d = 0
    solver = S.Sgd(2.0**10)
    solver.set_parameters({"w": w})
    step = nnl.compile_step(F.sum(w * x), solver, accumulate=4)
    for value in (4.0, 2.0**-9, 2.0**-9, -4.0):
        x.d = value
        step.run()
    assert float(w.d[0]) == -(2.0**10) * 2 * 2.0**-11


@pytest.mark.parametrize("parts", [0, -1, 1.5])
def test_numbers_of_parts_without_meaning_are_errors(parts):
    with pytest.raises(SolverError, match=f"accumulate={parts}"):
        Fit(accumulate=parts)


def test_a_weight_of_a_step_in_one_part_is_an_error():
    fit = Fit()
    with pytest.raises(SolverError, match="accumulate"):
        fit.step.run(0.5)


# Clipping ----------------------------------------------------------------------------------------


def moved(**options):
    """Return how far two parameters go by gradients (3, 4) and (12,) at a rate of 1."""
    parameters = {"a": nnl.Parameter((2,)), "b": nnl.Parameter((1,))}
    for parameter in parameters.values():
        parameter.d = 0
    gradients = [Variable.from_numpy_array(np.array(g, np.float32)) for g in ([3, 4], [12])]
    loss = F.sum(parameters["a"] * gradients[0]) + F.sum(parameters["b"] * gradients[1])
    solver = S.Sgd(1.0)
    solver.set_parameters(parameters)
    nnl.compile_step(loss, solver, **options).run()
    np.testing.assert_array_equal(parameters["a"].g, [3, 4])
    return [-p.d for p in parameters.values()]


@pytest.mark.parametrize(
    ("options", "a", "b"),
    [
        ({"clip_grad_value": 3.5}, [3, 3.5], [3.5]),
        ({"clip_grad_norm_each": 6}, [3, 4], [6]),
        ({"clip_grad_norm": 6.5}, [1.5, 2], [6]),
        ({"clip_grad_norm": 100}, [3, 4], [12]),
        ({"clip_grad_value": 4, "clip_grad_norm_each": 2.5}, [1.5, 2], [2.5]),
        ({"clip_grad_norm": 6.5, "loss_scale": S.DynamicLossScale(256.0)}, [1.5, 2], [6]),
    ],
    ids=str,
)
def test_gradients_are_clipped(options, a, b):
    found = moved(**options)
    np.testing.assert_allclose(found[0], a, rtol=1e-6)
    np.testing.assert_allclose(found[1], b, rtol=1e-6)


@pytest.mark.parametrize("name", ["clip_grad_norm", "clip_grad_norm_each", "clip_grad_value"])
@pytest.mark.parametrize("limit", [0, -1.0, float("nan")])
def test_limits_without_meaning_are_errors(name, limit):
    with pytest.raises(SolverError, match=f"{name}="):
        moved(**{name: limit})
