"""Calls of an operator are found once: what they are told apart by, and when they are forgotten."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.cpu.backend import NumpyBackend
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph import calls
from nnl_core.hooks import Plugin
from nnl_core.session import Session


def array(*values, dtype=np.float32):
    return Variable.from_numpy_array(np.array(values, dtype))


@pytest.fixture
def operator():
    """Make an operator that tells the type and sign of its attribute: ``y = x + code(val)``."""
    name = "calls_test::told"
    codes = {bool: 1, int: 2, float: 3, tuple: 4}

    @nnl.defop(name)
    def told(x, *, val=None):
        negative = isinstance(val, float) and np.signbit(val)
        return x + x.dtype.type(codes.get(type(val), 0) + (10 if negative else 0))

    told.infer(lambda x, *, val: x)
    yield told
    from nnl_core.graph import operator as module

    del module._registry[name]


def test_attributes_that_are_equal_are_told_apart_by_type_and_sign(operator):
    x = array(0)
    with nnl.auto_forward():
        found = [float(operator(x, val=val).d[0]) for val in (1, 1.0, True, 0.0, -0.0, 0, False)]
    assert found == [2, 3, 1, 3, 13, 2, 1]


def test_a_scalar_decides_the_dtype_by_its_type_whatever_came_before():
    x = array(1, dtype=np.int32)
    with nnl.auto_forward():
        assert [(x * val).dtype for val in (1, 1.0, 1)] == [np.int32, np.float32, np.int32]


def test_nodes_of_the_same_call_share_it(operator):
    x, y = array(1), array(2)
    assert operator(x, val=1).parent.call is operator(y, val=1).parent.call
    assert operator(x, val=1).parent.call is not operator(array(1, 2), val=1).parent.call


def test_calls_of_one_operator_are_bounded_in_number(operator):
    for length in range(calls.KEPT + 5):
        operator(Variable((length,)))
    assert len(operator.calls) <= calls.KEPT


def test_a_list_as_attribute_is_completed_to_a_tuple(operator):
    assert operator(array(1), val=[1, 2]).parent.attributes == {"val": (1, 2)}
    assert not operator.calls


def test_what_an_attribute_holds_is_not_kept_alive(operator):
    class Held:
        pass

    held = Held()
    reference = weakref.ref(held)
    operator(array(1), val=(held,))
    del held
    gc.collect()
    assert reference() is None


def test_a_kernel_attached_later_serves_the_next_call(operator):
    x = array(1)
    with nnl.auto_forward():
        assert operator(x).d.tolist() == [1]
        operator.kernel("numpy", lambda x, *, val, out: np.full_like(x, 7))
        assert operator(x).d.tolist() == [7]


def test_a_plugin_selects_kernels_in_its_session_only(operator):
    def select(self, request):
        if request.operator is operator:
            return lambda x, *, val, out: np.full_like(x, 5)
        return None

    x = array(1)
    plugin = type("P", (Plugin,), {"name": "p", "nnl_select_kernel": select})
    with nnl.auto_forward():
        assert operator(x).d.tolist() == [1]
        with Session([plugin], environment={}, discover=False):
            assert operator(x).d.tolist() == [5]
        assert operator(x).d.tolist() == [1]


def test_each_backend_runs_its_own(operator):
    class Counting(NumpyBackend):
        bound = 0

        def bind(self, *arguments):
            self.bound += 1
            return super().bind(*arguments)

    x, backend = array(1), Counting()
    with nnl.auto_forward():
        operator(x)
        with nnl.backend_scope(backend):
            operator(x)
            operator(x)
        operator(x)
    assert backend.bound == 1


def test_shapes_that_do_not_fit_are_refused_each_time_by_the_name_of_the_node():
    x, y = Variable((2,)), Variable((3,))
    for scope in ("first", "second"):
        with nnl.parameter_scope(scope), pytest.raises(ShapeError, match=f"{scope}/add"):
            F.add(x, y)


def test_an_attribute_of_a_c_expression_that_is_no_number_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(OperatorError, match="is not a number"):
            nnl.lookup("nnl::leaky_relu")(Variable((2,)), alpha="steep")


def test_a_leaf_of_another_shape_makes_another_call():
    x = array(1, 2)
    y = F.sum(x)
    y.forward()
    x.reset_shape((3,), force=True)
    x.d = [1, 2, 3]
    y.forward()
    assert float(y.d) == 6
    assert y.parent.input_specs == (x.spec,)


def test_floating_point_warnings_of_a_kernel_are_not_heard():
    with nnl.auto_forward():
        assert F.log(array(0.0)).d.tolist() == [-np.inf]
        assert (array(3e38) + array(3e38)).d.tolist() == [np.inf]
