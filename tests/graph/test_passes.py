"""What passes do to graphs; that results stay the same; that memory plans hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnl_core as nnl
from nnl_core import F, Variable, defop
from nnl_core.graph import operator as operator_module
from nnl_core.graph.backend import current_backend
from nnl_core.graph.lower import lower
from nnl_core.graph.passes import (
    canonicalize,
    fuse_elementwise,
    memory,
    merge_common,
    plan_memory,
    remove_dead,
)
from nnl_core.graph.program import BoundProgram


def leaf(values):
    return Variable.from_numpy_array(np.array(values, np.float32), need_grad=True)


def graph_of(*outputs, updates=()):
    return lower([(y, y.data) for y in outputs], updates=updates).graph


def names(graph):
    return [instruction.label for instruction in graph.instructions]


def test_dead_instructions_are_removed():
    x = leaf([1.0, 2.0])
    a, _b = F.split(F.stack(x * 2, x * 3), axis=0)
    graph = graph_of(a)
    graph.outputs = [graph.leaves[0]]
    assert remove_dead(graph).instructions == []


@pytest.mark.parametrize(
    ("read", "called"),
    [((0,), "double"), ((1,), "both"), ((0, 1), "both")],  # the second has no part of its own
)
def test_of_a_call_with_parts_only_what_is_read_is_computed(monkeypatch, read, called):
    monkeypatch.setattr(operator_module, "_registry", dict(operator_module._registry))
    both = defop("planted::both", outputs=("two", "three"))(lambda x: (x * 2, x * 3))
    both.infer(lambda x: (x, x))
    double = defop("planted::double")(lambda x, *, factor=2: x * factor)
    double.infer(lambda x, factor: x)
    both.part("two", double)
    outputs = both(leaf([1.0, 5.0]))
    graph = remove_dead(graph_of(*(outputs[at] for at in read)))
    assert names(graph) == [called]
    nnl.forward_all([outputs[at] for at in read])
    for at in read:
        np.testing.assert_array_equal(outputs[at].d, [2.0 + at, 10.0 + 5 * at])


@pytest.mark.parametrize(
    "build",
    [
        lambda x: F.identity(x),
        lambda x: F.reshape(x, x.shape),
        lambda x: F.cast(x, x.dtype),
        lambda x: F.transpose(x, (0, 1)),
        lambda x: x + 0,
        lambda x: x * 1,
        lambda x: x**1,
    ],
    ids=["identity", "reshape", "cast", "transpose", "add 0", "mul 1", "pow 1"],
)
def test_what_does_nothing_is_dropped(build):
    x = leaf(np.ones((2, 3)))
    graph = canonicalize(graph_of(F.exp(build(x))))
    assert names(graph) == ["exp"]


def test_a_chain_of_reshapes_becomes_the_last():
    x = leaf(np.ones((2, 3)))
    graph = remove_dead(canonicalize(graph_of(F.exp(F.reshape(F.reshape(x, (6,)), (3, 2))))))
    assert names(graph) == ["reshape", "exp"]


def test_constants_are_computed_beforehand():
    x = leaf([1.0])
    c = Variable.constant(np.array([2.0], np.float32))
    graph = canonicalize(graph_of(x * F.exp(c + 1)))
    assert names(graph) == ["mul"]
    assert any(np.allclose(value, np.exp(3.0)) for value in graph.constants.values())


def test_common_subexpressions_are_computed_once():
    x = leaf([1.0])
    graph = merge_common(graph_of(F.exp(x * 2) + F.exp(x * 2)))
    assert sorted(names(graph)) == ["add", "exp", "mul_scalar"]


def test_random_draws_are_not_common_subexpressions():
    graph = remove_dead(merge_common(graph_of(F.rand(shape=(3,)) - F.rand(shape=(3,)))))
    assert names(graph).count("sub") == 1
    y = F.rand(shape=(50,)) - F.rand(shape=(50,))
    assert np.abs(y.d).min() > 0


def test_elementwise_neighbours_become_one_group_and_inner_values_stay_inside():
    x, w = leaf(np.ones((4, 5))), leaf(np.ones((5,)))
    graph = fuse_elementwise(graph_of(F.exp(x * w + 1.0)))
    (group,) = graph.instructions
    assert [member.label for member in group.members] == ["mul", "add_scalar", "exp"]
    assert group.outputs == tuple(graph.outputs)


def test_a_value_that_somebody_else_reads_leaves_the_group():
    x = leaf(np.ones((4, 5)))
    h = x * 2
    graph = fuse_elementwise(graph_of(F.exp(h), F.sum(h)))
    group = next(i for i in graph.instructions if i.members)
    assert len(group.outputs) == 2


def test_groups_do_not_jump_over_what_they_depend_on():
    x = leaf(np.ones((4, 4)))
    a = x * 2
    b = F.batch_matmul(a, a)  # between two elementwise neighbours of equal shape
    y = a + b
    plan = BoundProgram(lower([(y, y.data)]), current_backend())
    plan.run()
    np.testing.assert_allclose(y.data.read(), 2 + 16 * np.ones((4, 4)))


def test_different_shapes_are_not_fused():
    x = leaf(np.ones((4, 5)))
    graph = fuse_elementwise(graph_of(F.broadcast_to(x * 2, (3, 4, 5)) + 1))
    assert not any(i.members for i in graph.instructions)


OPERATIONS = ["add", "mul", "sub", "exp", "tanh", "sum0", "reshape", "transpose", "scale", "matmul"]


def random_network(operations, x):
    """Chain operations, each on the latest value and an earlier one where it takes two."""
    values = [x, x * 0.5]
    for name, back in operations:
        a = values[-1]
        b = values[-1 - back % len(values)]
        if name in ("add", "mul", "sub"):
            b = b if b.shape == a.shape else a
            values.append(getattr(F, name)(a, b) * 0.5)
        elif name in ("exp", "tanh"):
            values.append(getattr(F, name)(a * 0.1))
        elif name == "sum0":
            values.append(F.broadcast_to(F.sum(a, axis=0, keepdims=True), a.shape) * 0.1)
        elif name == "reshape":
            values.append(F.reshape(a, (a.shape[1], a.shape[0])))
        elif name == "transpose":
            values.append(F.transpose(a, (1, 0)))
        elif name == "scale":
            values.append(a * -1.5)
        else:
            values.append(F.batch_matmul(a, F.batch_matmul(a, a, transpose_a=True)) * 0.01)
    return values[-1]


networks = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 9)), min_size=1, max_size=25
)


@settings(max_examples=60, deadline=None)
@given(networks)
def test_compiled_programs_agree_with_dynamic_execution(operations):
    data = np.random.default_rng(len(operations)).normal(size=(4, 6)).astype(np.float32)
    x = leaf(data)
    y = F.sum(random_network(operations, x))
    y.forward(clear_no_need_grad=True)
    y.backward(clear_buffer=True)
    with nnl.auto_forward():
        x2 = leaf(data)
        y2 = F.sum(random_network(operations, x2))
        y2.backward()
    np.testing.assert_allclose(y.d, y2.d, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(x.g, x2.g, rtol=1e-3, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(networks)
def test_values_alive_together_never_overlap(operations):
    x = leaf(np.ones((4, 6)))
    graph = graph_of(F.sum(random_network(operations, x)))
    for single in (canonicalize, merge_common, remove_dead, fuse_elementwise):
        graph = single(graph)
    plan = plan_memory(graph)
    last = graph.last_uses()
    born = {v: n for n, i in enumerate(graph.instructions) for v in i.outputs}
    for value, root in ((v, plan.root(v)) for v in [*last]):
        last[root] = max(last[root], last[value])
    placed = [v for v in plan.offsets if v in born]
    for a in placed:
        for b in placed:
            if a == b or born[a] > born[b] or last[a] < born[b]:
                continue
            if last[a] == born[b] and plan.in_place.get(b) == a:
                continue
            end_a = plan.offsets[a] + graph.specs[a].nbytes
            end_b = plan.offsets[b] + graph.specs[b].nbytes
            assert end_a <= plan.offsets[b] or end_b <= plan.offsets[a]
    assert plan.report.peak <= plan.report.intermediates


lifetimes = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 30), st.integers(0, 10)), max_size=40
)


@pytest.mark.parametrize("sorted_below", [0, 1000], ids=["in order", "large ones first"])
@settings(max_examples=100, deadline=None)
@given(lifetimes)
def test_blocks_alive_together_never_overlap(sorted_below, lifetimes):
    blocks = [
        memory._Block(owner, 64 * size, first, first + duration)
        for owner, (size, first, duration) in enumerate(sorted(lifetimes, key=lambda one: one[1]))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "SORTED_BELOW", sorted_below)
        places = memory._place(blocks, reuse=True)
    for a in blocks:
        for b in blocks[: a.owner]:
            assert (
                a.first > b.last
                or b.first > a.last
                or places[a.owner] + a.size <= places[b.owner]
                or places[b.owner] + b.size <= places[a.owner]
            )


def test_small_values_do_not_keep_a_large_one_from_the_memory_of_another():
    blocks = [
        memory._Block(0, 640, 0, 1),
        memory._Block(1, 64, 1, 9),  # in order of birth it would lie behind the first
        memory._Block(2, 704, 2, 3),
    ]
    places = memory._place(blocks, reuse=True)
    assert max(places[one.owner] + one.size for one in blocks) == 704 + 64


def test_a_long_elementwise_chain_with_reductions_needs_two_buffers():
    x = leaf(np.ones((64, 64)))
    y = x
    for _ in range(10):
        y = F.transpose(F.softmax(y, axis=1) * 2, (1, 0))
    y = F.sum(y)
    program = BoundProgram(lower([(y, y.data)]), current_backend())
    assert program.memory.peak <= 2 * 64 * 64 * 4 + 64
    assert program.memory.intermediates >= 10 * 64 * 64 * 4


def test_an_update_is_written_after_everything_that_reads_the_old_value():
    x = leaf([1.0, 2.0])
    y = x * 10
    new = x + 1
    program = BoundProgram(lower([(y, y.data)], updates=[(new, x.data)]), current_backend())
    program.run()
    np.testing.assert_array_equal(y.data.read(), [10, 20])
    np.testing.assert_array_equal(x.d, [2, 3])
    program.run()
    np.testing.assert_array_equal(y.data.read(), [20, 30])


def test_two_updates_may_exchange_values():
    a, b = leaf([1.0]), leaf([2.0])
    BoundProgram(lower([], updates=[(b, a.data), (a, b.data)]), current_backend()).run()
    np.testing.assert_array_equal([a.d[0], b.d[0]], [2, 1])


def test_updates_of_aliased_memory_wait_for_readers_of_the_alias():
    block = np.arange(6, dtype=np.float32)
    flat, part = Variable((6,)), Variable((3,))
    flat.data.relocate(block)
    flat.d = np.arange(6)
    part.data.relocate(block[3:])
    part.d = [3, 4, 5]
    new = flat * 2
    y = F.sum(part * 100)
    BoundProgram(lower([(y, y.data)], updates=[(new, flat.data)]), current_backend()).run()
    assert y.data.read() == 1200
    np.testing.assert_array_equal(flat.d, np.arange(6) * 2)


def test_equal_graphs_share_one_program():
    def build():
        x = leaf([1.0, 2.0])
        y = F.exp(x * 3)
        return BoundProgram(lower([(y, y.data)]), current_backend()).program

    assert build() is build()


def test_graphs_of_other_shapes_dtypes_or_constants_do_not():
    def build(shape=(2,), dtype=np.float32, factor=3.0):
        x = Variable(shape, dtype=dtype)
        y = F.exp(x * factor)
        return BoundProgram(lower([(y, y.data)]), current_backend()).program

    programs = [build(), build((3,)), build(dtype=np.float64), build(factor=4.0)]
    assert len({id(program) for program in programs}) == 4


def test_a_profile_has_time_bytes_and_multiply_adds():
    a, b = Variable((8, 16)), Variable((16, 4))
    y = F.batch_matmul(a, b)
    (row,) = BoundProgram(lower([(y, y.data)]), current_backend()).profile()
    assert row.multiply_adds == 8 * 16 * 4
    assert row.bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert row.seconds > 0 and row.operator == "batch_matmul"


# What makes two operations the same ---------------------------------------------------------------


def test_numbers_of_different_kinds_are_different_attributes_though_python_calls_them_equal():
    truth = Variable.from_numpy_array(np.array([True, False]))
    count, either = truth + 1, truth + True
    nnl.forward_all([count, either])
    assert (count.dtype, either.dtype) == (np.int64, np.bool_)
    np.testing.assert_array_equal(count.d, [2, 1])
    np.testing.assert_array_equal(either.d, [True, True])


def test_negative_zero_is_another_attribute_than_zero_in_a_program_and_in_the_cache():
    x = leaf([1.0])
    above, below = F.r_div_scalar(x * 0.0, 1.0), F.r_div_scalar(x * -0.0, 1.0)
    nnl.forward_all([above, below])
    assert (above.d.item(), below.d.item()) == (np.inf, -np.inf)
    assert F.r_div_scalar(x * -0.0, 1.0).d.item() == -np.inf


def test_computing_constants_beforehand_warns_of_nothing():
    assert F.log(Variable.constant(np.zeros((2,), np.float32))).d.tolist() == [-np.inf] * 2


def test_nan_is_the_same_attribute_wherever_it_comes_from():
    x = leaf([1.0])
    signatures = {
        graph_of(F.reset_nan(x, value)).signature() for value in (float("nan"), float("nan"))
    }
    assert len(signatures) == 1
