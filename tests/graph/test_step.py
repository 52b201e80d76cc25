"""A compiled training step: the same numbers as its parts, and what it needs of memory."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, S, Variable, builtin
from nnl_core.errors import GraphError, SolverError

SOLVERS = [getattr(S, record.name) for record in builtin.SOLVERS]


def build(solver=S.Sgd, **options):
    nnl.clear_parameters()
    nnl.seed(7)
    x, t = Variable((16, 6)), Variable((16, 1), dtype="int64")
    h = F.relu(PF.batch_normalization(PF.affine(x, 12, name="a"), axes=(1,)))
    loss = F.mean(F.softmax_cross_entropy(PF.affine(h, 3, name="b"), t))
    rng = np.random.default_rng(0)
    x.d, t.d = rng.normal(size=(16, 6)), rng.integers(0, 3, size=(16, 1))
    rule = solver(**options)
    rule.set_parameters(nnl.get_parameters())
    return loss, rule


def values():
    return {name: p.d.copy() for name, p in nnl.get_parameters(grad_only=False).items()}


def assert_same(one, other, **tolerance):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], err_msg=name, **tolerance)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_step_equals_forward_backward_update(solver):
    loss, rule = build(solver)
    for _ in range(5):
        loss.forward(clear_no_need_grad=True)
        rule.zero_grad()
        loss.backward(clear_buffer=True)
        rule.update()
    by_hand, final = values(), float(loss.d)
    loss, rule = build(solver)
    step = nnl.compile_step(loss, rule)
    for _ in range(5):
        step.run()
    assert_same(by_hand, values(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(float(loss.d), final, rtol=1e-6)


@pytest.mark.parametrize("solver", [S.Momentum, S.Adam])
def test_a_split_step_equals_a_whole_one(solver):
    loss, rule = build(solver)
    step = nnl.compile_step(loss, rule, weight_decay=0.1, clip_grad_norm=0.2)
    for _ in range(4):
        step.run()
    whole = values()
    loss, rule = build(solver)
    step = nnl.compile_step(loss, rule, weight_decay=0.1, clip_grad_norm=0.2)
    for _ in range(4):
        step.compute_gradients()
        step.update()
    assert_same(whole, values(), rtol=1e-6)


def test_gradients_are_readable_after_a_step_and_do_not_accumulate():
    loss, rule = build()
    step = nnl.compile_step(loss, rule)
    rule.zero_grad()
    step.run()
    first = nnl.get_parameters()["a/affine/W"].g.copy()
    assert np.abs(first).max() > 0
    rule.set_learning_rate(0.0)
    step.run()
    step.run()
    loss.forward()
    rule.zero_grad()
    loss.backward()
    expected = nnl.get_parameters()["a/affine/W"].g.copy()
    rule.zero_grad()
    step.run()
    np.testing.assert_allclose(nnl.get_parameters()["a/affine/W"].g, expected, rtol=1e-5, atol=1e-7)


def test_changed_gradients_between_the_parts_are_used():
    loss, rule = build(S.Sgd, lr=1.0)
    step = nnl.compile_step(loss, rule)
    before = values()
    step.compute_gradients()
    rule.scale_grad(0.0)
    step.update()
    after = {n: v for n, v in values().items() if not n.endswith(("mean", "var"))}
    assert_same({n: before[n] for n in after}, after, rtol=0)


def test_clipping_scales_all_gradients_to_the_given_norm():
    loss, rule = build(S.Sgd, lr=1.0)
    before = values()
    nnl.compile_step(loss, rule, clip_grad_norm=1e-3).run()
    names = nnl.get_parameters().keys()
    moved = np.sqrt(sum(((values()[n] - before[n]) ** 2).sum() for n in names))
    np.testing.assert_allclose(moved, 1e-3, rtol=1e-3)


def test_running_statistics_advance_once_a_step():
    loss, rule = build()
    step = nnl.compile_step(loss, rule)
    rule.set_learning_rate(0.0)
    step.run()
    mean = nnl.get_parameters(grad_only=False)["bn/mean"].d.copy()
    step.run()
    again = nnl.get_parameters(grad_only=False)["bn/mean"].d
    np.testing.assert_allclose(again, mean + 0.9 * mean, rtol=1e-4, atol=1e-6)


def test_a_new_learning_rate_needs_no_new_program():
    loss, rule = build()
    step = nnl.compile_step(loss, rule)
    step.run()
    program = step._program("step")
    rule.set_learning_rate(0.5)
    step.run()
    assert step._program("step") is program


def test_a_new_batch_size_is_followed():
    nnl.clear_parameters()
    x = Variable((4, 3))
    loss = F.mean(PF.affine(x, 2) ** 2)
    rule = S.Sgd(0.1)
    rule.set_parameters(nnl.get_parameters())
    step = nnl.compile_step(loss, rule)
    step.run()
    x.reset_shape((7, 3), force=True)
    x.d = rows = np.arange(21).reshape(7, 3)
    weight, bias = (p.d.copy() for p in nnl.get_parameters().values())
    step.run()
    np.testing.assert_allclose(loss.d, np.mean((rows @ weight + bias) ** 2), rtol=1e-5)


def test_further_outputs_are_computed():
    loss, rule = build()
    logits = loss.parent.inputs[0].parent.inputs[0]
    rule.set_learning_rate(0.0)
    nnl.compile_step(loss, rule, outputs=(logits,)).run()
    computed = logits.d.copy()
    loss.forward()
    assert computed.any()
    np.testing.assert_allclose(computed, logits.d, rtol=1e-5, atol=1e-6)


def test_a_loss_without_the_solver_s_parameters_is_an_error():
    _, rule = build()
    with pytest.raises(GraphError, match="none of the solver's parameters"):
        nnl.compile_step(F.sum(Variable((3,))), rule).run()


def test_a_solver_without_parameters_is_an_error_that_says_so():
    loss, _ = build()
    with pytest.raises(SolverError, match="set_parameters"):
        nnl.compile_step(loss, S.Sgd()).run()


def test_memory_is_less_than_all_intermediates():
    loss, rule = build(S.Adam)
    memory = nnl.compile_step(loss, rule).memory
    assert 0 < memory.peak < memory.intermediates


def test_a_profile_covers_forward_backward_and_update():
    loss, rule = build(S.Adam)
    rows = nnl.compile_step(loss, rule).profile(1)
    operators = {part for row in rows for part in row.operator.split("+")}
    assert {"affine", "softmax_cross_entropy", "pack", "sqrt"} <= operators
    assert all(row.seconds >= 0 and row.bytes > 0 for row in rows)
    assert {row.computed_by for row in rows} <= {"numpy", nnl.current_backend().name}
    assert sum(row.multiply_adds for row in rows) > 16 * 6 * 12


def test_a_seed_fixes_a_run_bit_for_bit():
    def run():
        loss, rule = build(S.Adam)
        step = nnl.compile_step(loss, rule)
        for _ in range(3):
            step.run()
        return values()

    assert_same(run(), run(), rtol=0)
