"""Losses and errors of classification: what is compared with class labels.

Labels have the input's shape with length 1 on the class axis, as integers or as floats that are
whole. Negative labels are ignored: their loss and gradient are 0. Losses are per label; a mean or a
sum over them is the user's. NaN among the scores gives a NaN loss, and counts as an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import real, whole
from nnl_core.graph.dtypes import as_dtype
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, sum_to
from nnl_core.operators.dtypes import floating, wide
from nnl_core.operators.labels import check_label_shape, class_labels

__all__ = [
    "categorical_cross_entropy",
    "confusion_matrix",
    "softmax_cross_entropy",
    "top_n_error",
]

TINY = float(np.finfo(np.float32).tiny)
"""What probabilities are raised to before their logarithm is taken."""


def _per_class(weight: Array, ndim: int, axis: int) -> Array:
    """Lay weights of classes along their axis."""
    return weight.reshape([-1 if place == axis % ndim else 1 for place in range(ndim)])


def _labelled(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> Array:
    expected = tuple(1 if place == axis % len(shape) else n for place, n in enumerate(shape))
    return rng.integers(0, shape[axis], size=expected)


# What a prediction should be ---------------------------------------------------------------------


@defop("nnl::class_targets", save=("target",))
def class_targets(
    target: Array,
    weight: Array | None = None,
    *,
    classes: int,
    axis: int,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    dtype: str = "float32",
) -> Array:
    """The share of each class in the loss: ``w (1 - s)`` at the label, plus ``w s / classes``.

    ``s`` is the label smoothing and ``w`` the weight of the class. Ignored labels have none.
    """
    labels, counted = class_labels("nll_loss", target, classes, ignore_index)
    is_label = labels == _per_class(np.arange(classes), target.ndim, axis)
    result = is_label * (1 - label_smoothing) + label_smoothing / classes
    if weight is not None:
        result = result * _per_class(weight, target.ndim, axis)
    return np.where(counted, result, 0).astype(dtype)


@class_targets.infer
def class_targets_infer(
    target: Spec,
    weight: Spec | None,
    *,
    classes: int,
    axis: int,
    ignore_index: int | None,
    label_smoothing: float,
    dtype: str,
) -> Spec:
    """The target's shape with all classes on the axis."""
    axis %= target.ndim
    if target.shape[axis] != 1:
        raise ShapeError(f"target has {target.shape[axis]} labels on the class axis {axis}, not 1")
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"weight has shape {weight.shape}, {classes} classes need ({classes},)")
    return Spec((*target.shape[:axis], classes, *target.shape[axis + 1 :]), as_dtype(dtype))


@class_targets.vjp
def class_targets_vjp(g: Any, y: Any, target: Any, weight: Any, **attributes: Any) -> Any:
    """Labels have no gradient; a weight's is the sum over its class."""
    if weight is None:
        return None, None
    shares = class_targets(target, **attributes)
    return None, _sum_per_class(g * shares, weight, attributes["axis"])


def _sum_per_class(x: Variable, weight: Variable | Spec, axis: int) -> Variable:
    shape = tuple(n if place == axis % x.ndim else 1 for place, n in enumerate(x.shape))
    return cast(F.reshape(sum_to(x, shape=shape), weight.shape), weight.dtype)


