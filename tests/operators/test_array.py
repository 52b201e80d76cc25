"""Shapes, joins, borders and diagonals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
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


# Shape -------------------------------------------------------------------------------------------


def test_reshape_keeps_a_free_length_free_when_the_input_changes_shape() -> None:
    x = Variable((2, 3))
    y = F.reshape(x, (-1, 3))
    x.reset_shape((4, 3), force=True)
    y.forward()
    assert y.shape == (4, 3)


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((4, 2), "6 elements do not fill"),
        ((-1, 4), "6 elements do not fill"),
        ((-1, -1), "one -1"),
        ((-2, 3), "one -1"),
        ((-1, 0), "any length"),
    ],
)
def test_reshape_names_what_does_not_fit(shape: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(ShapeError, match=sentence):
        F.reshape(leaf(2, 3), shape)


def test_reshape_shares_no_memory_with_its_input() -> None:
    x = leaf(2, 3)
    y = F.reshape(x, (6,))
    y.forward()
    x.d = 0.0
    np.testing.assert_array_equal(y.d, np.arange(6))


def test_transpose_of_a_view_of_a_view_is_right_when_compiled() -> None:
    x = leaf(2, 3, 4)
    y = F.reshape(F.flip(F.transpose(F.add_scalar(x, 1), (2, 0, 1)), (0,)), (8, 3))
    z = F.add_scalar(F.transpose(y, (1, 0)), 1)
    z.forward(clear_buffer=True)
    expected = (x.d + 1).transpose(2, 0, 1)[::-1].reshape(8, 3).T + 1
    np.testing.assert_array_equal(z.d, expected)


def test_transpose_refuses_axes_that_are_no_permutation() -> None:
    with pytest.raises(ShapeError, match=r"axes \(0, 0\)"):
        F.transpose(leaf(2, 3), (0, 0))
    with pytest.raises(ShapeError, match="each of the 2 axes once"):
        F.transpose(leaf(2, 3), (0,))


def test_squeeze_refuses_an_axis_that_is_longer_than_one() -> None:
    with pytest.raises(ShapeError, match="axis 1 has length 3"):
        F.squeeze(leaf(1, 3), 1)


def test_shape_arguments_may_be_arrays_and_must_be_integers() -> None:
    assert F.broadcast(leaf(1, 3), np.array([2, 3])).shape == (2, 3)
    with pytest.raises(OperatorError, match="integers"):
        F.reshape(leaf(2, 2), (2.0, 2.0))  # type: ignore[arg-type]


def test_broadcast_to_with_two_variables_broadcasts_the_second_from_an_axis_on() -> None:
    x, y = leaf(2, 3, 4), leaf(3)
    np.testing.assert_array_equal(
        F.broadcast_to(x, y, 1).d, np.broadcast_to(y.d[:, None], (2, 3, 4))
    )


# Joining and dividing ----------------------------------------------------------------------------


def test_concatenate_takes_the_last_axis_unless_told() -> None:
    assert F.concatenate(leaf(2, 3), leaf(2, 1)).shape == (2, 4)


def test_concatenate_and_stack_refuse_shapes_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="along axis 1 only"):
        F.concatenate(leaf(2, 3), leaf(3, 3), axis=1)
    with pytest.raises(ShapeError, match="one shape"):
        F.stack(leaf(2), leaf(3))
    with pytest.raises(ShapeError, match="nothing to stack"):
        F.stack()


def test_concatenate_of_two_widths_takes_the_wider_and_keeps_gradients_narrow() -> None:
    narrow = Variable.from_numpy_array(np.ones(2, np.float32), need_grad=True)
    y = F.concatenate(narrow, leaf(3))
    assert y.dtype == np.float64
    (g,) = grad(y, narrow)
    assert g.dtype == np.float32


def test_split_gives_one_array_for_each_position_and_drops_the_axis() -> None:
    x = leaf(2, 3, 4)
    parts = F.split(x, axis=-2)
    assert [part.shape for part in parts] == [(2, 4)] * 3
    for position, part in enumerate(parts):
        np.testing.assert_array_equal(part.d, x.d[:, position])


def test_split_of_a_single_position_gives_a_list_of_one() -> None:
    (part,) = F.split(leaf(1, 3))
    assert part.shape == (3,)


def test_split_has_zero_gradient_where_a_part_is_not_used() -> None:
    x = leaf(3, 2)
    parts = F.split(x)
    np.testing.assert_array_equal(gradient(F.mul_scalar(parts[1], 5), x), [[0, 0], [5, 5], [0, 0]])


def test_split_of_an_empty_axis_is_an_error() -> None:
    with pytest.raises(ShapeError, match="no parts"):
        F.split(leaf(2, 0), axis=1)


def test_meshgrid_is_that_of_numpy() -> None:
    axes = [leaf(2), leaf(3), leaf(4)]
    for ij_indexing, indexing in ((True, "ij"), (False, "xy")):
        ours = F.meshgrid(*axes, ij_indexing=ij_indexing)
        for one, other in zip(
            ours, np.meshgrid(*(v.d for v in axes), indexing=indexing), strict=True
        ):
            np.testing.assert_array_equal(one.d, other)


def test_zeros_and_ones_like_keep_shape_and_dtype_whatever_the_elements() -> None:
    x = Variable.from_numpy_array(np.array([np.nan, np.inf], np.float16))
    assert F.zeros_like(x).d.tolist() == [0, 0]
    assert F.ones_like(x).d.tolist() == [1, 1]
    assert F.zeros_like(x).dtype == np.float16


def test_shape_gives_integers() -> None:
    y = F.shape(leaf(2, 3, 4), 1)
    assert y.d.tolist() == [3, 4]
    assert y.dtype.kind == "i"


# Borders -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.data(),
    st.sampled_from([("constant", "constant"), ("reflect", "reflect"), ("repeat", "edge")]),
)
def test_pad_is_that_of_numpy(
    shape: list[int], data: st.DataObject, modes: tuple[str, str]
) -> None:
    axes = data.draw(st.integers(0, len(shape)))
    widths = data.draw(st.lists(st.integers(0, 9), min_size=2 * axes, max_size=2 * axes))
    pairs = [(0, 0)] * (len(shape) - axes) + list(zip(widths[::2], widths[1::2], strict=True))
    x = leaf(*shape)
    y = F.pad(x, widths, modes[0])
    np.testing.assert_array_equal(y.d, np.pad(x.d, pairs, modes[1]))  # type: ignore[call-overload]
    weights = np.arange(float(y.size)).reshape(y.shape)
    sources = np.pad(np.arange(1, x.size + 1).reshape(shape), pairs, modes[1])  # type: ignore[call-overload]
    sums = np.bincount(sources.ravel(), weights.ravel(), x.size + 1)[1:]
    np.testing.assert_array_equal(gradient(y, x, weights), sums.reshape(shape))


@pytest.mark.parametrize(
    ("values", "border", "expected"),
    [
        ([3, -1], 0.5, [0.5, 3, -1]),
        ([3, -1], -2, [-2, 3, -1]),
        ([True, False], 0, [False, True, False]),
        ([True, False], -2, [-2, 1, 0]),
    ],
)
def test_a_padding_that_the_elements_cannot_hold_widens_them(
    values: list[int], border: float, expected: list[float]
) -> None:
    y = F.pad(np.array(values), (1, 0), constant_value=border)
    assert y.d.tolist() == expected
    with pytest.raises(ShapeError, match="uint8 cannot hold -2"):
        F.pad(np.ones(2, np.uint8), (1, 0), constant_value=-2)


def test_pad_names_what_it_cannot_do() -> None:
    with pytest.raises(ShapeError, match="constant, reflect, repeat"):
        F.pad(leaf(2), (1, 1), "wrap")
    with pytest.raises(ShapeError, match="a pair of widths"):
        F.pad(leaf(2), (1,))
    with pytest.raises(ShapeError, match="slice to cut"):
        F.pad(leaf(2), (-1, 0))
    with pytest.raises(ShapeError, match="nothing to reflect"):
        F.pad(leaf(2, 0), (1, 0), "reflect")


def test_shift_moves_the_border_in() -> None:
    x = Variable.from_numpy_array(np.array([1.0, 2.0, 3.0]))
    assert F.shift(x, (1,)).d.tolist() == [1, 1, 2]
    assert F.shift(x, (-2,)).d.tolist() == [3, 3, 3]
    assert F.shift(x, (2,), "reflect").d.tolist() == [2, 1, 1]
    assert F.shift(x, (-2,), "reflect").d.tolist() == [3, 3, 2]
    assert F.shift(x).d.tolist() == [1, 2, 3]


# Diagonals ---------------------------------------------------------------------------------------


def test_matrix_diag_part_undoes_matrix_diag() -> None:
    x = leaf(2, 3)
    y = F.matrix_diag(x)
    np.testing.assert_array_equal(y.d, np.stack([np.diag(row) for row in x.d]))
    np.testing.assert_array_equal(F.matrix_diag_part(y).d, x.d)


def test_matrix_diag_part_refuses_what_is_not_square() -> None:
    with pytest.raises(ShapeError, match="square"):
        F.matrix_diag_part(leaf(2, 3))


# Both graphs -------------------------------------------------------------------------------------


def test_dynamic_graph_gives_values_of_its_own() -> None:
    x = leaf(2, 3)
    with auto_forward():
        y = F.transpose(x, (1, 0))
        z = F.reshape(y, (6,))
    x.d = 0.0
    np.testing.assert_array_equal(z.d, np.arange(6.0).reshape(2, 3).T.ravel())
    assert y.d.flags.c_contiguous
