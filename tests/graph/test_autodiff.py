"""Gradients as graph: any order, custom flows, errors by name, deep graphs."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnl_core as nnl
from nnl_core import F, Variable, defop
from nnl_core.errors import GraphError, NotDifferentiableError, OperatorError, ShapeError


def leaf(values, need_grad=True):
    return Variable.from_numpy_array(np.array(values, np.float64), need_grad=need_grad)


def test_the_gradient_is_a_variable_of_the_same_graph():
    x = leaf([2.0, 3.0])
    (g,) = nnl.grad(x * x * x, x)
    np.testing.assert_allclose(g.d, [12, 27])
    x.d = [1.0, 1.0]
    g.forward()
    np.testing.assert_allclose(g.d, [3, 3])


def test_gradients_of_gradients_to_the_fourth_order():
    x = leaf([2.0])
    y = x**5
    for expected in (80.0, 160.0, 240.0, 240.0):
        (y,) = nnl.grad(y, x)
        np.testing.assert_allclose(y.d, [expected])


def test_gradients_start_from_given_ones():
    x = leaf([2.0])
    (g,) = nnl.grad(x * x, x, grad_outputs=10.0)
    np.testing.assert_allclose(g.d, [40])


def test_gradients_of_several_outputs_add_up():
    x, w = leaf([2.0]), leaf([5.0])
    gx, gw = nnl.grad([x * w, x + w], [x, w])
    np.testing.assert_allclose([gx.d[0], gw.d[0]], [6, 3])


def test_a_gradient_with_respect_to_an_intermediate():
    x = leaf([2.0])
    h = x * 3
    (g,) = nnl.grad(h * h, h)
    np.testing.assert_allclose(g.d, [12])


def test_a_gradient_needs_no_need_grad_on_the_asked_input():
    x = leaf([2.0], need_grad=False)
    (g,) = nnl.grad(x * x, x)
    np.testing.assert_allclose(g.d, [4])


def test_an_unused_input_is_an_error_or_zero_on_request():
    x, z = leaf([2.0]), leaf([1.0])
    with pytest.raises(GraphError, match="does not influence"):
        nnl.grad(x * 2, z)
    (g,) = nnl.grad(x * 2, z, allow_unused=True)
    np.testing.assert_array_equal(g.d, [0])


def test_dynamic_gradients_are_computed_at_once():
    with nnl.auto_forward():
        x = leaf([3.0])
        (g,) = nnl.grad(x * x, x)
        assert g.data.has_value
        np.testing.assert_allclose(g.d, [6])


def test_backward_through_a_gradient_trains_on_it():
    x = leaf([2.0])
    (g,) = nnl.grad(x**3, x)
    penalty = g * g
    penalty.forward()
    penalty.backward()
    np.testing.assert_allclose(x.g, [2 * 12 * 12.0])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["add", "mul", "sub", "square", "scale"]), min_size=1, max_size=12))
def test_random_expressions_agree_with_finite_differences(operations):
    def build(x):
        values = [x, x * 0.5]
        for name in operations:
            a, b = values[-1], values[-2]
            values.append(
                {
                    "add": lambda a, b: a + b,
                    "mul": lambda a, b: a * b * 0.3,
                    "sub": lambda a, b: a - b * 0.7,
                    "square": lambda a, b: a * a * 0.2,
                    "scale": lambda a, b: a * -1.1,
                }[name](a, b)
            )
        return values[-1]

    point = np.array([0.7, -0.4])
    x = leaf(point)
    y = build(x)
    y.forward()
    y.backward()
    step = 1e-6
    numeric = (build(leaf(point + step)).d - build(leaf(point - step)).d) / (2 * step)
    np.testing.assert_allclose(x.g, numeric, rtol=1e-5, atol=1e-6)


# Operators' rules ---------------------------------------------------------------------------------


@defop("graphtest::opaque")
def opaque(x):
    """No gradient."""
    return np.sin(x)


opaque.elementwise("sinf(x)")


@defop("graphtest::once", save=("x",))
def once(x):
    """First derivative only: its vjp goes through an operator without one."""
    return np.cos(x)


once.elementwise("cosf(x)")


@once.vjp
def once_vjp(g, y, x):
    return (g * opaque(x) * -1,)


@defop("graphtest::spike")
def spike(x):
    """A step whose gradient is deliberately that of the identity."""
    return (x > 0).astype(x.dtype)


spike.elementwise("x > 0.0f ? 1.0f : 0.0f")


@spike.vjp(surrogate=True)
def spike_vjp(g, y, x):
    return (g,)


@defop("graphtest::forgets")
def forgets(x):
    """Its vjp reads what it did not save."""
    return x * x


forgets.elementwise("x * x")


@forgets.vjp
def forgets_vjp(g, y, x):
    return (F.mul(g, x),)


@defop("graphtest::misshapen")
def misshapen(x):
    """Its vjp has the wrong shape."""
    return x.copy()


misshapen.elementwise("x")


@misshapen.vjp
def misshapen_vjp(g, y, x):
    return (F.sum_to(g, shape=()),)


@defop("graphtest::divide", outputs=("quotient", "remainder"), save=("x",))
def divide(x, *, by=2.0):
    """Two outputs."""
    return x / by, x % by


@divide.infer
def divide_infer(x, *, by):
    return x, x


@divide.vjp
def divide_vjp(g, y, x, *, by):
    quotient, remainder = g
    parts = [] if quotient is None else [quotient / by]
    parts += [] if remainder is None else [remainder]
    return (parts[0] if len(parts) == 1 else parts[0] + parts[1],)


def test_an_operator_without_gradient_raises_by_name():
    y = opaque(leaf([1.0]))
    y.forward()
    with pytest.raises(NotDifferentiableError, match="graphtest::opaque"):
        y.backward()


def test_a_missing_second_derivative_raises_by_name_instead_of_returning_zeros():
    x = leaf([1.0])
    (g,) = nnl.grad(once(x), x)
    np.testing.assert_allclose(g.d, -np.sin([1.0]))
    with pytest.raises(NotDifferentiableError, match="graphtest::opaque"):
        nnl.grad(g, x)


def test_an_operator_without_gradient_is_fine_where_no_gradient_is_needed():
    x, w = leaf([1.0], need_grad=False), leaf([2.0])
    y = opaque(x) * w
    y.forward()
    y.backward()
    np.testing.assert_allclose(w.g, np.sin([1.0]))


def test_a_custom_gradient_flow_is_followed():
    x = leaf([-1.0, 2.0])
    y = spike(x) * 3
    y.forward()
    y.backward()
    np.testing.assert_array_equal(y.d, [0, 3])
    np.testing.assert_array_equal(x.g, [3, 3])


def test_reading_an_unsaved_value_in_a_gradient_rule_says_what_to_add():
    y = forgets(leaf([1.0]))
    y.forward()
    with pytest.raises(OperatorError, match=r"operator \w+::forgets: its gradient .* save="):
        y.backward()


def test_a_gradient_of_the_wrong_shape_names_the_operator():
    y = misshapen(leaf([1.0, 2.0]))
    y.forward()
    with pytest.raises(OperatorError, match=r"graphtest::misshapen.*\(\).*\(2,\)"):
        y.backward()


def test_operators_with_several_outputs_receive_none_for_unused_ones():
    x = leaf([5.0])
    quotient, remainder = divide(x)
    quotient.forward()
    quotient.backward()
    np.testing.assert_allclose(x.g, [0.5])
    x.grad.zero()
    both = quotient + remainder
    both.forward()
    both.backward()
    np.testing.assert_allclose(x.g, [1.5])


def test_a_second_definition_names_both_modules():
    with pytest.raises(OperatorError, match="defined twice"):

        @defop("nnl::add")
        def imposter(x, y):
            return x


def test_a_name_without_namespace_is_refused():
    with pytest.raises(OperatorError, match="namespace"):
        defop("plain")


def test_unknown_attributes_are_refused():
    with pytest.raises(OperatorError, match="'by'"):
        divide(leaf([1.0]), through=3)


def test_too_many_inputs_are_refused():
    with pytest.raises(OperatorError, match="takes inputs x"):
        opaque(leaf([1.0]), leaf([1.0]))


def test_inputs_may_be_given_by_name():
    x, offset = leaf([1.0]), leaf([2.0])
    np.testing.assert_array_equal(F.matmul(y=offset, x=x * 5).d, 10)
    np.testing.assert_array_equal(F.identity(x=x).d, [1])
    np.testing.assert_array_equal(divide(x=leaf([7.0]), by=2)[1].d, [1])


@pytest.mark.parametrize(
    ("positional", "named"), [((), ("x",)), ((), ("y",)), ((1.0,), ("x", "y")), ((), ("x", "z"))]
)
def test_inputs_missing_unknown_or_given_twice_are_refused(positional, named):
    with pytest.raises(OperatorError, match="nnl::add"):
        nnl.lookup("nnl::add")(*positional, **{name: leaf([1.0]) for name in named})


def test_a_gradient_of_the_wrong_shape_given_by_the_user_is_refused():
    y = leaf([1.0, 2.0]) * 2
    with pytest.raises(ShapeError):
        nnl.grad(y, y.parent.inputs[0], grad_outputs=leaf([1.0]))


# Depth and lifetime


def test_a_chain_of_150000_nodes_is_built_run_differentiated_and_freed():
    x = leaf([1.0])
    y = x
    for _ in range(75_000):
        y = (y + 1.0) * 1.0
    y.forward(clear_no_need_grad=True)
    np.testing.assert_array_equal(y.d, [75_001])
    y.backward(clear_buffer=True)
    np.testing.assert_array_equal(x.g, [1])
    del y
    gc.collect()


def test_a_dynamic_graph_is_freed_without_the_garbage_collector():
    import weakref

    gc.collect()
    gc.disable()
    try:
        with nnl.auto_forward():
            x = leaf([2.0])
            y = x * x * 3
            node = weakref.ref(y.parent)
            y.backward(clear_buffer=True)
            del y
        assert node() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("name", "advice"), [("nnl::rulu", "relu"), ("nowhere::relu", "no plugin defines nowhere::")]
)
def test_an_unknown_operator_is_answered_with_advice(name, advice):
    with pytest.raises(OperatorError, match=advice):
        nnl.lookup(name)


def test_looking_up_a_core_operator_needs_no_import_before():
    import subprocess
    import sys

    code = "import nnl_core; print(nnl_core.lookup('nnl::tanh'))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "nnl::tanh"
