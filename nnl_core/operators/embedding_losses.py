"""Losses of vectors that should lie near or far, of scores that should be ordered.

Nothing is averaged: a mean or a sum over the losses is the user's. Half precision is computed in
``float32``.
"""

from __future__ import annotations

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.likelihood_losses import computed, narrowed

__all__ = [
    "contrastive_loss",
    "cosine_embedding_loss",
    "cosine_similarity",
    "hinge_loss",
    "info_nce",
    "margin_ranking_loss",
    "triplet_loss",
]


def _check_labels(name: str, target: Variable, pairs: Variable) -> None:
    """Refuse what would broadcast to a loss for each pair of pairs."""
    if target.shape != pairs.shape:
        raise ShapeError(
            f"{name}: target has shape {target.shape}, expected {pairs.shape}: one label for each "
            "pair of vectors"
        )


def _directions(x: Variable, axis: int, eps: float = 1e-8) -> Variable:
    result: Variable = x / F.maximum_scalar(F.norm(x, axis=axis, keepdims=True), eps)
    return result


def _cosine(x0: Variable, x1: Variable, axis: int, eps: float = 1e-8) -> Variable:
    result: Variable = F.sum(_directions(x0, axis, eps) * _directions(x1, axis, eps), axis=axis)
    return result


def cosine_similarity(x0: Operand, x1: Operand, axis: int = -1, eps: float = 1e-8) -> Variable:
    """Cosine of the angle between vectors: ``sum(x0 x1) / (max(|x0|, eps) max(|x1|, eps))``.

    0 for a vector of zeros.

    Args:
        x0: any shape but ``()``; integers become ``float32``.
        x1: broadcasts with ``x0``.
        axis: where the vectors lie.
        eps: what shorter lengths count as.

    Returns:
        The broadcast shape without ``axis``.

    Raises:
        ShapeError: the shapes do not broadcast, or there is no such axis.

    Gradient:
        The derivative; at a vector of zeros, that of the product over ``eps``.

    Examples:
        >>> F.cosine_similarity(np.array([[1.0, 0.0], [3.0, 4.0]]), np.array([1.0, 0.0])).d
        array([1. , 0.6])

    Elsewhere:
        - nnabla: none, `sum` of the product of two `norm_normalization`
        - PyTorch: `torch.nn.functional.cosine_similarity`, along `dim`, by default 1
        - ONNX: none, from `LpNormalization`, `Mul` and `ReduceSum`
    """
    dtype, (left, right) = computed(x0, x1)
    return narrowed(_cosine(left, right, whole(axis, "axis"), float(eps)), dtype)


def cosine_embedding_loss(
    x0: Operand, x1: Operand, target: Operand, margin: float = 0.0, axis: int = -1
) -> Variable:
    """``1 - c`` for pairs that belong together, ``max(c - margin, 0)`` for others.

    ``c`` is the `cosine_similarity` of the pair.

    Args:
        x0: the first of each pair, usually ``(batch, features)``; integers become ``float32``.
        x1: the second; broadcasts with ``x0``.
        target: 1 where the two belong together, -1 (or any number that is not positive) where
            not; the shape of the result.
        margin: how similar others may be, from -1 to 1.
        axis: where the vectors lie.

    Returns:
        A loss for each pair: the broadcast shape without ``axis``.

    Raises:
        ShapeError: the shapes do not broadcast, or the labels have another shape.

    Gradient:
        The derivative of both vectors, 0 at the kink; labels have none.

    Examples:
        >>> x = np.array([[1.0, 0.0], [1.0, 0.0]])
        >>> F.cosine_embedding_loss(x, np.array([[3.0, 4.0], [3.0, 4.0]]), np.array([1, -1])).d
        array([0.4, 0.6])

    Elsewhere:
        - nnabla: none, from `norm_normalization` and `where`
        - PyTorch: `torch.nn.functional.cosine_embedding_loss`, averages by default
        - ONNX: none, from `LpNormalization`, `ReduceSum` and `Where`
    """
    dtype, (left, right, label) = computed(x0, x1, target)
    similarity = _cosine(left, right, whole(axis, "axis"))
    _check_labels("cosine_embedding_loss", label, similarity)
    loss = F.where(label > 0, 1 - similarity, F.relu(similarity - float(margin)))
    return narrowed(loss, dtype)


