"""Half precision on the NumPy backend: computed in float32, rounded once, in one place."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.graph.dtypes import as_dtype
from nnl_core.graph.operator import _registry, defop

HALF = ["float16", "bfloat16"]


def given(values, dtype):
    return Variable.from_numpy_array(np.array(values, as_dtype(dtype)), need_grad=True)


@pytest.fixture
def seen(monkeypatch):
    """The dtypes that a planted operator's reference, and its kernel, are given."""
    found = []
    operator = defop("planted::watched")(lambda x: found.append(x.dtype) or x + 1)
    monkeypatch.delitem(_registry, "planted::watched")
    operator.infer(lambda x: x)
    return operator, found


@pytest.mark.parametrize("with_kernel", [False, True])
@pytest.mark.parametrize("dtype", HALF)
def test_neither_reference_nor_kernel_sees_half(seen, dtype, with_kernel):
    operator, found = seen
    if with_kernel:
        operator.kernel("numpy", lambda x, out: found.append(x.dtype) or np.add(x, 1, out=out))
    y = operator(given([1, 2], dtype))
    static = y.d
    with nnl.auto_forward():
        dynamic = operator(given([1, 2], dtype)).d
    assert set(found) == {np.dtype(np.float32)}
    for result in (static, dynamic):
        assert result.dtype == as_dtype(dtype)
        np.testing.assert_array_equal(result.astype(float), [2, 3])


def test_other_dtypes_reach_the_reference_as_they_are(seen):
    operator, found = seen
    for dtype in ("float64", "float32", "int8", "bool"):
        operator(given([1, 0], dtype)).forward()
    assert [dtype.name for dtype in found] == ["float64", "float32", "int8", "bool"]


@pytest.mark.parametrize("dtype", HALF)
def test_a_long_sum_does_not_stop_where_ones_vanish(dtype):
    """The mean of 2**13 ones: in half, their sum would stop at 2**11, or 2**8."""
    ones = given(np.ones(2**13), dtype)
    assert float(F.mean(ones).d) == 1
    assert float(F.matmul(ones, ones).d) == 2**13
    assert float(F.sum_pooling(F.reshape(ones, (1, 1, 2**13)), (2**13,)).d.item()) == 2**13


@pytest.mark.parametrize("dtype", HALF)
def test_a_result_is_that_of_float32_rounded_once(dtype):
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=(9, 9)).astype(as_dtype(dtype)) for _ in range(2))
    wide = a.astype(np.float64) @ b.astype(np.float64)
    result = F.matmul(a, b).d
    last_bit = 2.0**-10 if dtype == "float16" else 2.0**-7
    assert np.all(np.abs(result.astype(float) - wide) <= 0.51 * last_bit * np.abs(wide) + 1e-6)


def test_what_overflows_inside_an_operator_does_not_overflow():
    """The norm of (300, 400), whose squares are beyond float16, is 500."""
    assert float(F.norm(given([300, 400], "float16")).d) == 500
    rows = F.layer_normalization(given([[-30000, 30000]], "float16"), None, None)
    np.testing.assert_allclose(rows.d, [[-1, 1]], rtol=1e-3)


def test_the_gradient_of_an_operator_that_needs_float32_is_computed_in_it():
    """d norm / dx = x / norm, by way of squares in some rules."""
    x = given([30000, 40000], "float16")
    y = F.norm(x)
    y.forward()
    y.backward()
    np.testing.assert_allclose(x.g, [0.6, 0.8], rtol=1e-3)
    assert x.g.dtype == np.float16


@pytest.mark.parametrize("dtype", HALF)
def test_views_share_the_elements_without_conversion(dtype):
    x = given(np.arange(6), dtype)
    y = F.transpose(F.reshape(x, (2, 3)), (1, 0)) * 1.0
    np.testing.assert_array_equal(y.d.astype(float), [[0, 3], [1, 4], [2, 5]])
    y.backward(np.array([[1, 2], [3, 4], [5, 6]]))
    np.testing.assert_array_equal(x.g.astype(float), [1, 3, 5, 2, 4, 6])


@pytest.mark.parametrize("dtype", HALF)
def test_constants_folded_beforehand_are_rounded_as_at_a_run(dtype):
    constant = Variable.constant(np.array([1 / 3], as_dtype(dtype)))
    x = given([0], dtype)
    y = F.exp(constant) * 3.0 + x
    folded = y.d.copy()
    with nnl.auto_forward():
        constant = Variable.constant(np.array([1 / 3], as_dtype(dtype)))
        np.testing.assert_array_equal(folded, (F.exp(constant) * 3.0 + x).d)


@pytest.mark.parametrize("dtype", HALF)
def test_fused_groups_round_after_each_operator_as_single_ones_do(dtype):
    rng = np.random.default_rng(4)
    values = rng.normal(size=(70, 1000)).astype(as_dtype(dtype))  # several blocks

    def chain(x):
        return F.tanh(F.sigmoid(x * 1.7) * x - 0.3)

    fused = chain(given(values, dtype)).d
    with nnl.auto_forward():
        single = chain(given(values, dtype)).d
    np.testing.assert_array_equal(fused, single)
