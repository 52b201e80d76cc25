"""Boxes of which the best are kept: non-maximum suppression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating, wide

__all__ = ["nms_detection2d", "onnx_non_max_suppression"]


# Suppression -------------------------------------------------------------------------------------


def _overlaps(first: Array, second: Array) -> Array:
    """Return intersection over union of boxes (low and high corners of two axes at the end)."""
    low = np.maximum(first[..., :2], second[..., :2])
    high = np.minimum(first[..., 2:], second[..., 2:])
    common = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = [np.prod(box[..., 2:] - box[..., :2], axis=-1) for box in (first, second)]
    union = areas[0] + areas[1] - common
    return np.divide(common, union, out=np.zeros_like(union), where=common > 0)


def _kept(
    boxes: Array, scores: Array, candidates: Array, threshold: float, *, transitive: bool
) -> tuple[Array, Array]:
    """Return which boxes stay, (batch, classes, boxes), and the boxes in falling order of scores.

    A candidate goes where its overlap with one of a higher score is above the threshold: one that
    stays itself, or with ``transitive`` any. ``boxes`` are corners: (batch, boxes, 4).
    """
    order = np.argsort(-scores, axis=-1, kind="stable")
    rank = np.argsort(order, axis=-1)
    stays = candidates.copy()
    rows = np.arange(scores.shape[0])[:, None]
    for place in range(scores.shape[-1]):
        best = order[..., place]  # (batch, classes)
        acts = np.take_along_axis(candidates if transitive else stays, best[..., None], axis=-1)
        if acts.any():
            overlaps = _overlaps(boxes[rows, best][:, :, None], boxes[:, None])
            stays &= ~(acts & (rank > place) & (overlaps > threshold))
    return stays, order


def _around(centers: Array, sizes: Array) -> Array:
    """Return low and high corners."""
    return np.concatenate([centers - sizes / 2, centers + sizes / 2], axis=-1)


# Detections --------------------------------------------------------------------------------------


@defop("nnl::nms_detection2d_mask", outputs=("mask",))
def nms_detection2d_mask(x: Array, *, thresh: float, nms: float, per_class: bool) -> Array:
    """Tell which objectness and which probabilities of `nms_detection2d` are not set to 0."""
    boxes = wide(x)
    objectness = boxes[..., 4:5]
    seen = ~(objectness < thresh)
    scores = np.where(seen, objectness, 0) * boxes[..., 5:]
    above = seen & ~(scores < thresh)
    corners = _around(boxes[..., :2], boxes[..., 2:4])
    if per_class:
        found = np.where(above, scores, 0).swapaxes(1, 2)
        stays, _ = _kept(corners, found, found != 0, nms, transitive=False)
        above &= stays.swapaxes(1, 2)
    else:
        found = np.where(seen, objectness, 0).swapaxes(1, 2)
        stays, _ = _kept(corners, found, found != 0, nms, transitive=True)
        seen &= stays.swapaxes(1, 2)
        above &= seen
    return np.concatenate([seen, above], axis=-1)


@nms_detection2d_mask.infer
def nms_detection2d_mask_infer(x: Spec, *, thresh: float, nms: float, per_class: bool) -> Spec:
    """(batch, boxes, 1 + classes), truths."""
    if x.ndim != 3 or x.shape[2] < 6:
        raise ShapeError("detections must be (batch, boxes, 5 + classes), of at least one class")
    return Spec((*x.shape[:2], x.shape[2] - 4), np.dtype(bool))


@nms_detection2d_mask.vjp
def nms_detection2d_mask_vjp(g: Any, mask: Any, x: Any, **options: Any) -> tuple[Any, ...]:
    """Truths have no slope."""
    return (None,)


@nms_detection2d_mask.multiply_adds
def nms_detection2d_mask_cost(x: Spec, **options: Any) -> int:
    """Overlaps of all pairs of boxes."""
    return 8 * x.shape[0] * x.shape[1] ** 2


@nms_detection2d_mask.samples
def nms_detection2d_mask_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Per class and by objectness, no boxes, one; scores of equal size in float16, too."""
    for boxes in (12, 1, 0):
        x = np.concatenate(
            [
                rng.integers(1, 5, (2, boxes, 2)) / 4,
                rng.integers(1, 3, (2, boxes, 2)) / 4,
                rng.integers(0, 17, (2, boxes, 4)) / 16,
            ],
            axis=-1,
        )
        for per_class in (True, False):
            yield Sample(x, thresh=0.25, nms=0.3, per_class=per_class)


