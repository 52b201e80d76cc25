"""Losses that compare two arrays element by element, and the error of a binary decision.

Nothing is summed (`kl_multinomial` excepted): a mean or a sum over the losses is the user's. An
element whose loss does not count (``g`` is 0, as where `where` left it out) has gradient 0, even
where an input is not a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.checks import real
from nnl_core.graph.dtypes import is_half
from nnl_core.graph.operator import Array, Operator, Sample, defop
from nnl_core.graph.spec import normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, same_dtype, unbroadcast
from nnl_core.operators.dtypes import floating, single_precision

__all__ = [
    "absolute_error",
    "binary_cross_entropy",
    "binary_error",
    "epsilon_insensitive_loss",
    "huber_loss",
    "kl_multinomial",
    "sigmoid_cross_entropy",
    "squared_error",
]

TINY = float(np.finfo(np.float32).tiny)
"""What probabilities are raised to before their logarithm is taken."""


def _pairs(rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """Arrays that differ by 0.2 to 0.4, or by 1.2 to 1.9: equal shapes, broadcast, 0-d, empty."""
    for left, right in [((3, 5), (3, 5)), ((4, 1, 3), (2, 1)), ((), ()), ((0, 3), (3,))]:
        x0 = rng.integers(-1, 2, size=left) * 1.6 + rng.uniform(0, 0.1, size=left)
        yield x0, rng.uniform(-0.4, -0.2, size=right)


def _floats(x0: Operand, x1: Operand) -> tuple[Variable, Variable]:
    left, right = same_dtype(x0, x1)
    return floating(left), floating(right)


# Differences -------------------------------------------------------------------------------------


def _difference_vjp(g: Variable, slope: Variable, x0: Variable, x1: Variable) -> tuple[Any, ...]:
    change = F.chain_rule(g, slope)
    return unbroadcast(change, x0), unbroadcast(-change, x1)


def _beyond(x: Variable, bound: float) -> Variable:
    """1 above ``bound``, -1 below ``-bound``, 0 between and at NaN."""
    return F.cast(x > bound, x.dtype) - F.cast(x < -bound, x.dtype)


@defop("nnl::squared_error", save=("x0", "x1"), precision="full")
@single_precision
def squared_error_operator(x0: Array, x1: Array) -> Array:
    """``(x0 - x1)^2``."""
    return (x0 - x1) ** 2


squared_error_operator.elementwise("(x0 - x1) * (x0 - x1)")


@squared_error_operator.vjp
def squared_error_vjp(g: Any, y: Any, x0: Any, x1: Any) -> tuple[Any, ...]:
    """``2 g (x0 - x1)`` and its negative."""
    return _difference_vjp(g, (x0 - x1) * 2, x0, x1)


@defop("nnl::absolute_error", save=("x0", "x1"), precision="full")
@single_precision
def absolute_error_operator(x0: Array, x1: Array) -> Array:
    """``|x0 - x1|``."""
    return np.abs(x0 - x1)


absolute_error_operator.elementwise("fabsf(x0 - x1)")


@absolute_error_operator.vjp
def absolute_error_vjp(g: Any, y: Any, x0: Any, x1: Any) -> tuple[Any, ...]:
    """``g`` times the sign of ``x0 - x1``, and its negative."""
    return _difference_vjp(g, _beyond(x0 - x1, 0.0), x0, x1)


@defop("nnl::huber_loss", save=("x0", "x1"), precision="full")
@single_precision
def huber_loss_operator(x0: Array, x1: Array, *, delta: float = 1.0) -> Array:
    """``d^2`` for ``d = |x0 - x1|`` below ``delta``, else ``delta (2 d - delta)``."""
    d = np.abs(x0 - x1)
    return np.where(d < delta, d * d, delta * (2 * d - delta))


huber_loss_operator.elementwise(
    "fabsf(x0 - x1) < delta ? (x0 - x1) * (x0 - x1) : delta * (2.0f * fabsf(x0 - x1) - delta)"
)


@huber_loss_operator.vjp
def huber_loss_vjp(g: Any, y: Any, x0: Any, x1: Any, *, delta: float) -> tuple[Any, ...]:
    """``2 g (x0 - x1)``, the difference cut off at ``delta``, and its negative."""
    bounded = F.maximum_scalar(F.minimum_scalar(x0 - x1, delta), -delta)
    return _difference_vjp(g, bounded * 2, x0, x1)


@defop("nnl::epsilon_insensitive_loss", save=("x0", "x1"), precision="full")
@single_precision
def epsilon_insensitive_loss_operator(x0: Array, x1: Array, *, epsilon: float = 1e-3) -> Array:
    """``max(|x0 - x1| - epsilon, 0)``."""
    return np.maximum(np.abs(x0 - x1) - epsilon, 0)


epsilon_insensitive_loss_operator.elementwise(
    "fabsf(x0 - x1) <= epsilon ? 0.0f : fabsf(x0 - x1) - epsilon"
)


@epsilon_insensitive_loss_operator.vjp
def epsilon_insensitive_loss_vjp(
    g: Any, y: Any, x0: Any, x1: Any, *, epsilon: float
) -> tuple[Any, ...]:
    """``g`` times the sign of ``x0 - x1`` where that exceeds ``epsilon``, and its negative."""
    return _difference_vjp(g, _beyond(x0 - x1, epsilon), x0, x1)


def _attach_samples(operator: Operator, *attributes: dict[str, float]) -> None:
    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for given in attributes:
            for x0, x1 in _pairs(rng):
                yield Sample(x0, x1, **given)

    operator.samples(samples)


_attach_samples(squared_error_operator, {})
_attach_samples(absolute_error_operator, {})
_attach_samples(huber_loss_operator, {}, {"delta": 0.6})
_attach_samples(epsilon_insensitive_loss_operator, {}, {"epsilon": 0.9})


def squared_error(x0: Operand, x1: Operand) -> Variable:
    """Compare by the squared distance: ``y = (x0 - x1) ** 2``, broadcasting.

    Args:
        x0: any shape.
        x1: any shape, broadcast with ``x0``.

    Gradient:
        ``dx0 = 2 (x0 - x1) dy``, ``dx1 = -dx0``.

    Examples:
        >>> F.squared_error(np.array([1.0, 2.0]), np.array([3.0, 2.0])).d
        array([4., 0.])

    Elsewhere:
        - nnabla: `squared_error`
        - PyTorch: `torch.nn.functional.mse_loss` with `reduction="none"`
        - ONNX: none, `Mul` of `Sub`
    """
    return squared_error_operator(*_floats(x0, x1))


def absolute_error(x0: Operand, x1: Operand) -> Variable:
    """Compare by the distance: ``y = |x0 - x1|``, broadcasting.

    Args:
        x0: any shape.
        x1: any shape, broadcast with ``x0``.

    Gradient:
        ``dx0 = sign(x0 - x1) dy``, ``dx1 = -dx0``; 0 where they are equal.

    Examples:
        >>> F.absolute_error(np.array([1.0, 2.0]), np.array([3.0, 2.0])).d
        array([2., 0.])

    Elsewhere:
        - nnabla: `absolute_error`
        - PyTorch: `torch.nn.functional.l1_loss` with `reduction="none"`
        - ONNX: none, `Abs` of `Sub`
    """
    return absolute_error_operator(*_floats(x0, x1))


def huber_loss(x0: Operand, x1: Operand, delta: float = 1.0) -> Variable:
    """Compare by a square that goes on as a line.

    ``y = d ** 2`` for ``d = |x0 - x1| < delta``, else ``delta (2 d - delta)``:
    twice the loss as Huber (1964) writes it.

    Args:
        x0: any shape.
        x1: any shape, broadcast with ``x0``.
        delta: where the line begins.

    Gradient:
        ``dx0 = 2 min(max(x0 - x1, -delta), delta) dy``, ``dx1 = -dx0``.

    Examples:
        >>> F.huber_loss(np.array([0.5, 3.0]), np.array([0.0, 0.0])).d
        array([0.25, 5.  ])

    Elsewhere:
        - nnabla: `huber_loss`
        - PyTorch: `torch.nn.functional.huber_loss` with `reduction="none"`, which is half of it
        - ONNX: none, `Where` of the two
    """
    return huber_loss_operator(*_floats(x0, x1), delta=real(delta, "delta"))


def epsilon_insensitive_loss(x0: Operand, x1: Operand, epsilon: float) -> Variable:
    """Compare by what the distance is beyond ``epsilon``: ``y = max(|x0 - x1| - epsilon, 0)``.

    Args:
        x0: any shape.
        x1: any shape, broadcast with ``x0``.
        epsilon: the distance that costs nothing.

    Gradient:
        The sign of ``x0 - x1`` beyond ``epsilon``, 0 up to it.

    Examples:
        >>> F.epsilon_insensitive_loss(np.array([0.5, 3.0]), np.array([0.0, 0.0]), 1.0).d
        array([0., 2.])

    Elsewhere:
        - nnabla: `epsilon_insensitive_loss`
        - PyTorch: none, `torch.nn.functional.relu(abs(x0 - x1) - epsilon)`
        - ONNX: none, `Relu` of `Abs` less epsilon
    """
    return epsilon_insensitive_loss_operator(*_floats(x0, x1), epsilon=real(epsilon, "epsilon"))


# Two classes -------------------------------------------------------------------------------------


@defop("nnl::sigmoid_cross_entropy", save=("x", "target"), precision="full")
@single_precision
def sigmoid_cross_entropy_operator(x: Array, target: Array) -> Array:
    """``-(t log(s) + (1 - t) log(1 - s))`` for ``s = sigmoid(x)``."""
    return np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x)))


sigmoid_cross_entropy_operator.elementwise("fmaxf(x, 0.0f) - x * target + log1pf(expf(-fabsf(x)))")


@sigmoid_cross_entropy_operator.vjp
def sigmoid_cross_entropy_vjp(g: Any, y: Any, x: Any, target: Any) -> tuple[Any, ...]:
    """``dx = g (s - t), dt = -g x``."""
    dx, dt = F.chain_rule(g, F.sigmoid(x) - target), F.chain_rule(g, -x)
    return unbroadcast(dx, x), unbroadcast(dt, target)


@sigmoid_cross_entropy_operator.samples
def sigmoid_cross_entropy_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Hard and soft targets, large logits."""
    for x, other in _pairs(rng):
        yield Sample(x, rng.uniform(size=other.shape))
    yield Sample(np.array([1000.0, -1000.0, 1000.0]), np.array([1.0, 1.0, 0.0]))


