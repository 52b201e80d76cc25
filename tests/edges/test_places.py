"""Repeated positions, ties between equal elements, labels and positions given as floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnl_core import F, Variable
from nnl_core.errors import OperatorError
from nnl_core.graph.execute import forward_all

Differentiate = Callable[..., tuple[np.ndarray, ...]]
Evaluate = Callable[[Callable[[], Any]], np.ndarray]

# Repeated positions ------------------------------------------------------------------------------

ROWS = np.array([2, 0, 2, 2])
COLUMNS = np.stack([ROWS, ROWS], axis=1)

TAKES: dict[str, Callable[[Variable], Any]] = {
    "gather": lambda x: F.gather(x, ROWS, axis=0),
    "gather along the last axis": lambda x: F.transpose(
        F.gather(F.transpose(x, (1, 0)), ROWS, axis=-1), (1, 0)
    ),
    "gather in batches": lambda x: F.gather(F.reshape(x, (1, 3, 2)), ROWS[None], 1, 1)[0],
    "gather_elements": lambda x: F.gather_elements(x, COLUMNS, axis=0),
    "gather_nd": lambda x: F.gather_nd(x, ROWS[None]),
    "gather_nd from the end": lambda x: F.gather_nd(x, ROWS[None] - 3),
    "embed": lambda x: F.embed(ROWS, x),
    "getitem": lambda x: x[ROWS],
    "getitem of two axes": lambda x: x[ROWS[:, None], np.array([0, 1])],
    "getitem from the end": lambda x: x[ROWS - 3],
    "rows of a product": lambda x: F.matmul(np.eye(3)[ROWS], x),
    "concatenate": lambda x: F.concatenate(x[2:], x[:1], x[2:], x[2:], axis=0),
}


@pytest.mark.parametrize("take", TAKES.values(), ids=TAKES)
def test_a_place_taken_again_and_again_gets_all_gradients(
    take: Callable[[Variable], Any], differentiate: Differentiate
) -> None:
    x = np.arange(6.0).reshape(3, 2)
    weights = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0]])
    y, gradient = differentiate(lambda x: take(x) * weights, x)
    np.testing.assert_array_equal(y, x[ROWS] * weights)
    np.testing.assert_array_equal(gradient, [[2, 20], [0, 0], [13, 130]])


def test_a_box_given_twice_gets_both_gradients(differentiate: Differentiate) -> None:
    boxes = np.array([[0, 0, 0, 2, 2]] * 3)
    _, once = differentiate(lambda x: F.roi_align(x, boxes[:1], (2, 2)), np.ones((1, 1, 3, 3)))
    _, thrice = differentiate(lambda x: F.roi_align(x, boxes, (2, 2)), np.ones((1, 1, 3, 3)))
    np.testing.assert_allclose(thrice, 3 * once)
    np.testing.assert_allclose(once.sum(), 4)  # each result is a mean


def test_a_pixel_sampled_again_and_again_gets_all_gradients(differentiate: Differentiate) -> None:
    middle = np.zeros((1, 5, 1, 2))
    _, gradient = differentiate(lambda x: F.warp_by_grid(x, middle), np.ones((1, 1, 3, 3)))
    np.testing.assert_array_equal(gradient[0, 0], [[0, 0, 0], [0, 5, 0], [0, 0, 0]])


def test_windows_that_overlap_share_their_pixels(differentiate: Differentiate) -> None:
    counts = np.outer([1, 2, 2, 1], [1, 2, 2, 1])
    for build in (lambda x: F.unfold(x, (2, 2)), lambda x: F.sum_pooling(x, (2, 2), (1, 1))):
        _, gradient = differentiate(build, np.ones((1, 1, 4, 4)))
        np.testing.assert_array_equal(gradient[0, 0], counts)


ONES, ADDENDS = np.ones(3), np.array([1.0, 2.0, 4.0, 8.0])


@pytest.mark.parametrize(
    ("how", "expected", "dx", "dy"),
    [
        ("add", [3, 1, 14], [1, 1, 1], [1, 1, 1, 1]),
        ("mul", [2, 1, 32], [2, 1, 32], [32, 1, 8, 4]),
        ("mean", [1.5, 1, 3.5], [1 / 2, 1, 1 / 4], [1 / 4, 1 / 2, 1 / 4, 1 / 4]),
        ("max", [2, 1, 8], [0, 1, 0], [0, 1, 0, 1]),
        ("min", [1, 1, 1], None, None),
    ],
)
def test_positions_that_repeat_accumulate_by_the_reduction(
    how: str, expected: Any, dx: Any, dy: Any, differentiate: Differentiate
) -> None:
    """To (1, 1, 1) come 2 at the first place, and 1, 4 and 8 at the last."""
    y, first, second = differentiate(
        lambda x, y: F.scatter_elements(x, ROWS, y, axis=0, reduction=how), ONES, ADDENDS
    )
    np.testing.assert_allclose(y, expected)
    if dx is None:  # 1 is there and comes again: a tie, whose gradients sum to one
        np.testing.assert_allclose(np.add(first, [0, 0, second.sum()]), [1, 1, 1])
    else:
        np.testing.assert_allclose(first, dx)
        np.testing.assert_allclose(second, dy)


@pytest.mark.parametrize(
    "put",
    [
        lambda x, y: F.scatter_add(x, ROWS, y, axis=0),
        lambda x, y: x + F.scatter_nd(y, ROWS[None], shape=(3,), add=True),
        lambda x, y: x + F.gather_adjoint(y, ROWS, size=3, axis=0, batch_dims=0),
    ],
    ids=["scatter_add", "scatter_nd", "gather_adjoint"],
)
def test_what_is_added_to_a_place_again_and_again_adds_up(
    put: Callable[..., Any], differentiate: Differentiate
) -> None:
    y, dx, dy = differentiate(put, ONES, ADDENDS)
    np.testing.assert_array_equal(y, [3, 1, 14])
    np.testing.assert_array_equal(dx, ONES)
    np.testing.assert_array_equal(dy, np.ones(4))


@pytest.mark.parametrize(
    "put",
    [
        lambda x, y: F.scatter_elements(x, ROWS, y, axis=0),
        lambda x, y: F.scatter_nd(y, ROWS[None], out=x),
    ],
    ids=["scatter_elements", "scatter_nd"],
)
def test_of_values_set_at_one_place_the_last_stays_and_gets_the_gradient(
    put: Callable[..., Any], differentiate: Differentiate
) -> None:
    y, _, dy = differentiate(put, ONES, ADDENDS)
    np.testing.assert_array_equal(y, [2, 1, 8])
    np.testing.assert_array_equal(dy, [0, 1, 0, 1])


# Ties --------------------------------------------------------------------------------------------

EQUAL = np.full(4, 2.0)
ONE_WINNER: dict[str, Callable[[Variable], Any]] = {
    "max": F.max,
    "min": F.min,
    "largest of topk": lambda x: F.topk(x, 1)[0],
    "smallest of topk": lambda x: F.topk(x, 1, largest=False)[0],
    "top_k_data": lambda x: F.top_k_data(F.reshape(x, (1, 4)), 1),
    "first of sort": lambda x: F.sort(x)[0],
    "first of sort down": lambda x: F.sort(x, reverse=True)[0],
    "last of cummax": lambda x: F.cummax(x)[3],
    "last of cummin": lambda x: F.cummin(x)[3],
    "max_pooling": lambda x: F.max_pooling(F.reshape(x, (1, 1, 4)), (4,)),
    "infinite norm": lambda x: F.norm(x, p=np.inf),
}


@pytest.mark.parametrize("build", ONE_WINNER.values(), ids=ONE_WINNER)
def test_of_equal_elements_the_first_wins_and_gets_the_whole_gradient(
    build: Callable[[Variable], Any], differentiate: Differentiate
) -> None:
    y, gradient = differentiate(build, EQUAL)
    assert y == 2
    np.testing.assert_array_equal(gradient, [1, 0, 0, 0])


def test_running_from_behind_the_last_of_equal_elements_comes_first(
    differentiate: Differentiate,
) -> None:
    for function in (F.cummax, F.cummin):
        _, gradient = differentiate(lambda x, f=function: f(x, reverse=True)[0], EQUAL)
        np.testing.assert_array_equal(gradient, [0, 0, 0, 1])


@pytest.mark.parametrize("how", ["max", "min"])
def test_equal_elements_scattered_to_one_place_share_one_gradient(
    how: str, differentiate: Differentiate
) -> None:
    y, dx, dy = differentiate(
        lambda x, y: F.scatter_elements(x, np.zeros(4, np.int64), y, reduction=how),
        EQUAL[:1],
        EQUAL,
    )
    assert y == 2 and dx.sum() + dy.sum() == 1


@pytest.mark.parametrize("function", [F.maximum2, F.minimum2])
def test_of_two_equal_operands_one_gets_the_gradient(
    function: Callable[..., Any], differentiate: Differentiate
) -> None:
    _, left, right = differentiate(function, EQUAL, EQUAL)
    np.testing.assert_array_equal(left + right, np.ones(4))


MIXED = np.array([2.0, 1.0, 2.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: F.topk(x, 3)[1], [0, 2, 4]),
        (lambda x: F.topk(x, 3, largest=False)[1], [1, 3, 0]),
        (lambda x: F.sort(x, only_index=True), [1, 3, 0, 2, 4]),
        (lambda x: F.sort(x, reverse=True, only_index=True), [0, 2, 4, 1, 3]),
        (lambda x: F.max(x, only_index=True), 0),
        (lambda x: F.min(x, only_index=True), 1),
        (F.argmax, 0),
        (F.argmin, 1),
        (lambda x: F.cummax(x, with_index=True)[1], [0, 0, 0, 0, 0]),
        (lambda x: F.cummin(x, with_index=True)[1], [0, 1, 1, 1, 1]),
        (lambda x: F.top_k_data(F.reshape(x, (1, 5)), 2, with_index=True)[1], [[0, 2]]),
        (lambda x: F.unique(x, with_index=True)[1], [1, 0]),
    ],
)
def test_equal_elements_are_named_in_their_order(
    build: Callable[[Variable], Any], expected: Any, evaluate: Evaluate
) -> None:
    result = evaluate(lambda: F.identity(build(Variable.from_numpy_array(MIXED))))
    np.testing.assert_array_equal(result, expected)


def test_a_score_that_equals_the_label_s_counts_against_it_in_no_case_or_all() -> None:
    """With all scores equal, the error cannot depend on which class the label names."""
    scores = np.zeros((4, 4))
    errors = F.top_n_error(scores, np.arange(4)[:, None]).d.ravel()
    assert set(errors.tolist()) in ({0.0}, {1.0})


def test_of_boxes_that_score_alike_the_first_suppresses_the_other() -> None:
    boxes, scores = np.array([[[0, 0, 1, 1], [0, 0, 1, 1]]], float), np.ones((1, 1, 2))
    kept = F.onnx_non_max_suppression(
        boxes, scores, max_output_boxes_per_class=2, iou_threshold=0.5, score_threshold=0.0
    )
    np.testing.assert_array_equal(kept.d, [[0, 0, 0]])


def test_values_that_equal_an_edge_go_left_or_right_of_all_that_do(evaluate: Evaluate) -> None:
    edges = np.array([1.0, 2.0, 2.0, 3.0])
    assert evaluate(lambda: F.searchsorted(edges, np.array([2.0]))) == 1
    assert evaluate(lambda: F.searchsorted(edges, np.array([2.0]), right=True)) == 3


# Positions and labels as floats ------------------------------------------------------------------

FOUR = np.arange(4.0)
POSITIONS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    # what is at a position of four, and whether it may be counted from the end
    "gather": (lambda i: F.gather(FOUR, i, axis=0), False),
    "gather_elements": (lambda i: F.gather_elements(FOUR, i), False),
    "gather_nd": (lambda i: F.gather_nd(FOUR, i[None]), True),
    "embed": (lambda i: F.embed(i, FOUR[:, None]), False),
    "getitem": (lambda i: F.getitem(FOUR, Variable.from_numpy_array(i)), True),
    "scatter_nd": (lambda i: F.argmax(F.scatter_nd(np.ones(1), i[None], shape=(4,))), True),
    "scatter_add": (
        lambda i: F.argmax(F.scatter_add(np.zeros(4), i, np.ones(1), axis=0)),
        False,
    ),
    "scatter_elements": (
        lambda i: F.argmax(F.scatter_elements(np.zeros(4), i, np.ones(1))),
        False,
    ),
    "one_hot": (lambda i: F.argmax(F.one_hot(i[None], (4,))), True),
}
each_position = pytest.mark.parametrize(("read", "from_end"), POSITIONS.values(), ids=POSITIONS)


@each_position
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int64"])
def test_whole_numbers_of_any_dtype_are_positions(
    read: Callable[[Any], Any], from_end: bool, dtype: str, evaluate: Evaluate
) -> None:
    assert evaluate(lambda: read(np.array([3], dtype))).ravel() == 3


@each_position
@pytest.mark.parametrize("value", [1.5, np.nan, np.inf, -np.inf])
def test_no_whole_number_is_no_position(
    read: Callable[[Any], Any], from_end: bool, value: float
) -> None:
    with pytest.raises(OperatorError, match=f"{value} is not a whole number"):
        read(np.array([value])).forward()


@each_position
@pytest.mark.parametrize("value", [4, -5, 2**40, 2.0**62])
def test_a_position_beyond_the_ends_is_an_error_that_names_it(
    read: Callable[[Any], Any], from_end: bool, value: float
) -> None:
    with pytest.raises(OperatorError, match=rf"index {int(value)} is out of range \[(0|-4), 4\)"):
        read(np.array([value])).forward()


@each_position
def test_a_negative_position_counts_from_the_end_or_is_an_error(
    read: Callable[[Any], Any], from_end: bool, evaluate: Evaluate
) -> None:
    if from_end:
        assert evaluate(lambda: read(np.array([-1]))).ravel() == 3
    else:
        with pytest.raises(OperatorError, match="-1 is out of range"):
            read(np.array([-1])).forward()


def test_several_axes_indexed_by_floats_and_integers_agree(evaluate: Evaluate) -> None:
    x = Variable.from_numpy_array(np.arange(12).reshape(3, 4))
    row, column = Variable.from_numpy_array(np.float32([2, 1])), np.array([3, 0])
    np.testing.assert_array_equal(evaluate(lambda: x[row, column]), [11, 4])


LABELS: dict[str, Callable[[Any], Any]] = {
    "softmax_cross_entropy": lambda t: F.softmax_cross_entropy(np.zeros((1, 4)), t),
    "categorical_cross_entropy": lambda t: F.categorical_cross_entropy(np.full((1, 4), 0.25), t),
    "nll_loss": lambda t: F.nll_loss(np.full((1, 4), -np.log(4)), t),
}
each_loss = pytest.mark.parametrize("loss", LABELS.values(), ids=LABELS)
counting = {
    **LABELS,
    "top_n_error": lambda t: F.top_n_error(np.zeros((1, 4)), t),
    "confusion_matrix": lambda t: F.confusion_matrix(np.zeros((1, 4)), t),
}


@each_loss
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int8", "int64"])
def test_whole_numbers_of_any_dtype_are_labels(
    loss: Callable[[Any], Any], dtype: str, evaluate: Evaluate
) -> None:
    np.testing.assert_allclose(evaluate(lambda: loss(np.array([[3]], dtype))), [[np.log(4)]])


@pytest.mark.parametrize("name", counting)
@pytest.mark.parametrize("value", [1.5, np.nan, np.inf, -np.inf, 4, 2**40])
def test_what_names_no_class_is_an_error_that_names_it(name: str, value: float) -> None:
    with pytest.raises(OperatorError, match=f"label {value} .*4 classes"):
        counting[name](np.array([[value]])).forward()


@pytest.mark.parametrize("value", [-1, -7, -1.0])
@each_loss
def test_negative_labels_cost_nothing(
    loss: Callable[[Any], Any], value: float, evaluate: Evaluate
) -> None:
    assert evaluate(lambda: loss(np.array([[value]]))) == 0


def test_negative_labels_are_not_counted(evaluate: Evaluate) -> None:
    scores, labels = np.eye(3), np.array([[0], [-1], [1]])
    matrix = evaluate(lambda: F.confusion_matrix(scores, labels))
    np.testing.assert_array_equal(matrix, [[1, 0, 0], [0, 0, 1], [0, 0, 0]])


def test_lengths_of_sequences_may_be_floats_but_only_whole(evaluate: Evaluate) -> None:
    x = np.arange(6.0).reshape(3, 2)
    packed, sizes = F.pack_padded_sequence(x, np.float32([3, 1]))
    forward_all([packed, sizes])
    np.testing.assert_array_equal(packed.d, [0, 1, 2, 4])
    np.testing.assert_array_equal(sizes.d, [2, 1, 1])
    with pytest.raises(OperatorError, match=r"1\.5 is not a whole number"):
        F.pack_padded_sequence(x, np.float32([1.5, 1]))