def contrastive_loss(
    x0: Operand, x1: Operand, target: Operand, margin: float = 1.0, axis: int = -1
) -> Variable:
    """``(t d^2 + (1 - t) max(margin - d, 0)^2) / 2`` for the distance ``d = |x0 - x1|``.

    Pairs that belong together attract each other, others repel within ``margin`` (Hadsell, Chopra,
    LeCun 2006, whose ``Y`` is ``1 - t``).

    Args:
        x0: the first of each pair, usually ``(batch, features)``; integers become ``float32``.
        x1: the second; broadcasts with ``x0``.
        target: ``t``, 1 where the two belong together, 0 where not; the shape of the result.
        margin: from which distance on others are left alone.
        axis: where the vectors lie.

    Returns:
        A loss for each pair: the broadcast shape without ``axis``.

    Raises:
        ShapeError: the shapes do not broadcast, or the labels have another shape.

    Gradient:
        The derivative; 0 at distance 0, where others repel in no direction.

    Examples:
        >>> x = np.array([[0.0, 0.0], [0.0, 0.0]])
        >>> F.contrastive_loss(x, np.array([[3.0, 4.0], [3.0, 4.0]]), np.array([1, 0]), 6.0).d
        array([12.5,  0.5])

    Elsewhere:
        - nnabla: none, from `squared_error`, `sum` and `maximum_scalar`
        - PyTorch: none, from `torch.nn.functional.pairwise_distance`
        - ONNX: none, from `ReduceL2` and `Relu`
    """
    dtype, (left, right, label) = computed(x0, x1, target)
    difference = left - right
    squares = F.sum(difference * difference, axis=whole(axis, "axis"))
    _check_labels("contrastive_loss", label, squares)
    short = F.relu(float(margin) - F.norm(difference, axis=whole(axis, "axis")))
    return narrowed((label * squares + (1 - label) * (short * short)) * 0.5, dtype)


def info_nce(
    query: Operand, positive: Operand, negatives: Operand | None = None, temperature: float = 0.1
) -> Variable:
    """Tell the positive of each query from those of all others: softmax cross entropy of cosines.

    ``-log(exp(c[i, i] / T) / sum_j exp(c[i, j] / T))``, where ``c[i, j]`` is the cosine of query
    ``i`` and positive ``j``, or negative ``j - batch`` (van den Oord et al. 2018,
    https://arxiv.org/abs/1807.03748).

    Args:
        query: ``(batch, features)``; integers become ``float32``.
        positive: ``(batch, features)``, row ``i`` belongs to query ``i``.
        negatives: ``(count, features)``, which belong to no query.
        temperature: ``T``, positive.

    Returns:
        ``(batch,)``, a loss for each query.

    Raises:
        ShapeError: the shapes are not these.
        OperatorError: the temperature is not positive.

    Gradient:
        The derivative, of all inputs.

    Examples:
        >>> x = np.eye(2)
        >>> F.info_nce(x, x, temperature=1.0).d.round(4)
        array([0.3133, 0.3133])

    Elsewhere:
        - nnabla: none, from `norm_normalization`, `affine` and `softmax_cross_entropy`
        - PyTorch: none, `torch.nn.functional.cross_entropy` of the cosines
        - ONNX: none, `SoftmaxCrossEntropyLoss` of the cosines
    """
    if not temperature > 0:
        raise OperatorError(f"info_nce: temperature is {temperature}; it must be positive")
    others = [] if negatives is None else [negatives]
    dtype, (left, right, *rest) = computed(query, positive, *others)
    shapes = [x.shape for x in (left, right, *rest)]
    if (
        any(len(shape) != 2 for shape in shapes)
        or shapes[0] != shapes[1]
        or shapes[-1][1] != shapes[0][1]
    ):
        raise ShapeError(
            f"info_nce: shapes {', '.join(map(str, shapes))} must be (batch, features) twice"
            + (", and (count, features)" if rest else "")
        )
    keys = F.concatenate(right, *rest, axis=0) if rest else right
    cosines = F.matmul(_directions(left, 1), F.transpose(_directions(keys, 1), (1, 0)))
    scores = F.log_softmax(cosines / float(temperature), axis=1)
    own = F.getitem(scores, (slice(None), slice(left.shape[0]))) if rest else scores
    return narrowed(-F.matrix_diag_part(own), dtype)