@class_targets.samples
def class_targets_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Ignored labels, weights, smoothing."""
    labels = np.array([[2, -1, 0], [1, 1, 2]])
    yield Sample(labels[:, :, None], classes=3, axis=2)
    yield Sample(
        labels[:, None],
        rng.uniform(0.5, 2, size=(3,)),
        classes=3,
        axis=1,
        ignore_index=1,
        label_smoothing=0.25,
        dtype="float64",
    )


# Softmax cross entropy ---------------------------------------------------------------------------


@defop(
    "nnl::softmax_cross_entropy",
    save=("x", "target", "weight", "p"),
    outputs=("y", "p"),
    precision="full",
)
def softmax_cross_entropy_operator(
    x: Array,
    target: Array,
    weight: Array | None = None,
    *,
    axis: int = -1,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> tuple[Array, Array]:
    """``-sum(t log p)`` for the class targets ``t`` and ``p = softmax(x)``, and ``p``."""
    classes, dtype = x.shape[axis], x.dtype
    labels, counted = class_labels("softmax_cross_entropy", target, classes, ignore_index)
    wider = wide(x)
    shifted = wider - wider.max(axis, keepdims=True, initial=-np.inf)
    log_p = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    w = np.ones(classes, wider.dtype) if weight is None else wide(weight)
    y = -w[labels] * np.take_along_axis(log_p, labels, axis)
    if label_smoothing:
        everywhere = -(log_p * _per_class(w, x.ndim, axis)).mean(axis, keepdims=True)
        y = (1 - label_smoothing) * y + label_smoothing * everywhere
    return np.where(counted, y, 0).astype(dtype), np.exp(log_p).astype(dtype)


@softmax_cross_entropy_operator.infer
def softmax_cross_entropy_infer(
    x: Spec,
    target: Spec,
    weight: Spec | None,
    *,
    axis: int,
    ignore_index: int | None,
    label_smoothing: float,
) -> tuple[Spec, Spec]:
    """A loss for each label, a probability for each score."""
    axis = check_label_shape(x, target, axis)
    if weight is not None and weight.shape != (x.shape[axis],):
        raise ShapeError(
            f"weight has shape {weight.shape}, {x.shape[axis]} classes need ({x.shape[axis]},)"
        )
    return x.with_shape(target.shape), x


@softmax_cross_entropy_operator.vjp
def softmax_cross_entropy_vjp(
    g: Any, y: Any, x: Any, target: Any, weight: Any, **attributes: Any
) -> tuple[Any, ...]:
    """``dx = g (p sum(t) - t)``, and the gradient of softmax where ``p`` is used."""
    (from_loss, from_p), p, axis = g, y[1], attributes["axis"]
    dx = dweight = None
    if from_loss is not None:
        dx = softmax_cross_entropy_gradient(from_loss, p, target, weight, **attributes)
        if weight is not None:
            shares = _targets(p, target, None, attributes)
            # Where there is no share, log p may be minus infinity.
            losses = F.where(shares > 0, -F.log_softmax(x, axis) * shares, 0.0)
            dweight = _sum_per_class(losses * from_loss, weight, axis)
    if from_p is not None:
        through_p = p * (from_p - F.sum(from_p * p, axis=axis, keepdims=True))
        dx = through_p if dx is None else dx + through_p
    return dx, None, dweight


def _targets(
    p: Variable, target: Variable, weight: Variable | None, attributes: dict[str, Any]
) -> Variable:
    classes = p.shape[attributes["axis"]]
    return class_targets(target, weight, classes=classes, dtype=p.dtype.name, **attributes)


@softmax_cross_entropy_operator.samples
def softmax_cross_entropy_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, ignored labels, weights, smoothing, labels as floats, large scores, no samples."""
    shape = (2, 3, 4)
    for axis in (0, 1, -1):
        yield Sample(2 * rng.normal(size=shape), _labelled(rng, shape, axis), axis=axis)
    yield Sample(rng.normal(size=(7, 70)), _labelled(rng, (7, 70), 1))
    x, labels = rng.normal(size=(5, 3)), np.array([[0], [-1], [2], [1], [2]])
    weight = rng.uniform(0.5, 2, size=(3,))
    yield Sample(x, labels.astype(np.float32), ignore_index=2)
    yield Sample(x, labels, weight)
    yield Sample(x, labels, None, label_smoothing=0.1)
    yield Sample(x[:, :, None], labels[:, :, None], weight, axis=1, label_smoothing=0.3)
    yield Sample(np.array([[1000.0, -1000.0], [-1000.0, 1000.0]]), np.array([[0], [0]]))
    yield Sample(np.zeros((0, 3)), np.zeros((0, 1), np.int64))


