"""Variables as Python and NumPy see them: copies, pickles, truth, membership, iteration, arrays."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import GraphError, NnlError


def leaf(values, dtype=np.float64):
    return Variable.from_numpy_array(np.array(values, dtype), need_grad=True)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda variable: pickle.loads(pickle.dumps(variable)),
}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_a_copy_of_a_leaf_is_a_leaf_of_its_own(make):
    original = nnl.Parameter((2,), name="weight").apply(d=[1, 2], g=[3, 4], persistent=True)
    twin = make(original)
    original.d, original.g = 0, 0
    np.testing.assert_array_equal([twin.d, twin.g], [[1, 2], [3, 4]])
    assert type(twin) is nnl.Parameter
    assert (twin.name, twin.need_grad, twin.persistent) == ("weight", True, True)
    twin.need_grad = False
    assert original.need_grad


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_a_copy_of_an_output_is_refused_with_a_remedy(make):
    with pytest.raises(GraphError, match="unlinked"):
        make(leaf([1.0]) * 2)


def test_an_unlinked_output_may_be_copied():
    y = leaf([1.0]) * 2
    y.forward()
    np.testing.assert_array_equal(copy.deepcopy(y.unlinked).d, [2])


def test_containers_of_leaves_may_be_copied():
    weights = {"a": leaf([1.0]), "b": leaf([2.0])}
    weights["tied"] = weights["a"]
    twins = copy.deepcopy(weights)
    assert twins["tied"] is twins["a"] is not weights["a"]


@pytest.mark.parametrize("convert", [np.asarray, np.array], ids=["asarray", "array"])
def test_an_array_of_a_variable_holds_a_copy_of_its_elements(convert):
    y = leaf([[1.0, 2.0]]) * 2
    array = convert(y)
    assert type(array) is np.ndarray and array.dtype == np.float64
    array[:] = 0
    np.testing.assert_array_equal(y.d, [[2, 4]])
    assert convert(y, np.float32).dtype == np.float32
    np.testing.assert_array_equal(convert([leaf(1.0), leaf(2.0)]), [1, 2])


@pytest.mark.parametrize(
    "ufunc", [np.exp, lambda x: np.add(x, 1), np.sum], ids=["exp", "add", "sum"]
)
def test_numpy_functions_refuse_variables_rather_than_lose_the_gradient(ufunc):
    with pytest.raises(TypeError):
        ufunc(leaf([1.0, 2.0]))


def test_arrays_and_numbers_on_the_left_give_variables():
    x = leaf([1.0, 2.0])
    for y, expected in [
        (np.ones(2) + x, [2, 3]),
        (np.float64(2) * x, [2, 4]),
        (x.d - x, [0, 0]),
        (np.ones((2, 2)) @ x, [3, 3]),
        (np.full(2, 1.5) < x, [False, True]),
    ]:
        assert isinstance(y, Variable)
        np.testing.assert_array_equal(y.d, expected)


def test_the_truth_of_one_element_is_its_own_and_of_several_is_an_error():
    assert bool(leaf([2.0]) == leaf([2.0])) and not leaf(0.0)
    with pytest.raises(GraphError, match=r"\(2,\).*reduce"):
        bool(leaf([1.0, 2.0]) == leaf([1.0, 2.0]))


def test_membership_is_found_by_identity_first():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    assert x in [x, y] and x in {x: 1} and y not in {x}


@pytest.mark.parametrize("other", [None, "a", object()], ids=["None", "text", "object"])
def test_a_variable_is_never_equal_to_what_is_no_array(other):
    x = leaf([1.0])
    assert (x == other) is False and (x != other) is True
    with pytest.raises(TypeError):
        x < other  # noqa: B015  # the comparison itself is what fails


def test_iteration_goes_over_the_first_axis():
    rows = list(leaf([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal([row.d for row in rows], [[1, 2], [3, 4]])
    assert list(leaf(np.zeros((0, 2)))) == []
    with pytest.raises(TypeError, match="0-d"):
        iter(leaf(1.0))


@pytest.mark.parametrize(
    "wrong", ["text", None, [1j], [object()]], ids=["text", "None", "complex", "object"]
)
def test_a_variable_is_not_made_of_what_is_no_number(wrong):
    with pytest.raises(NnlError):
        Variable.from_numpy_array(wrong)
    with pytest.raises(NnlError):
        F.add(leaf([1.0]), wrong)
