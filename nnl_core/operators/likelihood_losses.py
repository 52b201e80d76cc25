"""Losses that are negative logarithms of probabilities, and divergences of distributions.

Nothing is averaged: a mean or a sum over the losses is the user's. Half precision is computed in
``float32``.
"""

from __future__ import annotations

import math

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.spec import DEFAULT_DTYPE, promote
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast
from nnl_core.operators.cross_entropy import class_targets
from nnl_core.operators.dtypes import wide_dtype
from nnl_core.operators.gathering import to_variable
from nnl_core.operators.labels import check_label_shape

__all__ = ["focal_loss", "gaussian_nll_loss", "kl_divergence", "nll_loss", "poisson_nll_loss"]


def computed(*operands: Operand) -> tuple[np.dtype, list[Variable]]:
    """Return the dtype of a loss, and its operands in the dtype that it is computed in."""
    variables = [to_variable(operand) for operand in operands]
    found = promote(*(variable.dtype for variable in variables))
    dtype = found if is_floating(found) else DEFAULT_DTYPE
    return dtype, [narrowed(variable, wide_dtype(dtype)) for variable in variables]


def narrowed(x: Variable, dtype: np.dtype) -> Variable:
    """Convert to a dtype, if need be."""
    return x if x.dtype == dtype else cast(x, dtype)


def focal_loss(
    x: Operand, target: Operand, alpha: float | None = 0.25, gamma: float = 2.0
) -> Variable:
    """Compare logits with 0 or 1, leaving aside what is right already: ``a (1 - q)^gamma c``.

    ``c`` is the sigmoid cross entropy, ``q`` the probability of the target and ``a`` its weight:
    ``alpha`` for 1, ``1 - alpha`` for 0 (Lin et al. 2017, https://arxiv.org/abs/1708.02002).
    Finite for logits of any size. Targets between 0 and 1 mix the two.

    Args:
        x: logits of any shape; integers become ``float32``.
        target: 0, 1 or between; broadcasts with ``x``.
        alpha: the weight of target 1; ``None`` weighs both with 1.
        gamma: how fast the weight of what is right falls; 0 is the cross entropy.

    Returns:
        A loss for each element.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        The derivative, of both inputs.

    Examples:
        >>> F.focal_loss(np.array([0.0, 9.0]), np.array([1.0, 1.0]), None).d.round(4)
        array([0.1733, 0.    ])

    Elsewhere:
        - nnabla: none, from `sigmoid_cross_entropy` and `sigmoid`
        - PyTorch: `torchvision.ops.sigmoid_focal_loss`
        - ONNX: none, from `Sigmoid`, `Softplus` and `Pow`
    """
    dtype, (logit, hit) = computed(x, target)
    cross_entropy = F.sigmoid_cross_entropy(logit, hit)
    wrong = F.sigmoid(-logit) * hit + F.sigmoid(logit) * (1 - hit)
    loss = cross_entropy * wrong ** float(gamma)
    if alpha is not None:
        loss = loss * (hit * float(alpha) + (1 - hit) * (1 - float(alpha)))
    return narrowed(loss, dtype)


def gaussian_nll_loss(
    x: Operand, target: Operand, variance: Operand, full: bool = False, eps: float = 1e-6
) -> Variable:
    """``(log(v) + (x - target)^2 / v) / 2`` for ``v = max(variance, eps)``.

    The negative log-likelihood of ``target`` where ``x`` is the mean of a normal distribution.

    Args:
        x: means, of any shape; integers become ``float32``.
        target: what was observed; broadcasts with ``x``.
        variance: predicted variances, not their logarithms; they broadcast, too.
        full: add the constant ``log(2 pi) / 2``.
        eps: what smaller variances count as.

    Returns:
        A loss for each element.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        The derivative, of all three inputs; 0 for variances below ``eps``.

    Examples:
        >>> F.gaussian_nll_loss(np.array([1.0]), np.array([3.0]), np.array([1.0])).d
        array([2.])

    Elsewhere:
        - nnabla: none, from `log` and `squared_error`
        - PyTorch: `torch.nn.functional.gaussian_nll_loss`, averages by default, and variances
          below `eps` have a gradient
        - ONNX: none, from `Log`, `Div` and `Max`
    """
    dtype, (mean, seen, given) = computed(x, target, variance)
    v = F.maximum_scalar(given, float(eps))
    loss = (F.log(v) + F.squared_error(mean, seen) / v) * 0.5
    return narrowed(loss + 0.5 * math.log(2 * math.pi) if full else loss, dtype)


