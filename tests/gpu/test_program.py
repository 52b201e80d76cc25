"""Programs on a device: captured once, without waiting or allocating, whatever comes between."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, defop
from nnl_core.graph import Spec
from nnl_core.graph.ir import Graph, Instruction
from nnl_core.graph.operator import lookup
from nnl_core.session import current_session
from nnl_core.solvers import Adam, Momentum
from tools import cuemu

F32 = np.dtype(np.float32)


def backend():
    return current_session().backend("cuda")


@pytest.fixture
def on_device():
    with nnl.backend_scope("cuda") as chosen:
        yield chosen


def difference(before):
    return {name: count - before[name] for name, count in cuemu.stats().items()}


def multilayer_perceptron(solver):
    """Return a compiled step of a small network, and its input and target."""
    nnl.clear_parameters()
    x, t = nnl.Variable((8, 4)), nnl.Variable((8, 1), dtype="int64")
    hidden = F.tanh(PF.affine(x, 6, name="first"))
    loss = F.mean(F.softmax_cross_entropy(PF.affine(hidden, 3, name="second"), t))
    for number, parameter in enumerate(nnl.get_parameters().values()):
        parameter.d = np.random.default_rng(number).normal(size=parameter.shape) / 2
    solver.set_parameters(nnl.get_parameters())
    return nnl.compile_step(loss, solver), x, t, loss


def train(backend_name, solver, steps=5):
    rng = np.random.default_rng(0)
    with nnl.backend_scope(backend_name):
        step, x, t, loss = multilayer_perceptron(solver)
        losses = []
        for _ in range(steps):
            x.d, t.d = rng.normal(size=x.shape), rng.integers(0, 3, t.shape)
            step.run()
            losses.append(float(loss.d))
        parameters = {name: p.d.copy() for name, p in nnl.get_parameters().items()}
    return losses, parameters


@pytest.mark.parametrize("solver", [Adam, lambda: Momentum(0.1)], ids=["adam", "momentum"])
def test_training_steps_are_those_of_numpy(solver):
    losses, parameters = train("cuda", solver())
    expected_losses, expected = train("numpy", solver())
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for name, value in expected.items():
        np.testing.assert_allclose(parameters[name], value, rtol=1e-4, atol=1e-6)


def test_a_step_is_captured_and_then_one_launch_that_waits_for_nothing(on_device):
    step, x, t, _loss = multilayer_perceptron(Adam())
    for _ in range(3):
        x.d, t.d = np.ones(x.shape), np.zeros(t.shape, int)
        step.run()
    on_device.device.synchronize()
    before = cuemu.stats()
    x.d, t.d = np.zeros(x.shape), np.ones(t.shape, int)
    step.run()
    after = difference(before)
    assert (after["syncs"], after["allocs"]) == (0, 0)
    assert after["launches"] == 0  # those of the graph are none of the host's


def test_parameters_gradients_and_states_stay_on_the_device_in_flat_blocks(on_device):
    step, _x, _t, _ = multilayer_perceptron(Adam())
    step.run()
    solver = step.solver
    (group,) = solver.flat_groups
    block = group.storage.data.data.buffer(on_device)
    places = dict(zip(group.parameters, group.storage._data.places, strict=True))
    for name, parameter in group.parameters.items():
        place = parameter.data.buffer(on_device).address
        assert place == block.address + 4 * places[name][0]


def test_what_is_written_to_a_parameter_counts_in_the_next_step(on_device):
    step, x, _t, loss = multilayer_perceptron(Momentum(0.0))
    x.d = np.ones(x.shape)
    step.run()
    for parameter in nnl.get_parameters().values():
        parameter.d = 0
    step.run()
    assert float(loss.d) == pytest.approx(np.log(3), rel=1e-6)


def test_parameters_go_back_to_another_backend_with_what_they_learned():
    with nnl.backend_scope("cuda"):
        step, x, _t, loss = multilayer_perceptron(Momentum(0.5))
        x.d = np.ones(x.shape)
        step.run()
        step.run()
        second = float(loss.d)
    with nnl.backend_scope("numpy"):
        step.run()
        third = float(loss.d)
    with nnl.backend_scope("cuda"):
        step.run()
        assert float(loss.d) < third < second


def test_graphs_of_two_sets_of_addresses_are_both_kept(on_device):
    x = nnl.Variable((3, 4))
    y = F.exp(x) * 2 + F.sum(x)
    first, second = nnl.NdArray(x.data.spec), nnl.NdArray(x.data.spec)
    for value, storage in ((1.0, first), (2.0, second)):
        storage.write(np.full((3, 4), value, np.float32))
    for _ in range(4):
        for value, storage in ((1.0, first), (2.0, second)):
            x.data = storage
            y.forward()
            np.testing.assert_allclose(y.d, np.exp(value) * 2 + 12 * value, rtol=1e-6)


def test_what_numpy_computes_stands_between_two_captured_sections(on_device):
    @defop("gpu_test::reversed_sum")
    def reversed_sum(x):
        return np.cumsum(x[::-1], axis=0)

    reversed_sum.infer(lambda x: x)
    x = nnl.Variable((5,))
    y = F.tanh(reversed_sum(F.exp(x) + 1) * 0.1) + 1
    for start in range(4):
        x.d = np.arange(5) / 5 + start
        y.forward()
        expected = np.tanh(np.cumsum((np.exp(x.d) + 1)[::-1]) * 0.1) + 1
        np.testing.assert_allclose(y.d, expected, rtol=1e-5)


def swap_graph():
    """Return a graph that gives each of two leaves the other's elements."""
    graph = Graph()
    leaves = [graph.add_leaf(Spec((4,), F32)) for _ in range(2)]
    graph.outputs = leaves[::-1]
    graph.updates = {0: 0, 1: 1}
    return graph


