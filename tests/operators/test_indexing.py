"""Slices, brackets, gathering, scattering and masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import NnlError, OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.variable import Variable


def leaf(*shape: int) -> Variable:
    """Return different numbers, the gradient wanted."""
    return Variable.from_numpy_array(
        np.arange(np.prod(shape), dtype=np.float64).reshape(shape), need_grad=True
    )


def gradient(y: Variable, x: Variable, weights: np.ndarray | float = 1.0) -> np.ndarray:
    y.forward()
    y.backward(weights)
    return np.array(x.g)


# Slices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [
        ([None], [None], [-1]),
        ([3], [None], [-2]),
        ([0], [2], [-1]),
        ([-1, 0], [None, 2], [-1, 1]),
        ([0, 0, 1], [6, -1, -2], [1, 1, 1]),
    ],
)
def test_slice_is_that_of_python(start: list[Any], stop: list[Any], step: list[Any]) -> None:
    x = leaf(4, 5, 6)
    key = tuple(slice(*parts) for parts in zip(start, stop, step, strict=True))
    last_axes = (..., *key)
    np.testing.assert_array_equal(F.slice(x, start, stop, step).d, x.d[last_axes])


def test_slice_without_lists_is_everything() -> None:
    assert F.slice(leaf(2, 3)).shape == (2, 3)
    assert F.slice(leaf(2, 3), stop=(1, 2)).shape == (1, 2)


def test_slice_names_lists_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="differ in length"):
        F.slice(leaf(2, 3), (0, 0), (1,))
    with pytest.raises(ShapeError, match="positions for the axes"):
        F.slice(leaf(2), (0, 0), (1, 1))
    with pytest.raises(ShapeError, match="step cannot be zero"):
        F.slice(leaf(2), step=(0,))


# Brackets ----------------------------------------------------------------------------------------


@st.composite
def arrays_and_keys(draw: st.DrawFn) -> tuple[np.ndarray, Any]:
    """Return an array and a key that NumPy may or may not accept for it."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=0, max_size=4)))
    common = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    items: list[Any] = []
    axis = 0
    while axis < len(shape) and draw(st.integers(0, 9)):
        length = shape[axis]
        kind = draw(st.sampled_from(["int", "slice", "array", "mask", "new", "list"]))
        axis += kind != "new"
        if kind == "int":
            items.append(draw(st.integers(-length, length - 1)))
        elif kind == "slice":
            part = st.none() | st.integers(-6, 6)
            step = draw(st.none() | st.sampled_from([-3, -2, -1, 1, 2]))
            items.append(slice(draw(part), draw(part), step))
        elif kind == "array":
            own = common if draw(st.booleans()) else common[len(common) // 2 :]
            count = int(np.prod(own))
            values = draw(
                st.lists(st.integers(-length, length - 1), min_size=count, max_size=count)
            )
            items.append(np.array(values, np.int64).reshape(own))
        elif kind == "mask":
            axes = draw(st.integers(1, min(2, len(shape) - axis + 1)))
            found = shape[axis - 1 : axis - 1 + axes]
            count = int(np.prod(found))
            bits = draw(st.lists(st.booleans(), min_size=count, max_size=count))
            items.append(np.array(bits, bool).reshape(found))
            axis += axes - 1
        elif kind == "list":
            items.append(draw(st.lists(st.integers(-length, length - 1), max_size=3)))
        else:
            items.append(None)
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), ...)
    if draw(st.integers(0, 19)) == 0:
        items.insert(draw(st.integers(0, len(items))), draw(st.booleans()))
    key = items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)
    return np.arange(float(np.prod(shape))).reshape(shape), key


@settings(max_examples=300, deadline=None)
@given(arrays_and_keys())
def test_brackets_give_what_numpy_gives(case: tuple[np.ndarray, Any]) -> None:
    array, key = case
    x = Variable.from_numpy_array(array, need_grad=True)
    try:
        expected = array[key]
    except IndexError:
        with pytest.raises(NnlError):
            x[key].forward()
        return
    try:
        y = x[key]
    except OperatorError as error:
        # NumPy looks at no position where nothing is taken; NNL always does.
        assert "out of range" in str(error)
        assert not expected.size
        return
    y.forward()
    assert y.shape == np.shape(expected)
    np.testing.assert_array_equal(y.d, expected)
    weights = np.arange(1.0, y.size + 1).reshape(y.shape)
    sums = np.zeros_like(array)
    np.add.at(sums, key, weights)
    np.testing.assert_allclose(gradient(y, x, weights), sums, rtol=1e-12)


def test_brackets_take_variables_of_positions_read_at_each_run() -> None:
    x = leaf(3, 4)
    rows = Variable.from_numpy_array(np.array([0.0, 2.0], np.float32))
    columns = Variable.from_numpy_array(np.array([[1], [-1]]))
    y = x[rows, columns]
    y.forward()
    np.testing.assert_array_equal(y.d, x.d[[0, 2], [[1], [-1]]])
    rows.d = [1, 1]
    y.forward()
    np.testing.assert_array_equal(y.d, x.d[[1, 1], [[1], [-1]]])


