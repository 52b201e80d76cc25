"""Elements that move: views, copies in any layout, joins, borders, positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import OperatorError
from nnl_native.kernels.views import reshaped

LENGTHS = st.sampled_from([0, 1, 2, 3, 7, 8, 9, 17, 33])
DTYPES = st.sampled_from(["float32", "float64", "int8", "int64", "bool"])


@st.composite
def arrangements(draw, least=0):
    """Draw an array, and the variable of it whose axes lie in another order in memory."""
    shape = draw(st.lists(LENGTHS, min_size=least, max_size=4))
    order = draw(st.permutations(range(len(shape))))
    array = (np.arange(np.prod(shape, dtype=int)) % 127).astype(draw(DTYPES)).reshape(shape)
    memory = Variable.from_numpy_array(np.array(array.transpose(order), order="C"))
    return array, F.transpose(memory, np.argsort(order).tolist())


def computed(variable):
    variable.forward()
    return variable.d


fast = settings(max_examples=30, deadline=None)


@fast
@given(arrangement=arrangements(), data=st.data())
def test_axes_are_put_in_another_order(arrangement, data):
    array, x = arrangement
    axes = data.draw(st.permutations(range(array.ndim)))
    np.testing.assert_array_equal(computed(F.transpose(x, axes)), array.transpose(axes))


@fast
@given(arrangement=arrangements(), data=st.data())
def test_elements_keep_their_order_in_another_shape(arrangement, data):
    array, x = arrangement
    axis = data.draw(st.integers(0, array.ndim))
    shape = (-1, *array.shape[axis:]) if 0 not in array.shape[axis:] else array.shape[::-1]
    np.testing.assert_array_equal(computed(F.reshape(x, shape)), array.reshape(shape))


@fast
@given(arrangement=arrangements(least=1), data=st.data())
def test_slices_with_steps_both_ways_are_taken_and_put_back(arrangement, data):
    array, x = arrangement
    bound = st.none() | st.integers(-4, 12)
    step = st.sampled_from([None, 1, 2, 3, -1, -2])
    key = tuple(slice(data.draw(bound), data.draw(bound), data.draw(step)) for _ in array.shape)
    np.testing.assert_array_equal(computed(x[key]), array[key])
    g = array[key].astype(np.float32)
    expected = np.zeros(array.shape, np.float32)
    expected[key] = g
    source = Variable.from_numpy_array(np.zeros(array.shape, np.float32), need_grad=True)
    (dx,) = nnl.grad([source[key]], [source], grad_outputs=[Variable.from_numpy_array(g)])
    np.testing.assert_array_equal(computed(dx), expected)


@fast
@given(arrangement=arrangements(least=1), data=st.data())
def test_arrays_are_joined_along_any_axis_whatever_their_layout(arrangement, data):
    array, x = arrangement
    axis = data.draw(st.integers(0, array.ndim - 1))
    other = Variable.from_numpy_array(array)
    for joined, expected in (
        (F.concatenate(x, other, x, axis=axis), np.concatenate([array] * 3, axis)),
        (F.stack(x, other, axis=axis), np.stack([array] * 2, axis)),
    ):
        np.testing.assert_array_equal(computed(joined), expected)


def test_joining_converts_to_the_wider_type():
    whole, broken = np.array([1, 2], np.int64), np.array([0.5], np.float32)
    joined = computed(F.concatenate(whole, broken))
    assert joined.dtype == np.float32
    np.testing.assert_array_equal(joined, [1.0, 2.0, 0.5])


@fast
@given(
    arrangement=arrangements(least=1),
    mode=st.sampled_from(["constant", "reflect", "repeat"]),
    data=st.data(),
)
def test_borders_are_what_numpy_makes(arrangement, mode, data):
    array, x = arrangement
    widths = [
        data.draw(st.tuples(st.integers(0, 4), st.integers(0, 4))) if length > 1 else (0, 0)
        for length in array.shape
    ]
    if mode == "reflect":  # the function refuses more than there is
        widths = [
            tuple(min(width, length - 1) if length else 0 for width in pair)
            for pair, length in zip(widths, array.shape, strict=True)
        ]
    name = {"repeat": "edge"}.get(mode, mode)
    padded = F.pad(x, [width for pair in widths for width in pair], mode=mode)
    np.testing.assert_array_equal(computed(padded), np.pad(array, widths, name))


@fast
@given(arrangement=arrangements(), reps=st.lists(st.integers(0, 3), max_size=4))
def test_arrays_are_repeated_as_a_whole(arrangement, reps):
    array, x = arrangement
    np.testing.assert_array_equal(computed(F.tile(x, reps)), np.tile(array, reps))


@pytest.mark.parametrize(
    ("shape", "strides", "wanted", "expected"),
    [
        ((4, 6), (6, 1), (2, 2, 6), (12, 6, 1)),
        ((4, 6), (6, 1), (24,), (1,)),
        ((4, 6), (12, 1), (24,), None),
        ((4, 6), (1, 4), (2, 2, 6), (2, 1, 4)),
        ((4, 6), (1, 4), (24,), None),
        ((2, 3, 4), (12, 1, 3), (2, 3, 2, 2), (12, 1, 6, 3)),
        ((2, 0), (0, 1), (0, 5), (5, 1)),
    ],
)
def test_a_shape_is_seen_where_strides_reach_it(shape, strides, wanted, expected):
    assert reshaped(shape, strides, wanted) == expected


# Positions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
def test_rows_are_taken_and_their_gradients_added_where_they_repeat(dtype):
    rng = np.random.default_rng(0)
    table = rng.integers(-9, 9, (50, 130)).astype(np.float32)
    numbers = rng.integers(0, 50, (40, 3))
    w = Variable.from_numpy_array(table, need_grad=True)
    y = F.embed(Variable.from_numpy_array(numbers.astype(dtype)), w)
    np.testing.assert_array_equal(computed(y), table[numbers])
    g = rng.integers(-9, 9, y.shape).astype(np.float32)
    expected = np.zeros_like(table)
    np.add.at(expected, numbers, g)
    (dw,) = nnl.grad([y], [w], grad_outputs=[Variable.from_numpy_array(g)])
    np.testing.assert_array_equal(computed(dw), expected)


@pytest.mark.parametrize("bad", [50, -1, 10**9, 0.5, np.nan, np.inf])
def test_a_position_that_is_none_is_named(bad):
    table = Variable.from_numpy_array(np.zeros((50, 130), np.float32))
    numbers = np.zeros(40, np.asarray(bad).dtype)
    numbers[7] = bad
    with pytest.raises(OperatorError, match="index"):
        F.embed(Variable.from_numpy_array(numbers), table).forward()


def test_single_elements_are_taken_and_added_along_each_axis():
    rng = np.random.default_rng(1)
    x = rng.integers(-9, 9, (40, 50)).astype(np.float32)
    for axis in (0, 1):
        at = rng.integers(0, x.shape[axis], (30, 45))
        values = rng.integers(-9, 9, at.shape).astype(np.float32)
        rows, columns = np.indices(at.shape)
        key = (at, columns) if axis == 0 else (rows, at)
        np.testing.assert_array_equal(computed(F.gather_elements(x, at, axis=axis)), x[key])
        expected = x.copy()
        np.add.at(expected, key, values)
        np.testing.assert_array_equal(computed(F.scatter_add(x, at, values, axis=axis)), expected)


def test_slices_are_put_in_order_or_added():
    rng = np.random.default_rng(2)
    at = rng.integers(-4, 4, (2, 60))
    data = rng.integers(-9, 9, (60, 70)).astype(np.float32)
    last, summed = np.zeros((4, 4, 70), np.float32), np.zeros((4, 4, 70), np.float32)
    for row, column, values in zip(*at, data, strict=True):
        last[row, column] = values
        summed[row, column] += values
    np.testing.assert_array_equal(computed(F.scatter_nd(data, at, shape=(4, 4, 70))), last)
    put = F.scatter_nd(data, at, shape=(4, 4, 70), add=True)
    np.testing.assert_array_equal(computed(put), summed)
    np.testing.assert_array_equal(computed(F.gather_nd(summed, at)), summed[at[0], at[1]])


def test_one_hot_rows_hold_a_one():
    numbers = np.random.default_rng(3).integers(0, 70, (90, 1))
    expected = np.eye(70, dtype=np.float32)[numbers[:, 0]]
    np.testing.assert_array_equal(computed(F.one_hot(numbers, (70,))), expected)