def test_updates_read_all_leaves_before_one_is_written():
    chosen = backend()
    buffers = [chosen.from_host(np.full(4, value, np.float32)) for value in (1.0, 2.0)]
    program = chosen.compile(swap_graph())
    for expected in ((2.0, 1.0), (1.0, 2.0), (2.0, 1.0)):
        program.run(buffers, buffers)
        assert tuple(float(chosen.to_host(one)[0]) for one in buffers) == expected


def test_a_view_of_a_leaf_that_the_run_overwrites_keeps_what_was_there():
    graph = Graph()
    leaf = graph.add_leaf(Spec((2, 3), F32))
    flat, doubled, summed = (graph.new_value(Spec(s, F32)) for s in ((6,), (2, 3), (6,)))
    graph.instructions = [
        Instruction(lookup("nnl::reshape"), (leaf,), (flat,), {"shape": (6,)}),
        Instruction(lookup("nnl::mul_scalar"), (leaf,), (doubled,), {"val": 2.0}),
        Instruction(lookup("nnl::add_scalar"), (flat,), (summed,), {"val": 1.0}),
    ]
    graph.outputs, graph.updates = [doubled, summed], {0: 0}
    chosen = backend()
    buffer = chosen.from_host(np.ones((2, 3), np.float32))
    other = chosen.allocate(Spec((6,), F32))
    chosen.compile(graph).run([buffer], [buffer, other])
    assert chosen.to_host(buffer).tolist() == [[2.0] * 3] * 2
    assert chosen.to_host(other).tolist() == [2.0] * 6


def test_a_program_that_gave_its_memory_back_runs_again(on_device):
    x = nnl.Variable((6, 6))
    y = F.softmax(F.exp(x) @ F.exp(x))
    y.forward()
    expected = y.d.copy()
    on_device.device.release()
    x.d = np.zeros((6, 6))
    y.forward()
    np.testing.assert_array_equal(y.d, expected)


def test_bad_values_are_told_of_when_the_device_is_next_waited_for(on_device):
    from nnl_core.errors import OperatorError
    from nnl_core.gpu.kernel import Kernel, Launch

    device = on_device.device
    address, number = device.failure("operator 'gpu_test::checked': a value is wrong")
    text = 'extern "C" __global__ void KERNEL(fail)(int *flag, int number) { *flag = number; }'
    kernel = Kernel(text, "fail")
    launch = Launch(kernel, (1, 1, 1), (1, 1, 1), (np.uint64(address), number))
    from nnl_core.gpu.program import Template

    with device:
        template = Template(launch, on_device.compiler.function(kernel), device.stream)
        template.launch(template.packed({}))
    with pytest.raises(OperatorError, match="gpu_test::checked"):
        device.synchronize()
    device.synchronize()