def nms_detection2d(
    x: Operand,
    thresh: float | None = None,
    nms: float | None = None,
    nms_per_class: bool | None = None,
) -> Variable:
    """Keep the best of overlapping detections: of others, set scores to 0.

    Probabilities are multiplied by objectness; it, and products, below ``thresh`` become 0. Then
    of each two boxes whose intersection over union is above ``nms``, that with the lower score
    loses it. (Redmon and Farhadi, arXiv:1612.08242.) Equal scores count in order of the boxes.

    Args:
        x: ``(batch, boxes, 5 + classes)``: center x and y, width, height, objectness, and the
            probability of each class.
        thresh: smallest score that stays; 0.5 by default.
        nms: largest overlap of two boxes that both stay; 0.45 by default.
        nms_per_class: whether scores are the products, class by class, and what was suppressed
            suppresses no other (default); else they are the objectness, which goes together
            with all classes of a box, and every better box suppresses.

    Returns:
        Shape and dtype of ``x``, of which the boxes stay as they are.

    Raises:
        ShapeError: ``x`` has not three axes, or no class.

    Gradient:
        Of the copies and products that stay; 0 where a score was set to 0.

    Examples:
        >>> boxes = np.array([[[1, 1, 2, 2, 1.0, 0.9], [1, 1, 2, 2, 1.0, 0.8]]])
        >>> F.nms_detection2d(boxes).d[0, :, 5]
        array([0.9, 0. ])

    Elsewhere:
        - nnabla: `nms_detection2d`, without a gradient
        - PyTorch: `torchvision.ops.batched_nms`, which returns positions
        - ONNX: none, `NonMaxSuppression` and `ScatterND` of the scores that it selects
    """
    x = floating(x)
    mask = nms_detection2d_mask(
        x,
        thresh=0.5 if thresh is None else float(thresh),
        nms=0.45 if nms is None else float(nms),
        per_class=nms_per_class is None or bool(nms_per_class),
    )
    objectness = F.getitem(x, (..., slice(4, 5)))
    products = objectness * F.getitem(x, (..., slice(5, None)))
    scores = F.concatenate(objectness, products, axis=2)
    chosen = F.where(mask, scores, F.zeros_like(scores))
    result: Variable = F.concatenate(F.getitem(x, (..., slice(4))), chosen, axis=2)
    return result


# Positions ---------------------------------------------------------------------------------------


def _selected(
    boxes: Array, scores: Array, center: bool, most: int, overlap: float, lowest: float
) -> Array:
    """Return (batch, class, box) of what is selected, best first in each class."""
    given = wide(boxes)
    if center:
        corners = _around(given[..., :2], given[..., 2:])
    else:
        pairs = given[..., :2], given[..., 2:]
        corners = np.concatenate([np.minimum(*pairs), np.maximum(*pairs)], axis=-1)
    values = wide(scores)
    stays, order = _kept(corners, values, values >= lowest, overlap, transitive=False)
    sorted_stays = np.take_along_axis(stays, order, axis=-1)
    sorted_stays &= np.cumsum(sorted_stays, axis=-1) <= most
    batch, kind, place = np.nonzero(sorted_stays)
    return np.stack([batch, kind, order[batch, kind, place]], axis=1).astype(np.int64)


@defop("nnl::onnx_non_max_suppression", outputs=("selected",))
def onnx_non_max_suppression_operator(
    boxes: Array,
    scores: Array,
    *,
    center: bool,
    most: int,
    overlap: float,
    lowest: float,
    count: int,
) -> Array:
    """Select boxes by score and overlap; there must be ``count`` of them."""
    selected = _selected(boxes, scores, center, most, overlap, lowest)
    if len(selected) != count:
        raise OperatorError(
            f"onnx_non_max_suppression: {len(selected)} boxes are selected where {count} were "
            "expected; build the graph again for boxes of which another number is selected"
        )
    return selected


@onnx_non_max_suppression_operator.infer
def onnx_non_max_suppression_infer(
    boxes: Spec, scores: Spec, *, count: int, **options: Any
) -> Spec:
    """(count, 3)."""
    _check_boxes(boxes.shape, scores.shape)
    return Spec((count, 3), np.dtype(np.int64))


