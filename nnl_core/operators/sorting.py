"""Elements by rank: sorted, and the largest or smallest of each sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.gathering import to_variable

__all__ = ["sort", "top_k_data", "top_k_grad"]


@defop("nnl::sort", save=("index",), outputs=("y", "index"))
def sort_operator(x: Array, *, axis: int = -1, reverse: bool = False) -> tuple[Array, Array]:
    """Sort along an axis; return also where each element was.

    Equal elements stay in their order. NaN counts as larger than all numbers.
    """
    if reverse:
        backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
        index = x.shape[axis] - 1 - np.flip(backwards, axis)
    else:
        index = np.argsort(x, axis, kind="stable")
    return np.take_along_axis(x, index, axis), index


@sort_operator.infer
def sort_infer(x: Spec, *, axis: int, reverse: bool) -> tuple[Spec, Spec]:
    """The input's shape, twice."""
    normalize_axis(axis, x.ndim)
    return x, x.with_dtype(np.int64)


@sort_operator.vjp
def sort_vjp(g: Any, y: Any, x: Any, *, axis: int, reverse: bool) -> tuple[Any, ...]:
    """Put the gradients back where their elements were."""
    if g[0] is None:
        return (None,)
    return (F.scatter_add(F.zeros_like(g[0]), y[1], g[0], axis),)


@sort_operator.samples
def sort_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both directions, each axis, one element, none."""
    for reverse in (False, True):
        yield Sample(rng.normal(size=(3, 5)), reverse=reverse)
        yield Sample(rng.normal(size=(4, 3)), axis=0, reverse=reverse)
        yield Sample(rng.normal(size=(1,)), reverse=reverse)
        yield Sample(rng.normal(size=(2, 0)), reverse=reverse)


def sort(
    x: Operand,
    axis: int = -1,
    reverse: bool = False,
    with_index: bool = False,
    only_index: bool = False,
) -> Variable | tuple[Variable, Variable]:
    """Sort along an axis; equal elements stay in their order.

    NaN counts as larger than all numbers.

    Args:
        x: any shape but 0-d.
        axis: the axis.
        reverse: whether the largest comes first.
        with_index: return also where each element was.
        only_index: return that alone.

    Gradient:
        ``dy``, put back to where each element was.

    Examples:
        >>> F.sort(np.array([3.0, 1.0, 2.0])).d
        array([1., 2., 3.])

    Elsewhere:
        - nnabla: `sort`, whose gradient is wrong
        - PyTorch: `torch.sort`
        - ONNX: `TopK` of all elements
    """
    y, index = sort_operator(x, axis=whole(axis, "axis"), reverse=bool(reverse))
    return index if only_index else (y, index) if with_index else y


@defop("nnl::keep_elements")
def keep_elements(x: Array, index: Array) -> Array:
    """Keep the elements at these positions of the last axis, and set all others to 0."""
    result = np.zeros_like(x, order="C")
    np.put_along_axis(result, index, np.take_along_axis(x, index, -1), -1)
    return result


@keep_elements.infer
def keep_elements_infer(x: Spec, index: Spec) -> Spec:
    """The input's shape."""
    return x


@keep_elements.vjp(surrogate=True)
def keep_elements_vjp(g: Any, y: Any, x: Any, index: Any) -> tuple[Any, ...]:
    """Let all of the gradient through, so that elements below the threshold can rise again."""
    return g, None