def test_basic_brackets_are_one_node() -> None:
    y = leaf(3, 4, 5)[1, ..., None, ::-2]
    nodes: list[Any] = []
    y.visit(nodes.append)
    assert len(nodes) == 1


def test_brackets_pass_gradients_of_gradients() -> None:
    x = leaf(4)
    y = F.mul(x, x)[[1, 1, 3]]
    (first,) = grad(F.mul(y, y), x)
    (second,) = grad(first, x)
    np.testing.assert_array_equal(second.d, 12 * x.d**2 * [0, 2, 0, 1])


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (3, "index 3 is out of bounds for axis 0 with size 3"),
        (np.array([0, 3]), r"index of axis 0: index 3 is out of range \[-3, 3\)"),
        ((0, 0, 0), "too many indices: 3 for an array of 2 axes"),
        ((..., ...), "one ellipsis"),
        (1.0, "no index"),
        ([0.5], "no index"),
        ("a", "no index"),
        (slice(0.5, None), "parts must be integers"),
        (np.ones(4, bool), r"mask of shape \(4,\) does not fit axes of lengths \(3,\)"),
        (([0, 1], [0, 1, 2]), r"do not broadcast: shapes \(2,\), \(3,\)"),
    ],
)
def test_brackets_say_what_is_wrong(key: Any, sentence: str) -> None:
    with pytest.raises(NnlError, match=sentence):
        leaf(3, 4)[key]


def test_a_variable_is_no_mask_between_brackets() -> None:
    with pytest.raises(OperatorError, match="bool_gather"):
        leaf(3)[Variable((3,), dtype=bool)]


# Gathering and scattering ------------------------------------------------------------------------