def hinge_loss(x: Operand, target: Operand, margin: float = 1.0) -> Variable:
    """``max(margin - target x, 0)``: a score should have the target's sign, and be beyond margin.

    Args:
        x: scores of any shape; integers become ``float32``.
        target: 1 or -1; broadcasts with ``x``.
        margin: how far beyond 0 a score should be.

    Returns:
        A loss for each element.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``-target`` below the margin, 0 beyond it and at it.

    Examples:
        >>> F.hinge_loss(np.array([2.0, 0.25, -1.0]), np.array([1.0, 1.0, 1.0])).d
        array([0.  , 0.75, 2.  ])

    Elsewhere:
        - nnabla: none, from `mul2`, `r_sub_scalar` and `relu`
        - PyTorch: none, `torch.nn.functional.hinge_embedding_loss` is another loss
        - ONNX: none, from `Mul`, `Sub` and `Relu`
    """
    dtype, (score, sign) = computed(x, target)
    return narrowed(F.relu(float(margin) - sign * score), dtype)


def margin_ranking_loss(x0: Operand, x1: Operand, target: Operand, margin: float = 0.0) -> Variable:
    """``max(margin - target (x0 - x1), 0)``: one score should be larger than the other.

    Args:
        x0: scores of any shape; integers become ``float32``.
        x1: scores to compare with; broadcasts with ``x0``.
        target: 1 where ``x0`` should be larger, -1 where ``x1`` should; broadcasts, too.
        margin: by how much.

    Returns:
        A loss for each pair.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``-target`` and ``target`` below the margin, 0 beyond it and at it.

    Examples:
        >>> F.margin_ranking_loss(np.array([1.0, 1.0]), np.array([3.0, 3.0]), np.array([1, -1])).d
        array([2., 0.])

    Elsewhere:
        - nnabla: none, from `sub2`, `mul2` and `relu`
        - PyTorch: `torch.nn.functional.margin_ranking_loss`, averages by default
        - ONNX: none, from `Sub`, `Mul` and `Relu`
    """
    dtype, (left, right, sign) = computed(x0, x1, target)
    return narrowed(F.relu(float(margin) - sign * (left - right)), dtype)


def triplet_loss(
    anchor: Operand,
    positive: Operand,
    negative: Operand,
    margin: float = 1.0,
    p: float = 2.0,
    swap: bool = False,
    axis: int = -1,
) -> Variable:
    """``max(|anchor - positive| - |anchor - negative| + margin, 0)``.

    The positive should lie nearer than the negative (Schroff et al. 2015,
    https://arxiv.org/abs/1503.03832, with squared distances).

    Args:
        anchor: usually ``(batch, features)``; integers become ``float32``.
        positive: what belongs to the anchor; broadcasts with it.
        negative: what does not; broadcasts, too.
        margin: by how much nearer.
        p: of the norm; infinity gives the greatest difference.
        swap: take the distance of positive and negative where it is less than that of anchor and
            negative (Balntas et al. 2016).
        axis: where the vectors lie.

    Returns:
        A loss for each triplet: the broadcast shape without ``axis``.

    Raises:
        ShapeError: the shapes do not broadcast, or there is no such axis.
        OperatorError: ``p`` is not positive.

    Gradient:
        The derivative; 0 at the kink, and at distance 0 that of the distance is 0.

    Examples:
        >>> anchor, far = np.zeros((1, 2)), np.array([[3.0, 4.0]])
        >>> F.triplet_loss(anchor, far, np.array([[0.0, 2.0]])).d
        array([4.])

    Elsewhere:
        - nnabla: none, from `norm`, `sub2` and `relu`
        - PyTorch: `torch.nn.functional.triplet_margin_loss`, averages by default, and adds 1e-6 to
          all differences
        - ONNX: none, from `ReduceL2`, `Sub` and `Relu`
    """
    dtype, (own, near, far) = computed(anchor, positive, negative)

    def distance(x0: Variable, x1: Variable) -> Variable:
        result: Variable = F.norm(x0 - x1, p, whole(axis, "axis"))
        return result

    apart = distance(own, far)
    if swap:
        apart = F.minimum2(apart, distance(near, far))
    return narrowed(F.relu(distance(own, near) - apart + float(margin)), dtype)