def sigmoid_cross_entropy(x: Operand, target: Operand) -> Variable:
    """Compare logits with 0, 1 or a probability between.

    ``y = -(t log(s) + (1 - t) log(1 - s))`` with ``s = sigmoid(x)``. Finite for logits of any size.

    Args:
        x: logits.
        target: the same shape, of any dtype.

    Gradient:
        ``dx = (sigmoid(x) - t) dy``; none for the target.

    Examples:
        >>> F.sigmoid_cross_entropy(np.array([0.0, -1000.0]), np.array([1, 1])).d
        array([6.93147181e-01, 1.00000000e+03])

    Elsewhere:
        - nnabla: `sigmoid_cross_entropy`
        - PyTorch: `torch.nn.functional.binary_cross_entropy_with_logits` with `reduction="none"`
        - ONNX: none, `Softplus`, `Mul` and `Sub`
    """
    return sigmoid_cross_entropy_operator(*_floats(x, target))


@defop("nnl::binary_cross_entropy", save=("x", "target"), precision="full")
@single_precision
def binary_cross_entropy_operator(x: Array, target: Array) -> Array:
    """``-(t log(x) + (1 - t) log(1 - x))``."""
    on, off = np.log(np.maximum(x, TINY)), np.log(np.maximum(1 - x, TINY))
    return -(target * on + (1 - target) * off)