def _check_boxes(boxes: tuple[int, ...], scores: tuple[int, ...]) -> None:
    if (
        len(boxes) != 3 or len(scores) != 3 or boxes[2] != 4
        or boxes[:2] != (scores[0], scores[2])
    ):  # fmt: skip
        raise ShapeError(
            "boxes must be (batch, boxes, 4) and scores (batch, classes, boxes), not "
            f"{boxes} and {scores}"
        )


@onnx_non_max_suppression_operator.vjp
def onnx_non_max_suppression_vjp(
    g: Any, y: Any, boxes: Any, scores: Any, **options: Any
) -> tuple[Any, ...]:
    """Positions have no slope."""
    return None, None


@onnx_non_max_suppression_operator.multiply_adds
def onnx_non_max_suppression_cost(boxes: Spec, scores: Spec, **options: Any) -> int:
    """Overlaps of all pairs of boxes, for each class."""
    return 8 * scores.size * boxes.shape[1]


@onnx_non_max_suppression_operator.samples
def onnx_non_max_suppression_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both kinds of boxes, few and all selected, none."""
    for count, center in ((9, False), (9, True), (0, False)):
        boxes = rng.integers(1, 9, (2, count, 4)) / 4
        scores = rng.integers(0, 17, (2, 3, count)) / 16
        for most in (2, 100):
            found = len(_selected(boxes, scores, center, most, 0.3, 0.25))
            yield Sample(
                boxes, scores, center=center, most=most, overlap=0.3, lowest=0.25, count=found
            )  # fmt: skip


def onnx_non_max_suppression(
    boxes: Operand,
    scores: Operand,
    center_point_box: int | None = None,
    max_output_boxes_per_class: int | None = None,
    iou_threshold: float | None = None,
    score_threshold: float | None = None,
) -> Variable:
    """Select, class by class, boxes of high scores that overlap little.

    The best box is selected, and all whose intersection over union with it is above
    ``iou_threshold`` are dropped; then the best of the others, and so on. Equal scores count in
    order of the boxes. How many are selected is read from the data now, as shapes are known
    before anything runs; an `OperatorError` says so if a later run finds another number.

    Args:
        boxes: ``(batch, boxes, 4)``: any two opposite corners (y1, x1, y2, x2), or center, width
            and height (x, y, w, h).
        scores: ``(batch, classes, boxes)``.
        center_point_box: 0 for corners (default), 1 for center and size.
        max_output_boxes_per_class: how many are selected at most in each class of each example;
            0 by default, so that none is.
        iou_threshold: largest overlap of two selected boxes; 0 by default.
        score_threshold: smallest score that is selected; 0 by default.

    Returns:
        ``(selected, 3)``, ``int64``: example, class and box, in falling order of score in
        each class.

    Raises:
        ShapeError: shapes do not fit.
        OperatorError: ``center_point_box`` is neither 0 nor 1, a limit is negative, or a later
            run selects another number.

    Gradient:
        None: positions have no slope.

    Examples:
        >>> boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.9], [0, 2, 1, 3]]])
        >>> scores = np.array([[[0.8, 0.9, 0.7]]])
        >>> F.onnx_non_max_suppression(boxes, scores, 0, 9, 0.5).d
        array([[0, 0, 1],
               [0, 0, 2]])

    Elsewhere:
        - nnabla: `onnx_non_max_suppression`
        - PyTorch: `torchvision.ops.nms`, of one class
        - ONNX: `NonMaxSuppression`, with a threshold of scores even where none is given
    """
    boxes, scores = floating(boxes), floating(scores)
    if center_point_box not in (None, 0, 1):
        raise OperatorError(
            f"onnx_non_max_suppression: center_point_box {center_point_box} must be 0 or 1"
        )
    most = max_output_boxes_per_class or 0
    if most < 0:
        raise OperatorError(
            f"onnx_non_max_suppression: max_output_boxes_per_class {most} must be at least 0"
        )
    options: dict[str, Any] = {
        "center": bool(center_point_box),
        "most": int(most),
        "overlap": float(iou_threshold or 0),
        "lowest": float(score_threshold or 0),
    }
    _check_boxes(boxes.shape, scores.shape)
    count = len(_selected(boxes.d, scores.d, **options))
    result: Variable = onnx_non_max_suppression_operator(boxes, scores, count=count, **options)
    return result