@keep_elements.samples
def keep_elements_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Some elements of each row, none."""
    yield Sample(
        rng.normal(size=(3, 5)), rng.permuted(np.tile(np.arange(5), (3, 1)), axis=1)[:, :2]
    )
    yield Sample(rng.normal(size=(4,)), np.zeros(0, np.int64))


def top_k_data(
    x: Operand,
    k: int,
    abs: bool = False,
    reduce: bool = True,
    base_axis: int = 1,
    largest: bool = True,
    with_index: bool = False,
) -> Variable | tuple[Variable, Variable]:
    """Keep the ``k`` largest (or smallest) elements of each sample.

    Args:
        x: any shape; a sample has the axes from ``base_axis`` on.
        k: how many.
        abs: whether they are ranked by magnitude.
        reduce: whether the ``k`` elements are returned, by rank; else all, with zeros in place of
            the others.
        base_axis: the first axis of a sample.
        largest: whether the largest are kept, or the smallest.
        with_index: return also the positions in the flat sample; without ``reduce``, -1 for the
            others.

    Gradient:
        To the elements kept; without ``reduce``, as if nothing had been set to 0: a surrogate.

    Examples:
        >>> F.top_k_data(np.array([[1.0, 4.0, 3.0]]), 2).d
        array([[4., 3.]])

    Elsewhere:
        - nnabla: `top_k_data`
        - PyTorch: `torch.topk`, along one axis
        - ONNX: `TopK`, along one axis
    """
    variable = to_variable(x)
    base = normalize_axis(base_axis, variable.ndim)
    size = math.prod(variable.shape[base:])
    flat = F.reshape(variable, (*variable.shape[:base], size))
    _check_k("top_k_data", k, size)
    _, order = sort_operator(F.abs(flat) if abs else flat, reverse=bool(largest))
    index = F.getitem(order, (..., slice(int(k))))
    if reduce:
        y = F.gather_elements(flat, index, axis=-1)
        return (y, index) if with_index else y
    y = F.reshape(keep_elements(flat, index), variable.shape)
    if not with_index:
        return y
    nowhere = F.broadcast(Variable.constant(np.asarray(-1)), flat.shape)
    places = F.scatter_add(nowhere, index, F.add_scalar(index, 1), -1)
    return y, F.reshape(places, variable.shape)


@defop("nnl::top_k_grad")
def top_k_grad_operator(x: Array, *, k: int, abs: bool = False, base_axis: int = 1) -> Array:
    """Return the input; of its gradient, only the ``k`` largest elements of each sample pass."""
    return x.copy()


@top_k_grad_operator.infer
def top_k_grad_infer(x: Spec, *, k: int, abs: bool, base_axis: int) -> Spec:
    """The input's shape."""
    _check_k("top_k_grad", k, x.with_shape(x.shape[normalize_axis(base_axis, x.ndim) :]).size)
    return x


@top_k_grad_operator.vjp(surrogate=True)
def top_k_grad_vjp(g: Any, y: Any, x: Any, *, k: int, abs: bool, base_axis: int) -> tuple[Any, ...]:
    """The largest elements of the gradient."""
    return (top_k_data(g, k, abs=abs, reduce=False, base_axis=base_axis),)


@top_k_grad_operator.samples
def top_k_grad_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Samples of one axis and of two."""
    yield Sample(rng.normal(size=(3, 5)), k=2)
    yield Sample(rng.normal(size=(2, 2, 2)), k=3, abs=True)
    yield Sample(rng.normal(size=(4,)), k=1, base_axis=0)
    yield Sample(rng.normal(size=(0, 3)), k=2)


def top_k_grad(x: Operand, k: int, abs: bool = False, base_axis: int = 1) -> Variable:
    """Return ``x``, and let only the ``k`` largest elements of each sample of its gradient pass.

    Args:
        x: any shape; a sample has the axes from ``base_axis`` on.
        k: how many.
        abs: whether they are ranked by magnitude.
        base_axis: the first axis of a sample.

    Gradient:
        The ``k`` largest of ``dy``, 0 for the others: a surrogate.

    Examples:
        >>> x = Variable.from_numpy_array(np.zeros((1, 3)), need_grad=True)
        >>> F.top_k_grad(x, 1).backward(np.array([[1.0, 4.0, 3.0]]))
        >>> x.g
        array([[0., 4., 0.]])

    Elsewhere:
        - nnabla: `top_k_grad`
        - PyTorch: none, a hook on x
        - ONNX: none, training alone
    """
    return top_k_grad_operator(
        x, k=whole(k, "k"), abs=bool(abs), base_axis=whole(base_axis, "base_axis")
    )


def _check_k(name: str, k: int, size: int) -> None:
    if not 1 <= k <= size:
        raise ShapeError(f"{name}: k {k} must be between 1 and the {size} elements of a sample")
