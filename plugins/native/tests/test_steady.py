"""What follows from parameters alone is computed once, and again when they change."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, S, Variable
from nnl_native import onednn
from nnl_native.program import NativeProgram

pytestmark = pytest.mark.skipif(
    onednn.problem() is not None, reason="weights are brought to layouts of oneDNN"
)


@pytest.fixture(autouse=True)
def scope():
    with nnl.parameter_scope("", {}):
        yield


@pytest.fixture
def prepared(monkeypatch):
    """Weak references to all that programs prepare."""
    found = []
    prepare = NativeProgram.prepare

    def counted(program, leaves):
        result = prepare(program, leaves)
        found.append(weakref.ref(result))
        return result

    monkeypatch.setattr(NativeProgram, "prepare", counted)
    return found


def network(seed, name="net"):
    generator = np.random.default_rng(seed)
    x = Variable.from_numpy_array(generator.normal(size=(2, 3, 12, 12)).astype(np.float32))
    with nnl.parameter_scope(name):
        y = PF.convolution(x, 16, (3, 3), name="a")
        y = PF.affine(PF.convolution(F.relu(y), 16, (3, 3), name="b"), 4)
        for parameter in nnl.get_parameters().values():
            parameter.d = generator.normal(size=parameter.shape)
    return x, y


def on_numpy(y):
    with nnl.backend_scope("numpy"):
        y.forward(clear_buffer=True)
    return y.d.copy()


def on_native(y):
    y.forward(clear_buffer=True)
    return y.d.copy()


def program_of(y):
    y.forward(clear_buffer=True)
    (plan,) = [plan for _, plan in y._plans.values() if isinstance(plan.program, NativeProgram)]
    return plan.program


def assert_same(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_runs_on_other_inputs_prepare_nothing_again(prepared):
    x, y = network(0)
    for value in (1, 2, 3):
        x.d = np.random.default_rng(value).normal(size=x.shape)
        assert_same(on_native(y), on_numpy(y))
    assert len(prepared) == 1


def test_a_parameter_that_changed_is_seen(prepared):
    _, y = network(0)
    on_native(y)
    nnl.get_parameters()["net/b/conv/W"].d[3] *= -2
    assert_same(on_native(y), on_numpy(y))
    assert len(prepared) == 2


def test_memory_of_what_is_out_of_date_is_used_again(prepared):
    _, y = network(0)
    on_native(y)
    nnl.get_parameters()["net/b/conv/W"].d *= 2
    before = prepared[0]()._memory[0].ctypes.data
    on_native(y)
    assert prepared[0]() is None
    assert prepared[1]()._memory[0].ctypes.data == before


def test_models_that_share_a_program_do_not_disturb_each_other(prepared):
    (_, one), (_, other) = network(1, "one"), network(2, "other")
    assert program_of(one) is program_of(other)
    wanted = on_numpy(one), on_numpy(other)
    for _ in range(3):
        assert_same(on_native(one), wanted[0])
        assert_same(on_native(other), wanted[1])
    assert len(prepared) == 2


def test_threads_may_run_models_that_share_a_program_at_once():
    models = [network(seed, f"net{seed}")[1] for seed in range(4)]
    wanted = [on_numpy(y) for y in models]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            found = list(pool.map(on_native, models))
            for one, right in zip(found, wanted, strict=True):
                assert_same(one, right)


def test_what_was_prepared_ends_with_its_model(prepared):
    _, y = network(0)
    on_native(y)
    del y, _
    gc.collect()
    assert prepared[0]() is None


def test_the_report_counts_what_is_kept():
    _, y = network(0)
    weights = [p.data for n, p in nnl.get_parameters().items() if n.endswith("conv/W")]
    assert program_of(y).memory.prepared >= sum(w.spec.nbytes for w in weights)


def test_what_is_much_larger_than_its_parameter_is_not_kept():
    w = nnl.Parameter((1000, 1)).apply(d=1)
    y = F.sum(F.matmul(F.broadcast_to(w, (1000, 1000)), Variable((1000, 1)).apply(d=2)))
    assert on_native(y) == 2e6
    assert program_of(y).memory.prepared < 1 << 17


def test_an_asked_for_value_that_follows_from_parameters_alone_is_written_in_each_run():
    w = nnl.Parameter((2, 3)).apply(d=[[1, 2, 3], [4, 5, 6]])
    y = F.transpose(w, (1, 0)) + 1
    for _ in range(2):
        y.d = 0
        y.forward(clear_buffer=True)
        np.testing.assert_array_equal(y.d, [[2, 5], [3, 6], [4, 7]])


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_training_by_separate_passes_sees_each_update(backend):
    """The losses fall as those of `compile_step`, whose parameters are never steady."""

    def losses(step_of):
        with nnl.parameter_scope("", {}):
            _, y = network(3)
            loss = F.mean(y * y)
            solver = S.Sgd(lr=1e-7)
            solver.set_parameters(nnl.get_parameters())
            step = step_of(loss, solver)
            return [step() for _ in range(4)]

    def separate(loss, solver):
        def step():
            loss.forward()
            solver.zero_grad()
            loss.backward()
            solver.update()
            return float(loss.d)

        return step

    def compiled(loss, solver):
        step = nnl.compile_step(loss, solver)

        def run():
            step.run()
            return float(loss.d)

        return run

    with nnl.backend_scope(backend):
        found, wanted = losses(separate), losses(compiled)
    assert wanted[0] > wanted[-1] * 1.01
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_a_profile_has_a_row_for_each_instruction():
    _, y = network(0)
    program = program_of(y)
    (plan,) = [p for _, p in y._plans.values() if p.program is program]
    assert len(plan.profile(1)) == len(program.graph.instructions)


def test_a_few_small_constants_are_not_worth_preparing(prepared):
    with nnl.parameter_scope("", {}):
        y = PF.affine(F.tanh(PF.affine(Variable((8, 2)), 4, name="a")), 2, name="b")
        solver = S.Sgd(lr=0.1)
        solver.set_parameters(nnl.get_parameters())
        nnl.compile_step(F.mean(y * y), solver).run()
    assert prepared == []


def test_a_large_constant_is_brought_to_its_layout_once(prepared):
    weight = np.random.default_rng(0).normal(size=(16, 3, 3, 3)).astype(np.float32)
    x = Variable.from_numpy_array(np.ones((2, 3, 8, 8), np.float32))
    y = F.convolution(x, Variable.constant(weight))
    for _ in range(3):
        assert_same(on_native(y), np.broadcast_to(weight.sum((1, 2, 3))[:, None, None], y.shape))
    assert len(prepared) == 1
