"""Storage of values: what assignment keeps, converts and refuses; what counts as a write."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnl_core.errors import ClearedError, ShapeError
from nnl_core.graph import NdArray, Spec, Variable


def make(shape=(2, 3), dtype="float32"):
    return NdArray(Spec(shape, np.dtype(dtype)))


def test_a_failed_assignment_keeps_the_old_elements():
    x = Variable((2, 3))
    x.d = np.arange(6).reshape(2, 3)
    with pytest.raises(ShapeError, match=r"\(5, 5\).*\(2, 3\)"):
        x.d = np.zeros((5, 5))
    np.testing.assert_array_equal(x.d, np.arange(6).reshape(2, 3))


def test_assignment_broadcasts():
    x = Variable((2, 3))
    x.d = [1, 2, 3]
    np.testing.assert_array_equal(x.d, [[1, 2, 3], [1, 2, 3]])


def test_assignment_converts_to_the_declared_dtype():
    x = Variable((3,))
    x.d = np.array([1.5, 2.5, 3.5])
    assert x.dtype == np.float32 and x.d.dtype == np.float32


def test_integers_too_large_for_the_dtype_are_refused_with_a_remedy():
    x = Variable((1,))
    with pytest.raises(ShapeError, match="dtype=int64"):
        x.d = np.array([2**24 + 1])


def test_a_finite_value_that_would_become_infinite_is_refused():
    x = Variable((1,))
    with pytest.raises(ShapeError, match="cannot hold"):
        x.d = np.array([1e300])


def test_infinities_and_nan_may_be_assigned():
    x = Variable((3,))
    x.d = np.array([np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(x.d, np.array([np.inf, -np.inf, np.nan], np.float32))


def test_fractions_are_refused_by_an_integer_variable():
    x = Variable((1,), dtype="int64")
    with pytest.raises(ShapeError, match="cannot hold"):
        x.d = [0.5]


@pytest.mark.parametrize("value", [np.array([1j]), np.array(["a"]), np.array([None])])
def test_what_is_not_a_number_is_refused(value):
    with pytest.raises(ShapeError, match="cannot assign"):
        Variable((1,)).d = value


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_integer_is_stored_exactly_or_refused(number):
    array = make(())
    try:
        array.write(np.array(number))
    except ShapeError:
        assert int(np.float32(number)) != number or number == 2**63 - 1
    else:
        assert int(array.read()) == number


def test_an_unassigned_leaf_is_zero():
    np.testing.assert_array_equal(Variable((2,)).d, [0, 0])


def test_a_cleared_array_cannot_be_read():
    array = make()
    array.write(1)
    array.clear()
    with pytest.raises(ClearedError, match="persistent"):
        array.read()


def test_writing_after_clear_makes_it_readable():
    array = make()
    array.clear()
    array.write(2)
    assert array.read().sum() == 12


@pytest.mark.parametrize(
    "write",
    [
        lambda d: d.__setitem__(0, 1),
        lambda d: d[0].__setitem__(0, 1),
        lambda d: d.__iadd__(1),
        lambda d: d.fill(3),
        lambda d: d.sort(),
        lambda d: np.copyto(d, 2),
        lambda d: np.multiply(d, 2, out=d),
        lambda d: np.put(d, [0], 5),
        lambda d: d.put([0], 5),
        lambda d: d.partition(1),
        lambda d: d.setfield(5, np.float32),
        lambda d: setattr(d, "real", 5),
        lambda d: setattr(d, "flat", 5),
        lambda d: np.add.at(d, 0, 5),
        lambda d: np.concatenate([np.ones((1, 3)), np.ones((1, 3))], out=d, casting="unsafe"),
        lambda d: np.dot(np.eye(2, dtype=np.float32), np.ones((2, 3), np.float32), out=d),
    ],
    ids=[
        *("setitem", "part", "iadd", "fill", "sort", "copyto", "out", "put"),
        *("put method", "partition", "setfield", "real", "flat", "at", "concatenate", "dot"),
    ],
)
def test_writes_through_the_view_are_counted(write):
    array = make()
    array.write(np.ones((2, 3)))
    before = array.version
    write(array.data)
    assert array.version > before


def test_no_two_writes_have_one_number_whatever_they_wrote_to():
    first, second = make(), make()
    assert first.version != second.version
    first.write(1)
    second.write(1)
    assert first.version != second.version


def test_elements_are_not_written_unseen_through_an_iterator():
    x = Variable((2, 3))
    with pytest.raises(ValueError, match="read-only"):
        x.d.flat[0] = 1
    assert list(x.d.flat) == [0] * 6


@pytest.mark.parametrize(
    "use",
    [
        lambda d: d + 1,
        lambda d: d.sum(),
        lambda d: d.copy().fill(0),
        lambda d: (d * 2).__setitem__(0, 9),
        lambda d: np.concatenate([d, d]).fill(0),
        lambda d: copy.deepcopy(d).fill(1),
        lambda d: d[0],
        lambda d: repr(d),
    ],
    ids=["add", "sum", "copy", "product", "concatenate", "deepcopy", "part", "repr"],
)
def test_reading_and_changing_copies_are_not_writes(use):
    array = make()
    array.write(np.ones((2, 3)))
    before = array.version
    use(array.data)
    assert array.version == before
    np.testing.assert_array_equal(array.read(), np.ones((2, 3)))


def test_arithmetic_on_a_view_gives_plain_arrays():
    x = Variable((2,))
    assert type(x.d + x.d) is np.ndarray and type(x.d.copy()) is np.ndarray


def test_zero_is_logical_until_read():
    array = make()
    array.write(5)
    array.zero()
    np.testing.assert_array_equal(array.read(), np.zeros((2, 3)))


def test_relocation_keeps_the_elements_and_shares_the_block():
    array = make((2,))
    array.write([1, 2])
    block = np.zeros(4, np.float32)
    array.relocate(block[1:3])
    np.testing.assert_array_equal(block, [0, 1, 2, 0])
    array.write([3, 4])
    np.testing.assert_array_equal(block, [0, 3, 4, 0])


def test_from_numpy_array_keeps_the_dtype_and_copies():
    source = np.arange(3)
    variable = Variable.from_numpy_array(source)
    source[0] = 9
    assert variable.dtype == np.int64 and variable.d[0] == 0


def test_arrays_of_another_byte_order_are_converted():
    variable = Variable.from_numpy_array(np.array([1.5, 2], ">f4"))
    assert variable.dtype == np.float32 and variable.dtype.isnative
    np.testing.assert_array_equal(variable.d, [1.5, 2])


def test_elements_lie_in_c_order_wherever_they_came_from():
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    for source in (fortran, fortran[::-1, ::2], np.broadcast_to(1.0, (2, 3))):
        variable = Variable.from_numpy_array(source)
        assert variable.d.flags.c_contiguous
        np.testing.assert_array_equal(variable.d, source)