binary_cross_entropy_operator.elementwise(
    "-(target * logf(x < 1.17549435e-38f ? 1.17549435e-38f : x)"
    " + (1.0f - target) * logf(1.0f - x < 1.17549435e-38f ? 1.17549435e-38f : 1.0f - x))"
)


@binary_cross_entropy_operator.vjp
def binary_cross_entropy_vjp(g: Any, y: Any, x: Any, target: Any) -> tuple[Any, ...]:
    """``dx = g (x - t) / (x (1 - x)), dt = g (log(1 - x) - log(x))``."""
    dx = F.chain_rule(g, (x - target) / F.maximum_scalar(x - x * x, TINY))
    on, off = (F.log(F.maximum_scalar(p, TINY)) for p in (x, 1 - x))
    return unbroadcast(dx, x), unbroadcast(F.chain_rule(g, off - on), target)


@binary_cross_entropy_operator.samples
def binary_cross_entropy_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Probabilities away from 0 and 1, hard and soft targets."""
    for x, other in _pairs(rng):
        yield Sample(rng.uniform(0.1, 0.9, size=x.shape), rng.uniform(size=other.shape))
    yield Sample(np.array([0.2, 0.7]), np.array([0.0, 1.0]))


def binary_cross_entropy(x: Operand, target: Operand) -> Variable:
    """Compare probabilities with 0, 1 or a probability between.

    ``y = -(t log(x) + (1 - t) log(1 - x))``. ``x`` and ``1 - x`` below the smallest
    normal ``float32`` number count as that number.

    Args:
        x: probabilities.
        target: the same shape, of any dtype.

    Gradient:
        ``dx = (x - t) / (x (1 - x)) dy``; none for the target.

    Examples:
        >>> F.binary_cross_entropy(np.array([0.5, 0.25]), np.array([1, 0])).d
        array([0.69314718, 0.28768207])

    Elsewhere:
        - nnabla: `binary_cross_entropy`
        - PyTorch: `torch.nn.functional.binary_cross_entropy` with `reduction="none"`
        - ONNX: none, `Log`, `Mul` and `Sub`
    """
    return binary_cross_entropy_operator(*_floats(x, target))


@defop("nnl::binary_error")
def binary_error_operator(x: Array, target: Array) -> Array:
    """1 where ``x`` and ``target`` lie on different sides of 0.5, else 0; NaN is an error."""
    wrong = ((x >= 0.5) != (target >= 0.5)) | np.isnan(x)
    return np.asarray(wrong).astype(x.dtype)


binary_error_operator.elementwise("(isnan(x) || (x >= 0.5f) != (target >= 0.5f)) ? 1.0f : 0.0f")


@binary_error_operator.samples
def binary_error_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both sides, and 0.5 itself."""
    for x, other in _pairs(rng):
        yield Sample(rng.uniform(size=x.shape), rng.integers(0, 2, size=other.shape) * 1.0)
    yield Sample(np.array([0.5, 0.5]), np.array([0.0, 1.0]))


