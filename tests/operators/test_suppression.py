"""Non-maximum suppression: which boxes stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.variable import Variable


def row(left: float, objectness: float, *classes: float) -> list[float]:
    """A detection 4 wide and 1 high; two that are 1 apart overlap by 3 / 5, that are 2 by 1 / 3."""
    return [left, 0, 4, 1, objectness, *classes]


def detections(*rows: list[float]) -> np.ndarray:
    return np.array([rows])


def scores(x: np.ndarray, **options: Any) -> list[list[float]]:
    return F.nms_detection2d(x, **options).d[0, :, 4:].tolist()


def test_scores_below_the_threshold_become_zero() -> None:
    x = detections(row(0, 0.5, 1.0, 0.75), row(9, 0.25, 1.0, 1.0))
    for per_class in (True, False):
        found = scores(x, thresh=0.4, nms_per_class=per_class)
        assert found == [[0.5, 0.5, 0], [0, 0, 0]]


def test_what_is_as_large_as_the_threshold_stays() -> None:
    assert scores(detections(row(0, 0.5, 1.0)), thresh=0.5) == [[0.5, 0.5]]


def test_per_class_the_lower_score_of_an_overlap_goes_and_objectness_stays() -> None:
    x = detections(row(0, 1, 0.5, 0.75), row(1, 1, 0.75, 0.5))
    assert scores(x, thresh=0, nms=0.5) == [[1, 0, 0.75], [1, 0.75, 0]]


def test_by_objectness_all_classes_of_the_lower_box_go() -> None:
    x = detections(row(0, 1, 0.5, 0.75), row(1, 0.5, 1, 1))
    assert scores(x, thresh=0, nms=0.5, nms_per_class=False) == [[1, 0.5, 0.75], [0, 0, 0]]


def test_a_suppressed_box_suppresses_by_objectness_but_not_per_class() -> None:
    x = detections(row(0, 1, 1), row(1, 0.75, 1), row(2, 0.5, 1))
    assert scores(x, thresh=0, nms=0.5) == [[1, 1], [0.75, 0], [0.5, 0.5]]
    assert scores(x, thresh=0, nms=0.5, nms_per_class=False) == [[1, 1], [0, 0], [0, 0]]


def test_an_overlap_must_be_above_the_limit() -> None:
    x = detections(row(0, 1, 1), row(2, 1, 0.5))
    assert scores(x, thresh=0, nms=0.25)[1][1] == 0
    assert scores(x, thresh=0, nms=0.375)[1][1] == 0.5


def test_of_equal_scores_the_first_stays() -> None:
    assert [r[1] for r in scores(detections(row(0, 1, 1), row(0, 1, 1)))] == [1, 0]


def test_examples_do_not_meet() -> None:
    x = np.array([[row(0, 1, 1)], [row(0, 1, 0.5)]])
    assert F.nms_detection2d(x, thresh=0).d[:, 0, 5].tolist() == [1, 0.5]


def test_boxes_stay_as_they_are() -> None:
    x = detections(row(0, 1, 1), row(1, 0, 1))
    np.testing.assert_array_equal(F.nms_detection2d(x).d[..., :4], x[..., :4])


def test_gradient_is_that_of_the_products_that_stay() -> None:
    x = Variable.from_numpy_array(detections(row(0, 1, 0.75), row(1, 1, 0.5)), need_grad=True)
    y = F.nms_detection2d(x, thresh=0, nms=0.5)
    y.forward()
    y.backward()
    # By x, y, width, height: 1; objectness: 1, and the probability where the product stays.
    assert x.g.tolist() == [[[1, 1, 1, 1, 1.75, 1], [1, 1, 1, 1, 1, 0]]]


def test_detections_need_a_class() -> None:
    with pytest.raises(ShapeError, match=r"must be \(batch, boxes, 5 \+ classes\)"):
        F.nms_detection2d(np.zeros((1, 3, 5)))


def corners(*lefts: float) -> np.ndarray:
    return np.array([[[0, left, 1, left + 4] for left in lefts]])


def select(boxes: np.ndarray, values: Any, **options: Any) -> list[list[int]]:
    options = {"max_output_boxes_per_class": 9, "iou_threshold": 0.5} | options
    return F.onnx_non_max_suppression(boxes, np.array(values), **options).d.tolist()


def test_best_boxes_are_selected_first() -> None:
    found = select(corners(0, 9, 1), [[[0.5, 0.25, 0.75]]])
    assert found == [[0, 0, 2], [0, 0, 1]]


def test_each_class_selects_for_itself() -> None:
    found = select(corners(0, 1), [[[0.5, 0.75], [0.75, 0.5]]])
    assert found == [[0, 0, 1], [0, 1, 0]]


def test_a_dropped_box_drops_no_other() -> None:
    assert select(corners(0, 1, 2), [[[0.75, 0.5, 0.25]]]) == [[0, 0, 0], [0, 0, 2]]


def test_corners_may_be_any_two_that_are_opposite() -> None:
    boxes = corners(0, 1)
    turned = boxes[..., [2, 3, 0, 1]]
    values = [[[0.5, 0.75]]]
    assert select(turned, values) == select(boxes, values) == [[0, 0, 1]]


def test_boxes_may_be_given_by_their_center() -> None:
    boxes = np.array([[[2, 0, 4, 1], [3, 0, 4, 1], [5, 0, 4, 1]]])
    assert select(boxes, [[[0.75, 0.5, 0.25]]], center_point_box=1) == [[0, 0, 0], [0, 0, 2]]


def test_limits_of_number_and_score() -> None:
    boxes, values = corners(0, 9, 18), [[[0.75, 0.5, 0.25]]]
    assert select(boxes, values, max_output_boxes_per_class=2) == [[0, 0, 0], [0, 0, 1]]
    assert select(boxes, values, score_threshold=0.5) == [[0, 0, 0], [0, 0, 1]]
    assert select(boxes, values, score_threshold=1) == []
    assert F.onnx_non_max_suppression(boxes, np.array(values)).shape == (0, 3)


def test_another_number_in_a_later_run_is_an_error_that_says_what_to_do() -> None:
    boxes = Variable.from_numpy_array(corners(0.0, 9.0))
    y = F.onnx_non_max_suppression(boxes, np.array([[[0.75, 0.5]]]), 0, 9, 0.5)
    assert y.d.shape == (2, 3)
    boxes.d = corners(0, 1)
    with pytest.raises(OperatorError, match=r"1 boxes are selected where 2 .*build the graph"):
        y.forward()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"center_point_box": 2}, "center_point_box 2 must be 0 or 1"),
        ({"max_output_boxes_per_class": -1}, "-1 must be at least 0"),
    ],
)
def test_arguments_out_of_range_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        F.onnx_non_max_suppression(corners(0), np.ones((1, 1, 1)), **options)


def test_boxes_and_scores_must_fit() -> None:
    with pytest.raises(ShapeError, match=r"not \(1, 2, 4\) and \(1, 1, 3\)"):
        F.onnx_non_max_suppression(corners(0, 1), np.ones((1, 1, 3)))