def test_embed_sums_the_gradients_of_repeated_rows() -> None:
    w = leaf(4, 2)
    y = F.embed(np.array([[1, 3], [1, 1]]), w)
    np.testing.assert_array_equal(y.d, w.d[[[1, 3], [1, 1]]])
    weights = np.arange(8.0).reshape(2, 2, 2)
    expected = [[0, 0], weights[0, 0] + weights[1, 0] + weights[1, 1], [0, 0], weights[0, 1]]
    np.testing.assert_array_equal(gradient(y, w, weights), expected)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=60),
    st.sampled_from([1, 3, 700]),
    st.sampled_from([np.float32, np.float64]),
)
def test_sums_over_repeated_rows_are_those_of_double_precision_and_always_the_same(
    rows: list[int], width: int, dtype: type
) -> None:
    values = np.random.default_rng(len(rows)).normal(size=(len(rows), width)).astype(dtype)
    expected = np.zeros((6, width))
    for row, value in zip(rows, values, strict=True):
        expected[row] += value

    def sums() -> np.ndarray:
        w = Variable.from_numpy_array(np.zeros((6, width), dtype), need_grad=True)
        return gradient(F.embed(np.array(rows), w), w, values)

    result = sums()
    np.testing.assert_allclose(result, expected, rtol=0, atol=len(rows) * 4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(sums(), result)


def test_half_precision_sums_do_not_stall() -> None:
    w = Variable.from_numpy_array(np.zeros((1, 2), np.float16), need_grad=True)
    y = F.embed(np.zeros(4096, np.int64), w)
    assert gradient(y, w).tolist() == [[4096, 4096]]  # adding ones to 2048 in half does nothing


@pytest.mark.parametrize("index", [-1, 4])
def test_embed_names_an_index_out_of_range(index: int) -> None:
    y = F.embed(np.array([0, index]), leaf(4, 2))
    with pytest.raises(OperatorError, match=rf"index {index} is out of range \[0, 4\)"):
        y.forward()


def test_indices_in_floating_dtypes_must_be_whole() -> None:
    w = leaf(4, 2)
    np.testing.assert_array_equal(F.embed(np.array([3.0, 0.0], np.float32), w).d, w.d[[3, 0]])
    for wrong in (0.5, np.nan, np.inf):
        with pytest.raises(OperatorError, match=f"index {wrong} is not a whole number"):
            F.embed(np.array([0.0, wrong]), w).forward()


def test_gather_along_an_axis_in_batches() -> None:
    x = leaf(2, 3, 4)
    indices = np.array([[2, 0], [1, 1]])
    y = F.gather(x, indices, axis=1, batch_dims=1)
    np.testing.assert_array_equal(y.d, np.stack([x.d[0, [2, 0]], x.d[1, [1, 1]]]))


def test_gather_refuses_batches_that_do_not_agree() -> None:
    with pytest.raises(ShapeError, match="first 1 axes"):
        F.gather(leaf(2, 3), np.zeros((3, 1), int), axis=1, batch_dims=1)
    with pytest.raises(ShapeError, match="batch_dims 2"):
        F.gather(leaf(2, 3), np.zeros((2, 3), int), axis=1, batch_dims=2)


def test_gather_nd_and_scatter_nd_undo_each_other() -> None:
    x = leaf(3, 4, 2)
    indices = np.array([[0, -1, 1], [3, 0, -4]])
    taken = F.gather_nd(x, indices)
    np.testing.assert_array_equal(taken.d, x.d[[0, -1, 1], [3, 0, -4]])
    back = F.scatter_nd(taken, indices, shape=(3, 4, 2))
    np.testing.assert_array_equal(F.gather_nd(back, indices).d, taken.d)
    assert np.count_nonzero(back.d) == np.count_nonzero(taken.d)


def test_scatter_nd_adds_or_keeps_the_last_where_positions_repeat() -> None:
    data, indices = leaf(3), np.array([[1, 1, 0]])
    data.d = [1, 2, 4]
    assert F.scatter_nd(data, indices, shape=(3,), add=True).d.tolist() == [4, 3, 0]
    kept = F.scatter_nd(data, indices, shape=(3,))
    assert kept.d.tolist() == [4, 2, 0]
    # The slice that was overwritten has no influence.
    assert gradient(kept, data, np.array([5.0, 6.0, 7.0])).tolist() == [0, 6, 5]


def test_scatter_nd_into_an_array_leaves_that_array_alone() -> None:
    data, base = leaf(1), leaf(3)
    y = F.scatter_nd(data, np.array([[1]]), out=base)
    assert y.d.tolist() == [0, 0, 2]
    assert base.d.tolist() == [0, 1, 2]
    assert gradient(y, base, np.array([5.0, 6.0, 7.0])).tolist() == [5, 0, 7]


def test_scatter_nd_names_what_does_not_fit() -> None:
    with pytest.raises(OperatorError, match="either shape or out"):
        F.scatter_nd(leaf(2), np.array([[0, 1]]))
    with pytest.raises(ShapeError, match=r"data must have shape \(2, 4\)"):
        F.scatter_nd(leaf(2), np.array([[0, 1]]), shape=(3, 4))
    with pytest.raises(OperatorError, match=r"axis 0: index 5 is out of range \[-3, 3\)"):
        F.scatter_nd(leaf(2), np.array([[0, 5]]), shape=(3,)).forward()


def test_scatter_add_adds_single_elements() -> None:
    x0, x1 = leaf(3, 2), leaf(2, 2)
    y = F.scatter_add(x0, np.array([[2, 0], [2, 2]]), x1, axis=0)
    assert y.d.tolist() == [[0, 2], [2, 3], [6, 8]]


def test_one_hot_of_one_and_of_two_positions() -> None:
    assert F.one_hot(np.array([[2], [0]]), (3,)).d.tolist() == [[0, 0, 1], [1, 0, 0]]
    y = F.one_hot(np.array([[1, 2]]), (2, 3)).d
    assert y.shape == (1, 2, 3)
    assert np.argwhere(y).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_one_hot_counts_negative_labels_from_the_end(dynamic: bool) -> None:
    labels = Variable.from_numpy_array(np.array([[-1], [-3], [1]]))
    with auto_forward(dynamic):
        assert F.one_hot(labels, (3,)).d.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


def test_one_hot_names_a_label_out_of_range() -> None:
    with pytest.raises(OperatorError, match=r"index 3 is out of range \[-3, 3\)"):
        F.one_hot(np.array([[3]]), (3,)).forward()


# Masks -------------------------------------------------------------------------------------------


def test_bool_gather_and_scatter_undo_each_other() -> None:
    x, mask = leaf(2, 3, 2), np.array([[1, 0, 1], [0, 0, 1]])
    taken = F.bool_gather(x, mask)
    np.testing.assert_array_equal(taken.d, x.d[mask == 1])
    back = F.bool_scatter(taken, mask, x)
    np.testing.assert_array_equal(back.d, x.d)


def test_bool_gather_refuses_a_mask_that_chooses_another_number() -> None:
    mask = Variable.from_numpy_array(np.array([1, 0, 1]))
    y = F.bool_gather(leaf(3), mask)
    mask.d = [1, 1, 1]
    with pytest.raises(OperatorError, match="chooses 3 places where 2 were expected"):
        y.forward()


def test_bool_fill_of_integers_keeps_the_fraction_of_what_it_fills_in() -> None:
    assert F.bool_fill(np.array([3, 4]), np.array([1, 0]), 0.5).d.tolist() == [0.5, 4]


def test_bool_fill_is_not_poisoned_by_what_it_fills() -> None:
    x = Variable.from_numpy_array(np.array([np.nan, 2.0]), need_grad=True)
    y = F.bool_fill(x, np.array([1, 0]), 7)
    assert y.d.tolist() == [7, 2]
    assert gradient(y, x).tolist() == [0, 1]
