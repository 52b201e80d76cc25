"""Dtypes: bfloat16 wherever a dtype is named, and what is said where its library is missing."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Parameter, Variable
from nnl_core.errors import BackendError, ShapeError
from nnl_core.graph.dtypes import as_dtype, bfloat16, is_floating, is_half, is_real

THIRD = 171 / 512  # 1/3 to the eight bits of bfloat16


def test_the_name_is_a_dtype_of_two_bytes():
    assert as_dtype("bfloat16") == bfloat16() and bfloat16().itemsize == 2


def test_a_dtype_of_this_machine_is_the_one_that_numpy_is_fast_with():
    assert as_dtype("float32") is np.dtype(np.float32)


def test_a_dtype_comes_in_the_byte_order_of_the_machine():
    assert as_dtype(">f4") == np.dtype(np.float32) and as_dtype(">f4").isnative


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_floating_dtypes_are_known(name):
    dtype = as_dtype(name)
    assert is_floating(dtype) and is_real(dtype)
    assert is_half(dtype) == name.endswith("16")


@pytest.mark.parametrize("name", ["int16", "uint16", "bool", "V2", "complex64", "U1"])
def test_what_is_not_floating_is_known(name):
    assert not is_floating(np.dtype(name)) and not is_half(np.dtype(name))


def test_a_variable_holds_it_and_rounds_what_is_assigned():
    x = Variable((2,), dtype="bfloat16")
    x.d = [1 / 3, 1e38]
    assert x.dtype == bfloat16() and x.d.dtype == bfloat16()
    assert float(x.d[0]) == THIRD and float(x.d[1]) == pytest.approx(1e38, rel=2**-8)


def test_numbers_that_it_cannot_hold_are_refused():
    x = Variable((1,), dtype="bfloat16")
    with pytest.raises(ShapeError, match="bfloat16 cannot hold these float64 values"):
        x.d = np.array([1e300])
    with pytest.raises(ShapeError, match="bfloat16 cannot hold these int64 values exactly"):
        x.d = np.array([257])


def test_numbers_of_its_range_are_refused_by_float16():
    x = Variable((1,), dtype="float16")
    with pytest.raises(ShapeError, match="float16 cannot hold these bfloat16 values"):
        x.d = np.array([1e30], bfloat16())


def test_an_array_of_it_becomes_a_variable_and_a_constant():
    x = Variable.from_numpy_array(np.array([1.5, -2.0], bfloat16()), need_grad=True)
    y = x + np.array([1.0, 1.0], bfloat16())
    assert y.dtype == bfloat16() and y.need_grad
    np.testing.assert_array_equal(y.d.astype(float), [2.5, -1.0])


def test_casts_go_there_and_back():
    x = Variable.from_numpy_array(np.float32([1 / 3]), need_grad=True)
    there = F.cast(x, "bfloat16")
    back = F.cast(there, np.float32)
    assert there.dtype == bfloat16() and back.dtype == np.float32
    np.testing.assert_array_equal(back.d, np.float32([THIRD]))
    back.backward()
    np.testing.assert_array_equal(x.g, [1])


def test_gradients_are_of_it_and_flow_through_it():
    x = Variable((3,), need_grad=True, dtype="bfloat16")
    x.d = [1, 2, 3]
    loss = F.sum(x * x)
    loss.forward()
    loss.backward()
    assert x.g.dtype == bfloat16()
    np.testing.assert_array_equal(x.g.astype(float), [2, 4, 6])


def test_a_variable_of_it_is_copied_and_pickled():
    x = Variable((2,), dtype="bfloat16")
    x.d = [0.5, -3]
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other.dtype == bfloat16()
        np.testing.assert_array_equal(other.d.astype(float), [0.5, -3])


def test_a_parameter_of_it_starts_from_an_initializer_and_is_updated():
    w = Parameter((2, 2), dtype="bfloat16", name="w")
    w.d = nnl.I.ConstantInitializer(1.0)((2, 2))
    solver = nnl.S.Sgd(0.5)
    solver.set_parameters({"w": w})
    nnl.compile_step(F.sum(w), solver).run()
    np.testing.assert_array_equal(w.d.astype(float), np.full((2, 2), 0.5))


def test_an_other_unknown_dtype_is_refused():
    with pytest.raises(ShapeError, match="cannot hold complex64"):
        Variable((1,), dtype="complex64")


# The library -------------------------------------------------------------------------------------


def test_it_is_imported_when_it_is_asked_for_and_not_before():
    program = (
        "import sys, nnl_core as nnl; from nnl_core import F; F.relu(nnl.Variable((2,))).d\n"
        "assert 'ml_dtypes' not in sys.modules\n"
        "nnl.Variable((2,), dtype='bfloat16').d\n"
        "assert 'ml_dtypes' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "use",
    [
        lambda: Variable((1,), dtype="bfloat16"),
        lambda: F.cast(Variable((1,)), "bfloat16"),
        lambda: nnl.mixed_precision("bfloat16").__enter__(),
    ],
    ids=["variable", "cast", "mixed_precision"],
)
def test_without_its_library_the_error_names_what_to_install(use, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(BackendError, match=r"pip install 'nnl-core\[standard\]'"):
        use()
