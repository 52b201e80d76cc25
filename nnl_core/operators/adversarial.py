"""The noise of virtual adversarial training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import real, whole
from nnl_core.graph.node import add_effects
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating, wide

__all__ = ["vat_noise"]


@defop("nnl::vat_noise", save=("w",))
def vat_noise_operator(x: Array, w: Array, *, base_axis: int, eps: float) -> Array:
    """``eps x / sqrt(sum x^2 + 1e-8)``, summed over the axes from ``base_axis`` on."""
    values = wide(x)
    axes = tuple(range(normalize_axis(base_axis, x.ndim), x.ndim))
    squares = np.square(values).sum(axis=axes, keepdims=True)
    y = values * (values.dtype.type(eps) / np.sqrt(squares + values.dtype.type(1e-8)))
    return np.asarray(y.astype(x.dtype, copy=False))


@vat_noise_operator.infer
def vat_noise_infer(x: Spec, w: Spec, *, base_axis: int, eps: float) -> Spec:
    """That of the noise."""
    axis = normalize_axis(base_axis, x.ndim)
    if axis < 1:
        raise ShapeError(f"base_axis {base_axis} must leave an axis that counts examples")
    if x.shape != w.shape:
        raise ShapeError("x and w must have the same shape")
    return x


@vat_noise_operator.vjp(surrogate=True)
def vat_noise_vjp(g: Any, y: Any, x: Any, w: Any, *, base_axis: int, eps: float) -> tuple[Any, ...]:
    """Nothing for either; ``w`` is set to ``eps g``."""
    scaled, nothing = kept_gradient(g, eps=eps)
    add_effects(scaled, [(w, scaled if w.dtype == scaled.dtype else F.cast(scaled, w.dtype))])
    return nothing, nothing if w.dtype == nothing.dtype else F.cast(nothing, w.dtype)


@vat_noise_operator.samples
def vat_noise_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One and two axes of examples; one axis, several; no examples."""
    for shape, base_axis, eps in (((3, 5), 1, 1.0), ((2, 3, 2, 2), 2, 0.1), ((0, 3), -1, 10.0)):
        yield Sample(
            rng.normal(size=shape), rng.normal(size=shape), base_axis=base_axis, eps=eps
        )  # fmt: skip


@defop("nnl::vat_gradient", outputs=("scaled", "nothing"))
def kept_gradient(g: Array, *, eps: float) -> tuple[Array, Array]:
    """Return ``eps g``, to be kept, and zeros, to be passed on."""
    return np.asarray(g * g.dtype.type(eps)), np.zeros_like(g)


@kept_gradient.infer
def kept_gradient_infer(g: Spec, *, eps: float) -> tuple[Spec, Spec]:
    """That of the gradient, twice."""
    return g, g


@kept_gradient.vjp
def kept_gradient_vjp(g: Any, y: Any, x: Any, *, eps: float) -> tuple[Any, ...]:
    """The factor."""
    return (None if g[0] is None else g[0] * eps,)


@kept_gradient.samples
def kept_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Some, one, none."""
    for shape in ((2, 3), (), (0, 3)):
        yield Sample(rng.normal(size=shape), eps=0.5)


def vat_noise(x: Operand, w: Variable, base_axis: int = 1, eps: float = 1.0) -> Variable:
    """Scale noise to the length ``eps``, and keep in ``w`` the gradient that reaches it.

    ``y = eps x / sqrt(sum x^2 + 1e-8)``, summed over the axes from ``base_axis`` on. Each
    ``backward`` sets ``w`` to ``eps`` times the gradient that reaches ``y``: fed back as ``x``, it
    is a step of the power iteration for the direction in which the model is most sensitive (Miyato
    et al. 2015).

    Args:
        x: noise, at first normal, later the gradient that was kept.
        w: a variable without history, of the shape of ``x``; it, or ``x``, has to need a gradient.
        base_axis: the first axis that belongs to an example, at least 1.
        eps: the length.

    Raises:
        OperatorError: ``w`` is no variable, or is computed, so that it cannot be set.
        ShapeError: shapes differ, or ``base_axis`` leaves no axis for examples.

    Gradient:
        0 for both.

    Examples:
        >>> w = Variable((1, 2), need_grad=True)
        >>> y = F.vat_noise(np.array([[3.0, 4.0]]), w, eps=10)
        >>> y.forward()
        >>> y.d.round(4)
        array([[6., 8.]])
        >>> y.backward(np.array([[1.0, -1.0]]))
        >>> w.d
        array([[ 10., -10.]], dtype=float32)

    Elsewhere:
        - nnabla: `vat_noise`
        - PyTorch: none, `torch.nn.functional.normalize` and `torch.autograd.grad`
        - ONNX: none, `LpNormalization` scales in the same way
    """
    if not isinstance(w, Variable) or w.parent is not None:
        found = f"a {type(w).__name__}" if not isinstance(w, Variable) else "computed"
        raise OperatorError(f"vat_noise: w is {found}; it must be a variable without history")
    y: Variable = vat_noise_operator(
        floating(x), w, base_axis=whole(base_axis, "base_axis"), eps=real(eps, "eps")
    )
    return y