def binary_error(x: Operand, target: Operand) -> Variable:
    """Give 1 where ``x`` and ``target`` lie on different sides of 0.5, else 0.

    Args:
        x: any shape.
        target: the same shape.

    Gradient:
        None: errors have no slope.

    Examples:
        >>> F.binary_error(np.array([0.2, 0.7]), np.array([1, 1])).d
        array([1., 0.])

    Elsewhere:
        - nnabla: `binary_error`
        - PyTorch: none, `(x >= 0.5) != (target >= 0.5)`
        - ONNX: none, `GreaterOrEqual` and `Xor`
    """
    return binary_error_operator(*_floats(x, target))


# Distributions -----------------------------------------------------------------------------------


def kl_multinomial(p: Operand, q: Operand, base_axis: int = 1) -> Variable:
    """Compare two distributions by their divergence (Kullback and Leibler, 1951).

    ``y = sum p (log(p) - log(q))`` over the axes from ``base_axis`` on. ``1e-8`` is
    added to what a logarithm is taken of. One axis of length 1 is left of those summed.

    Args:
        p: probabilities.
        q: the same shape.
        base_axis: the first axis of a sample.

    Raises:
        ShapeError: the shapes differ.

    Gradient:
        ``dp = (log(p) - log(q) + 1) dy``, ``dq = -p / q dy``.

    Examples:
        >>> F.kl_multinomial(np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]])).d.round(4)
        array([[0.1438]])

    Elsewhere:
        - nnabla: `kl_multinomial`
        - PyTorch: `torch.nn.functional.kl_div`, of logarithms, and a sum
        - ONNX: none, `Log`, `Sub`, `Mul` and `ReduceSum`
    """
    left, right = _floats(p, q)
    if left.shape != right.shape:
        raise ShapeError(f"kl_multinomial: shapes {left.shape} and {right.shape} differ")
    axis = normalize_axis(base_axis, left.ndim)
    dtype = left.dtype
    if is_half(dtype):  # float16 has no 1e-8
        left, right = cast(left, np.float32), cast(right, np.float32)
    terms = left * (F.log(left + 1e-8) - F.log(right + 1e-8))
    total = F.sum(terms, axis=tuple(range(axis, left.ndim)))
    result = F.reshape(total, (*left.shape[:axis], 1))
    return result if result.dtype == dtype else cast(result, dtype)
