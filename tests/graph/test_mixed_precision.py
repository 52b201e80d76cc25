"""Mixed precision: what is computed in half inside the scope, and what comes of it."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, Variable
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.dtypes import as_dtype
from nnl_core.graph.ir import Graph
from nnl_core.graph.lower import lower
from nnl_core.graph.operator import _registry, defop, registered
from nnl_core.graph.passes import canonicalize, merge_common, remove_dead
from nnl_core.testing import operators

HALF = ["float16", "bfloat16"]


def leaf(values, dtype=np.float32):
    return Variable.from_numpy_array(np.array(values, as_dtype(dtype)), need_grad=True)


def rounded(values, dtype):
    return np.asarray(values).astype(as_dtype(dtype)).astype(np.float64)


@pytest.fixture
def plant(monkeypatch):
    """Define operators that are forgotten after the test."""

    def define(precision):
        operator = defop("planted::one", precision=precision)(lambda x, w: x + w)
        monkeypatch.delitem(_registry, "planted::one")
        operator.elementwise("x + w")
        operator.vjp(lambda g, y, x, w: (F.unbroadcast(g, x), F.unbroadcast(g, w)))
        return operator

    return define


# What is cast ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(
    "product",
    [
        lambda x, w: F.affine(x, w),
        lambda x, w: F.matmul(x, w),
        lambda x, w: F.batch_matmul(F.reshape(x, (1, 2, 3)), F.reshape(w, (1, 3, 4))),
        lambda x, w: F.einsum("ij,jk->ik", x, w),
        lambda x, w: F.convolution(F.reshape(x, (2, 3, 1)), F.reshape(w, (4, 3, 1))),
        lambda x, w: F.deconvolution(F.reshape(x, (2, 3, 1)), F.reshape(w, (3, 4, 1))),
        lambda x, w: x @ w,
    ],
    ids=["affine", "matmul", "batch_matmul", "einsum", "convolution", "deconvolution", "@"],
)
def test_products_of_matrices_are_of_half_operands(product, dtype):
    rng = np.random.default_rng(0)
    x, w = leaf(rng.normal(size=(2, 3))), leaf(rng.normal(size=(3, 4)))
    with nnl.mixed_precision(dtype):
        y = product(x, w)
    assert y.dtype == as_dtype(dtype)
    exact = product(leaf(rounded(x.d, dtype), "float64"), leaf(rounded(w.d, dtype), "float64"))
    np.testing.assert_allclose(y.d.astype(float), exact.d, rtol=2**-8, atol=1e-6)


FULL = [
    *("sum", "mean", "prod", "var", "std", "norm", "logsumexp", "softmax", "log_softmax"),
    *("exp", "log", "expm1", "log1p", "softplus", "cumsum"),
]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", FULL)
def test_sums_statistics_and_exponentials_are_of_float32(name, dtype):
    x = leaf([0.5, 1.25, 2.0], dtype)
    with nnl.mixed_precision(dtype):
        y = getattr(F, name)(x)
    assert y.dtype == np.float32
    exact = getattr(F, name)(leaf(x.d.astype(float), "float64")).d
    np.testing.assert_allclose(y.d, exact, rtol=1e-6)


@pytest.mark.parametrize("name", ["squared_error", "absolute_error", "huber_loss"])
def test_losses_are_of_float32(name):
    with nnl.mixed_precision("float16"):
        arguments = (0.5,) if name == "huber_loss" else ()
        y = getattr(F, name)(leaf([300.0], "float16"), leaf([-300.0], "float16"), *arguments)
    assert y.dtype == np.float32 and np.isfinite(y.d).all()


def test_classification_losses_are_of_float32_and_leave_labels_alone():
    labels = Variable.from_numpy_array(np.array([[1.0], [0.0]], np.float32))
    with nnl.mixed_precision("bfloat16"):
        logits = leaf([[0.0, 1.0], [2.0, 0.0]], "bfloat16")
        y = F.softmax_cross_entropy(logits, labels)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.d, [[np.log1p(np.exp(-1))], [np.log1p(np.exp(-2))]], rtol=1e-6)


@pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid", "abs", "neg", "identity"])
def test_functions_of_one_element_follow_their_operand(name):
    with nnl.mixed_precision("bfloat16"):
        assert getattr(F, name)(leaf([1.0], "bfloat16")).dtype == as_dtype("bfloat16")
        assert getattr(F, name)(leaf([1.0])).dtype == np.float32


def test_operands_of_two_dtypes_are_promoted():
    with nnl.mixed_precision("bfloat16"):
        assert (leaf([1.0], "bfloat16") + leaf([1.0])).dtype == np.float32
        assert (leaf([1.0], "bfloat16") + leaf([1.0], "float16")).dtype == np.float32
        assert (leaf([1.0], "bfloat16") * 2.5).dtype == as_dtype("bfloat16")


def test_float64_is_left_alone():
    x, w = leaf(np.ones((2, 3)), "float64"), leaf(np.ones((3, 4)))
    with nnl.mixed_precision("bfloat16"):
        assert F.matmul(x, x.reshape((3, 2))).dtype == F.matmul(x, w).dtype == np.float64
        assert F.sum(x).dtype == np.float64


def test_integers_are_left_alone():
    x = Variable.from_numpy_array(np.array([[1, 2]], np.int8))
    with nnl.mixed_precision("bfloat16"):
        assert F.sum(x).dtype == F.matmul(x, x.reshape((2, 1))).dtype == np.int64


def test_nothing_is_cast_outside():
    x = leaf(np.ones((2, 2)))
    with nnl.mixed_precision("bfloat16"), nnl.mixed_precision(None):
        assert F.matmul(x, x).dtype == np.float32
    assert F.matmul(x, x).dtype == np.float32
    assert F.sum(leaf([1.0], "float16")).dtype == np.float16


def test_the_innermost_scope_counts_and_is_left_on_errors():
    x = leaf(np.ones((2, 2)))
    with nnl.mixed_precision("bfloat16"):
        with pytest.raises(ZeroDivisionError), nnl.mixed_precision("float16"):
            assert F.matmul(x, x).dtype == np.float16
            raise ZeroDivisionError
        assert F.matmul(x, x).dtype == as_dtype("bfloat16")


@pytest.mark.parametrize("dtype", ["float32", "int16", "float64"])
def test_another_dtype_is_refused(dtype):
    with pytest.raises(ShapeError, match=f"'bfloat16' or 'float16', not {dtype}"):
        nnl.mixed_precision(dtype).__enter__()


# What an operator says ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "expected"), [("half", "float16"), ("full", "float32"), ("operands", "float32")]
)
def test_an_operator_of_a_strangers_set_says_what_it_needs(plant, precision, expected):
    with nnl.mixed_precision("float16"):
        y = plant(precision)(leaf([1.0], "float16"), leaf([2.0]))
    assert y.dtype == np.dtype(expected) and float(y.d[0]) == 3


@pytest.mark.parametrize("precision", ["half", "full", "operands"])
def test_gradients_come_back_in_the_dtypes_of_the_inputs(plant, precision):
    x, w = leaf([1.0], "float16"), leaf([2.0])
    with nnl.mixed_precision("float16"):
        y = plant(precision)(x, w)
    y.forward()
    y.backward()
    assert (x.g.dtype, w.g.dtype) == (np.float16, np.float32)
    assert (float(x.g[0]), float(w.g[0])) == (1, 1)


def test_an_operator_that_says_something_else_is_refused():
    with pytest.raises(OperatorError, match=r"planted::two.*'double' is none of"):
        defop("planted::two", precision="double")(lambda x: x)


def test_products_and_sums_of_the_core_have_said_so():
    operators("nnl")
    found = {operator.name: operator.precision for operator in registered("nnl")}
    for name in ("affine", "batch_matmul", "convolution", "einsum"):
        assert found[f"nnl::{name}"] == "half"
    for name in ("sum", "mean", "softmax", "exp", "log", "pow", "moments", "softmax_cross_entropy"):
        assert found[f"nnl::{name}"] == "full"
    assert found["nnl::relu"] == found["nnl::add"] == "operands"


# Parameters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALF)
def test_parameters_and_their_gradients_are_float32(dtype):
    nnl.clear_parameters()
    x = Variable.from_numpy_array(np.ones((4, 3), np.float32))
    with nnl.mixed_precision(dtype):
        h = PF.batch_normalization(PF.affine(x, 8, name="one"))
        y = PF.affine(F.relu(h), 2, name="two")
        loss = F.mean(F.squared_error(y, np.ones((4, 2), np.float32)))
    loss.forward()
    loss.backward()
    assert h.dtype == y.dtype == as_dtype(dtype) and loss.dtype == np.float32
    for name, parameter in nnl.get_parameters(grad_only=False).items():
        assert parameter.dtype == parameter.g.dtype == np.float32, name


def test_running_statistics_are_not_rounded_to_half():
    nnl.clear_parameters()
    x = Variable.from_numpy_array(np.array([[1.0], [1.0 + 2**-7]], np.float32))
    with nnl.mixed_precision("bfloat16"):
        y = PF.batch_normalization(F.cast(x, "bfloat16"), decay_rate=0.0)
    y.forward()
    assert nnl.get_parameters(grad_only=False)["bn/mean"].d.item() == 1 + 2**-8


def casts_of(graph: Graph, leaf_number: int) -> int:
    return sum(
        i.operator.name == "nnl::cast" and i.inputs == (leaf_number,) for i in graph.instructions
    )


def test_a_parameter_that_is_used_twice_is_cast_once():
    x, w = leaf(np.ones((3, 3))), leaf(np.ones((3, 3)))
    with nnl.mixed_precision("bfloat16"):
        y = F.affine(F.relu(F.affine(x, w)), w)
    lowered = lower([(y, y.data)])
    number = lowered.graph.leaves[lowered.leaves.index(w.data)]
    assert casts_of(lowered.graph, number) == 2
    assert casts_of(merge_common(canonicalize(lowered.graph)), number) == 1


def test_a_value_that_is_cast_up_and_back_is_not_cast():
    x = leaf([1.0, 2.0], "float16")
    y = F.cast(F.cast(x, "float32"), "float16") * 2.0
    graph = remove_dead(canonicalize(lower([(y, y.data)]).graph))
    assert [i.operator.__name__ for i in graph.instructions] == ["mul_scalar"]


@pytest.mark.parametrize("between", ["float16", "bfloat16", "int32"])
def test_a_value_that_a_cast_changes_is_cast(between):
    x = leaf([1 + 2**-12, 2.0])
    y = F.cast(F.cast(x, between), "float32")
    np.testing.assert_array_equal(y.d, x.d.astype(as_dtype(between)).astype(np.float32))
    assert y.d[0] != x.d[0]


# Gradients ---------------------------------------------------------------------------------------


def network(x, w):
    return F.sum(F.tanh(F.affine(x, w)) ** 2)


def inputs():
    rng = np.random.default_rng(7)
    return leaf(rng.normal(size=(6, 4))), leaf(rng.normal(size=(4, 4)))


@pytest.mark.parametrize("dtype", HALF)
def test_gradients_made_inside_and_outside_of_the_scope_are_the_same_bits(dtype):
    x, w = inputs()
    with nnl.mixed_precision(dtype):
        y = network(x, w)
        inside = nnl.grad([y], [x, w])
    outside = nnl.grad([y], [x, w])
    for one, other, variable in zip(inside, outside, (x, w), strict=True):
        assert one.dtype == other.dtype == variable.dtype
        np.testing.assert_array_equal(one.d, other.d)
    y.forward()
    y.backward()
    np.testing.assert_array_equal(w.g, inside[1].d)


@pytest.mark.parametrize("dtype", HALF)
def test_gradients_are_near_those_of_float64(dtype):
    x, w = inputs()
    with nnl.mixed_precision(dtype):
        y = network(x, w)
    y.forward()
    y.backward()
    exact = [leaf(v.d, "float64") for v in (x, w)]
    z = network(*exact)
    z.forward()
    z.backward()
    scale = np.abs(exact[1].g).max()
    np.testing.assert_allclose(w.g, exact[1].g, atol=(2e-3 if dtype == "float16" else 2e-2) * scale)


def test_second_order_goes_through_the_casts():
    """Of sum((x w)^2) the Hessian is 2 x^T x; all numbers here are whole, and exact in half."""
    x = Variable.from_numpy_array(np.array([[1.0, 2.0], [3.0, 1.0]], np.float32))
    w = leaf([[1.0], [2.0]])
    with nnl.mixed_precision("bfloat16"):
        y = F.sum(F.affine(x, w) ** 2)
        (first,) = nnl.grad([y], [w])
        (second,) = nnl.grad([F.sum(first * np.float32([[1.0], [0.0]]))], [w])
    np.testing.assert_array_equal(first.d, [[2 * (5 + 15)], [2 * (10 + 5)]])
    np.testing.assert_array_equal(second.d, [[2 * 10], [2 * 5]])
    assert first.dtype == second.dtype == np.float32


# Ways to run -------------------------------------------------------------------------------------


def train(dtype, way, steps=4, scope=contextlib.nullcontext):
    """Take some steps and return loss and parameters."""
    nnl.clear_parameters()
    nnl.seed(11)
    rng = np.random.default_rng(0)
    data = rng.normal(size=(16, 6)).astype(np.float32)
    x, t = Variable((16, 6)), Variable((16, 1), dtype="int32")
    x.d, t.d = data, (data[:, :1] * data[:, 1:2] > 0).astype(np.int32)
    solver = nnl.S.Momentum(0.1)

    def build():
        with nnl.mixed_precision(dtype), scope():
            h = F.relu(PF.affine(x, 12, name="a"))
            return F.mean(F.softmax_cross_entropy(PF.affine(h, 2, name="b"), t))

    with nnl.auto_forward(way == "dynamic"):
        loss = build()
        solver.set_parameters(nnl.get_parameters())
        step = nnl.compile_step(loss, solver) if way == "compiled" else None
        for turn in range(steps):
            if step is not None:
                step.run()
                continue
            if way == "dynamic" and turn:
                loss = build()
            loss.forward()
            solver.zero_grad()
            loss.backward()
            solver.update()
    return [loss.d.copy(), *(p.d.copy() for p in nnl.get_parameters().values())]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("way", ["dynamic", "compiled", "recomputed"])
def test_all_ways_to_run_give_the_same_bits(way, dtype):
    static = train(dtype, "static")
    scope = nnl.recompute if way == "recomputed" else contextlib.nullcontext
    for one, other in zip(static, train(dtype, way, scope=scope), strict=True):
        assert one.dtype == other.dtype == np.float32
        np.testing.assert_array_equal(one, other)


def test_a_step_compiled_inside_the_scope_updates_in_float32():
    nnl.clear_parameters()
    x = leaf(np.ones((2, 2)))
    with nnl.mixed_precision("bfloat16"):
        loss = F.sum(PF.affine(x, 2, with_bias=False) ** 2)
        solver = nnl.S.Adam(1e-3)
        solver.set_parameters(nnl.get_parameters())
        before = nnl.get_parameters()["affine/W"].d.copy()
        nnl.compile_step(loss, solver).run()
    moved = nnl.get_parameters()["affine/W"].d - before
    np.testing.assert_allclose(np.abs(moved), 1e-3, rtol=1e-3)  # Adam's first step is the rate


# Training ----------------------------------------------------------------------------------------


def rings(count):
    """Points on two rings, which no straight line parts."""
    rng = np.random.default_rng(1)
    label = rng.integers(0, 2, size=(count, 1))
    angle = rng.uniform(0, 2 * np.pi, size=(count, 1))
    radius = 1 + 1.5 * label + rng.normal(scale=0.1, size=(count, 1))
    points = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points.astype(np.float32), label.astype(np.int32)


def accuracy_of(dtype):
    nnl.clear_parameters()
    nnl.seed(5)
    x, t = Variable((64, 2)), Variable((64, 1), dtype="int32")
    x.d, t.d = rings(64)
    with nnl.mixed_precision(dtype):
        h = F.tanh(PF.affine(x, 32, name="one"))
        h = PF.batch_normalization(F.relu(PF.affine(h, 32, name="two")))
        y = PF.affine(h, 2, name="three")
        loss = F.mean(F.softmax_cross_entropy(y, t))
    solver = nnl.S.Adam(0.01)
    solver.set_parameters(nnl.get_parameters())
    step = nnl.compile_step(loss, solver, outputs=[y])
    for _ in range(60):
        step.run()
    return float(np.mean(np.argmax(y.d.astype(np.float32), axis=1) == t.d[:, 0])), loss.d.item()


@pytest.mark.parametrize("dtype", HALF)
def test_a_network_trains_to_the_accuracy_of_float32(dtype):
    accuracy, loss = accuracy_of(None)
    assert accuracy == 1
    mixed_accuracy, mixed_loss = accuracy_of(dtype)
    assert mixed_accuracy == 1
    assert mixed_loss == pytest.approx(loss, abs=0.02)