@defop(
    "nnl::softmax_cross_entropy_gradient",
    save=("g", "p", "target", "weight"),
    outputs=("dx",),
    precision="full",
)
def softmax_cross_entropy_gradient(
    g: Array,
    p: Array,
    target: Array,
    weight: Array | None = None,
    *,
    axis: int = -1,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Array:
    """``g (p sum(t) - t)`` for the class targets ``t``: the gradient of softmax cross entropy."""
    wider = wide(p)
    t = class_targets.reference(
        target,
        weight,
        classes=p.shape[axis],
        axis=axis,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        dtype=wider.dtype.name,
    )
    weighted = wider * t.sum(axis, keepdims=True) - t
    return np.where(g == 0, 0, wide(g) * weighted).astype(p.dtype)


@softmax_cross_entropy_gradient.infer
def softmax_cross_entropy_gradient_infer(
    g: Spec, p: Spec, target: Spec, weight: Spec | None, **attributes: Any
) -> Spec:
    """As the probabilities."""
    check_label_shape(p, target, attributes["axis"])
    return p


@softmax_cross_entropy_gradient.vjp
def softmax_cross_entropy_gradient_vjp(
    h: Any, dx: Any, g: Any, p: Any, target: Any, weight: Any, **attributes: Any
) -> tuple[Any, ...]:
    """Linear in ``g``, in ``p`` and in the targets, hence in the weight."""
    axis = attributes["axis"]
    t = _targets(p, target, weight, attributes)
    total = F.sum(t, axis=axis, keepdims=True)
    dg = F.sum(h * (p * total - t), axis=axis, keepdims=True)
    dweight = None
    if weight is not None:
        dt = g * (F.sum(h * p, axis=axis, keepdims=True) - h)
        dweight = _sum_per_class(dt * _targets(p, target, None, attributes), weight, axis)
    return dg, h * (g * total), None, dweight


@softmax_cross_entropy_gradient.samples
def softmax_cross_entropy_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """As the loss's."""
    for sample in softmax_cross_entropy_samples(rng):
        x, target, *weight = sample.inputs
        p = rng.uniform(0.1, 1, size=x.shape)
        yield Sample(rng.normal(size=target.shape), p, target, *weight, **sample.attributes)


for _operator in (softmax_cross_entropy_operator, softmax_cross_entropy_gradient):
    _operator.multiply_adds(lambda x, p, *others, **attributes: max(x.size, p.size))


def softmax_cross_entropy(
    x: Operand,
    target: Operand,
    axis: int | None = None,
    *,
    ignore_index: int | None = None,
    weight: Operand | None = None,
    label_smoothing: float = 0.0,
) -> Variable:
    """Compare scores with class labels: ``-log(softmax(x))`` at the label.

    Finite for scores of any size.

    Args:
        x: scores before softmax.
        target: labels, in the shape of ``x`` with length 1 on the class axis; whole numbers of any
            dtype.
        axis: the class axis; ``None`` for the last.
        ignore_index: a label that is ignored, as negative ones are: loss and gradient are 0.
        weight: ``(classes,)``: a factor of the loss for each class.
        label_smoothing: share of the target, from 0 to 1, that is spread evenly over all classes.

    Returns:
        A loss for each label, in its shape.

    Raises:
        ShapeError: labels have another shape.
        OperatorError: when run, a label names no class.

    Gradient:
        ``dx = (softmax(x) - one_hot(target)) dy``; none for the target.

    Examples:
        >>> F.softmax_cross_entropy(np.log(np.array([[1.0, 3.0]])), np.array([[1]])).d
        array([[0.28768207]])

    Elsewhere:
        - nnabla: `softmax_cross_entropy`
        - PyTorch: `torch.nn.functional.cross_entropy` with `reduction="none"`, classes on axis 1
        - ONNX: `SoftmaxCrossEntropyLoss` with `reduction="none"`
    """
    if not 0 <= label_smoothing <= 1:
        raise OperatorError(
            f"softmax_cross_entropy: label_smoothing is {label_smoothing}; it is a share, 0 to 1"
        )
    x = floating(x)
    if weight is not None:
        weight = cast(weight, x.dtype)
    loss, _ = softmax_cross_entropy_operator(
        x,
        target,
        weight,
        axis=-1 if axis is None else whole(axis, "axis"),
        ignore_index=ignore_index,
        label_smoothing=real(label_smoothing, "label_smoothing"),
    )
    return loss


# Of probabilities --------------------------------------------------------------------------------


@defop("nnl::categorical_cross_entropy", save=("x", "target"), precision="full")
def categorical_cross_entropy_operator(x: Array, target: Array, *, axis: int = -1) -> Array:
    """``-log`` of the label's probability."""
    labels, counted = class_labels("categorical_cross_entropy", target, x.shape[axis])
    picked = np.take_along_axis(wide(x), labels, axis)
    return np.where(counted, -np.log(np.maximum(picked, TINY)), 0).astype(x.dtype)


@categorical_cross_entropy_operator.infer
def categorical_cross_entropy_infer(x: Spec, target: Spec, *, axis: int) -> Spec:
    """A loss for each label."""
    check_label_shape(x, target, axis)
    return x.with_shape(target.shape)


@categorical_cross_entropy_operator.vjp
def categorical_cross_entropy_vjp(
    g: Any, y: Any, x: Any, target: Any, *, axis: int
) -> tuple[Any, ...]:
    """``-g / x`` at the label."""
    at_label = class_targets(target, classes=x.shape[axis], axis=axis, dtype=x.dtype.name)
    return F.chain_rule(g * at_label, -1 / F.maximum_scalar(x, TINY)), None


@categorical_cross_entropy_operator.samples
def categorical_cross_entropy_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, ignored labels, no samples."""
    shape = (2, 3, 4)
    for axis in (0, 1, -1):
        yield Sample(rng.uniform(0.1, 0.9, size=shape), _labelled(rng, shape, axis), axis=axis)
    yield Sample(rng.uniform(0.1, 0.9, size=(2, 3)), np.array([[-1], [2]]))
    yield Sample(np.zeros((0, 3)), np.zeros((0, 1), np.int64))


def categorical_cross_entropy(x: Operand, target: Operand, axis: int | None = None) -> Variable:
    """Compare probabilities with class labels: ``-log(x)`` at the label.

    Probabilities below the smallest normal ``float32`` number count as that number.

    Args:
        x: probabilities.
        target: labels, in the shape of ``x`` with length 1 on the class axis; whole numbers of any
            dtype.
        axis: the class axis; ``None`` for the last.

    Raises:
        ShapeError: labels have another shape.
        OperatorError: when run, a label names no class.

    Gradient:
        ``-dy / x`` at the label, 0 elsewhere and where ``x`` is below that number.

    Examples:
        >>> F.categorical_cross_entropy(np.array([[0.25, 0.75]]), np.array([[1]])).d
        array([[0.28768207]])

    Elsewhere:
        - nnabla: `categorical_cross_entropy`
        - PyTorch: `torch.nn.functional.nll_loss`, of logarithms
        - ONNX: `NegativeLogLikelihoodLoss`, of logarithms
    """
    return categorical_cross_entropy_operator(
        floating(x), target, axis=-1 if axis is None else whole(axis, "axis")
    )


# Errors ------------------------------------------------------------------------------------------


@defop("nnl::top_n_error")
def top_n_error_operator(x: Array, target: Array, *, axis: int = -1, n: int = 1) -> Array:
    """1 where more than ``n`` classes score at least as high as the label does, else 0."""
    labels, counted = class_labels("top_n_error", target, x.shape[axis])
    score = np.take_along_axis(x, labels, axis)
    above = np.logical_not(x < score).sum(axis, keepdims=True)  # so that NaN is above
    return ((above > n) & counted).astype(x.dtype)


@top_n_error_operator.infer
def top_n_error_infer(x: Spec, target: Spec, *, axis: int, n: int) -> Spec:
    """A number for each label."""
    check_label_shape(x, target, axis)
    return x.with_shape(target.shape)


@top_n_error_operator.samples
def top_n_error_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, several n, ignored labels, no samples."""
    shape = (2, 3, 4)
    for axis in (0, 1, -1):
        x = rng.permutation(24).reshape(shape).astype(np.float64)
        yield Sample(x, _labelled(rng, shape, axis), axis=axis, n=axis % 3 + 1)
    yield Sample(np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([[1], [-1]]))
    yield Sample(np.zeros((0, 3)), np.zeros((0, 1), np.int64))


def top_n_error(x: Operand, target: Operand, axis: int | None = None, n: int = 1) -> Variable:
    """Give 1 where the label is not among the ``n`` classes with the highest scores, else 0.

    A score equal to the label's counts as higher.

    Args:
        x: scores.
        target: labels, in the shape of ``x`` with length 1 on the class axis; whole numbers of any
            dtype.
        axis: the class axis; ``None`` for the last.
        n: how many classes count.

    Raises:
        OperatorError: ``n`` is less than 1; when run, a label names no class.

    Gradient:
        None: errors have no slope.

    Examples:
        >>> F.top_n_error(np.array([[0.2, 0.5, 0.3]] * 2), np.array([[2], [0]]), n=2).d
        array([[0.],
               [1.]])

    Elsewhere:
        - nnabla: `top_n_error`
        - PyTorch: none, `torch.topk` and a comparison
        - ONNX: none, `TopK` and `Equal`
    """
    if whole(n, "n") < 1:
        raise OperatorError(f"top_n_error: n={n} must be at least 1")
    return top_n_error_operator(
        floating(x), target, axis=-1 if axis is None else whole(axis, "axis"), n=whole(n, "n")
    )


@defop("nnl::confusion_matrix")
def confusion_matrix_operator(x: Array, target: Array, *, axis: int = -1) -> Array:
    """Count samples by label (row) and by class with the highest score (column)."""
    classes = x.shape[axis]
    labels, counted = class_labels("confusion_matrix", target, classes)
    if not x.size:
        return np.zeros((classes, classes), np.int64)
    chosen = x.argmax(axis, keepdims=True)
    cells = (labels * classes + chosen)[counted]
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)