def kl_divergence(x: Operand, target: Operand, log_target: bool = False) -> Variable:
    """``t (log(t) - x)`` for log-probabilities ``x`` and probabilities ``t``; 0 where ``t`` is 0.

    The sum over the classes is the divergence of the distribution ``x`` from ``target``.

    Args:
        x: logarithms of probabilities, as of `log_softmax`; integers become ``float32``.
        target: probabilities; broadcasts with ``x``.
        log_target: ``target`` holds logarithms, too.

    Returns:
        A term for each element.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``dx = -t g`` and ``dt = (log(t) + 1 - x) g``, the latter 0 where ``t`` is 0.

    Examples:
        >>> p, q = np.array([0.5, 0.5]), np.array([0.25, 0.75])
        >>> F.kl_divergence(np.log(q), p).d.round(4)
        array([ 0.3466, -0.2027])

    Elsewhere:
        - nnabla: `kl_multinomial`, of two arrays of probabilities, summed
        - PyTorch: `torch.nn.functional.kl_div`, averages by default
        - ONNX: none, from `Log`, `Sub` and `Mul`
    """
    dtype, (log_q, t) = computed(x, target)
    if log_target:
        log_p = t
        t = F.exp(log_p)
    else:
        log_p = F.log(F.where(t == 0, 1.0, t))
    # Where t is 0, both logarithms may be minus infinity.
    loss = t * F.where(t == 0, 0.0, log_p - log_q)
    return narrowed(loss, dtype)


def nll_loss(
    x: Operand,
    target: Operand,
    axis: int | None = None,
    *,
    ignore_index: int | None = None,
    weight: Operand | None = None,
) -> Variable:
    """Compare log-probabilities with class labels: ``-x`` at the label.

    Args:
        x: logarithms of probabilities, as of `log_softmax`; integers become ``float32``.
        target: the shape of ``x`` with length 1 on ``axis``: labels from 0 on, as integers or as
            floats that are whole; negative ones are ignored.
        axis: where the classes lie; by default the last.
        ignore_index: a label that is ignored as negative ones are: loss and gradient are 0.
        weight: ``(classes,)``, a factor of the loss for each class.

    Returns:
        A loss for each label.

    Raises:
        ShapeError: the labels, or the weights, have another shape.
        OperatorError: when run, a label names no class.

    Gradient:
        ``-weight`` at the label, 0 elsewhere; labels have none.

    Examples:
        >>> x = np.log(np.array([[0.5, 0.5], [0.25, 0.75]]))
        >>> F.nll_loss(x, np.array([[0], [-1]])).d.round(4)
        array([[0.6931],
               [0.    ]])

    Elsewhere:
        - nnabla: `categorical_cross_entropy`, of the probabilities themselves
        - PyTorch: `torch.nn.functional.nll_loss`, classes on axis 1, averages by default
        - ONNX: `NegativeLogLikelihoodLoss`, classes on axis 1, averages by default
    """
    dtype, (log_p, *factors) = computed(x, *([] if weight is None else [weight]))
    labels = to_variable(target)
    at = -1 if axis is None else whole(axis, "axis")
    try:
        at = check_label_shape(log_p.spec, labels.spec, at)
    except ShapeError as error:
        raise ShapeError(f"nll_loss: {error}") from None
    shares = class_targets(
        labels,
        *factors,
        classes=log_p.shape[at],
        axis=at,
        ignore_index=ignore_index,
        dtype=log_p.dtype.name,
    )
    # Elsewhere the probability may be 0, and its logarithm minus infinity.
    counted = F.where(shares == 0, 0.0, -log_p)
    return narrowed(F.sum(counted * shares, axis=at, keepdims=True), dtype)


def poisson_nll_loss(
    x: Operand, target: Operand, log_input: bool = True, full: bool = False, eps: float = 1e-8
) -> Variable:
    """``exp(x) - target x``: what counts as few where ``exp(x)`` are expected costs.

    The negative log-likelihood of counts under a Poisson distribution, without the term that
    depends on the counts alone.

    Args:
        x: logarithms of the expected counts, of any shape; integers become ``float32``.
        target: counts; broadcasts with ``x``.
        log_input: without it, ``x`` is the expected count itself, and the loss is
            ``x - target log(x + eps)``.
        full: add Stirling's approximation of ``log(target!)``, for counts above 1:
            ``t log(t) - t + log(2 pi t) / 2``.
        eps: keeps the logarithm finite where 0 is expected.

    Returns:
        A loss for each element.

    Raises:
        ShapeError: the shapes do not broadcast.
        OperatorError: ``eps`` is negative.

    Gradient:
        The derivative, of both inputs.

    Examples:
        >>> F.poisson_nll_loss(np.array([0.0, 0.0]), np.array([1.0, 5.0])).d
        array([1., 1.])

    Elsewhere:
        - nnabla: none, from `exp`, `mul2` and `sub2`
        - PyTorch: `torch.nn.functional.poisson_nll_loss`, averages by default
        - ONNX: none, from `Exp`, `Mul` and `Sub`
    """
    if eps < 0:
        raise OperatorError(f"poisson_nll_loss: eps is {eps}; it must not be negative")
    dtype, (rate, count) = computed(x, target)
    if log_input:
        loss = F.exp(rate) - count * rate
    else:
        loss = rate - count * F.log(rate + float(eps))
    if full:
        many = F.where(count > 1, count, 1.0)
        log_factorial = many * F.log(many) - many + F.log(many * (2 * math.pi)) * 0.5
        loss = loss + F.where(count > 1, log_factorial, 0.0)
    return narrowed(loss, dtype)