@confusion_matrix_operator.infer
def confusion_matrix_infer(x: Spec, target: Spec, *, axis: int) -> Spec:
    """Classes by classes, integers."""
    classes = x.shape[check_label_shape(x, target, axis)]
    return Spec((classes, classes), np.dtype(np.int64))


@confusion_matrix_operator.samples
def confusion_matrix_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, ignored labels, no samples."""
    shape = (5, 3, 4)
    for axis in (0, 1, -1):
        x = rng.permutation(60).reshape(shape).astype(np.float64)
        yield Sample(x, _labelled(rng, shape, axis), axis=axis)
    yield Sample(np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([[1], [-1]]))
    yield Sample(np.zeros((0, 3)), np.zeros((0, 1), np.int64))


def confusion_matrix(x: Operand, target: Operand, axis: int | None = None) -> Variable:
    """Count samples by label (row) and by class with the highest score (column).

    The first of equal scores wins.

    Args:
        x: scores.
        target: labels, in the shape of ``x`` with length 1 on the class axis; whole numbers of any
            dtype.
        axis: the class axis; ``None`` for the last.

    Raises:
        OperatorError: when run, a label names no class.

    Gradient:
        None: counts have no slope.

    Examples:
        >>> F.confusion_matrix(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([[1], [1]])).d
        array([[0, 0],
               [1, 1]])

    Elsewhere:
        - nnabla: `confusion_matrix`
        - PyTorch: none, `torch.bincount` of pairs
        - ONNX: none, `ArgMax` and `ScatterND`
    """
    return confusion_matrix_operator(x, target, axis=-1 if axis is None else whole(axis, "axis"))
