"""What changes how a graph runs and not what it computes: assignments, sinks, stopped gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.node import add_effects
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast
from nnl_core.operators.gathering import to_variable

__all__ = ["assign", "bc_add2", "sink", "unlink"]


# Assignment --------------------------------------------------------------------------------------


@defop("nnl::assign")
def assign_operator(dst: Array, src: Array) -> Array:
    """Return ``src``, which becomes the value of ``dst``."""
    return src.copy()


@assign_operator.infer
def assign_infer(dst: Spec, src: Spec) -> Spec:
    """The shape of both."""
    if dst != src:
        raise ShapeError("what is assigned must have the shape of what it is assigned to")
    return dst


@assign_operator.vjp(surrogate=True)
def assign_vjp(g: Any, y: Any, dst: Any, src: Any) -> tuple[Any, ...]:
    """To ``dst``, as if the result were it."""
    return g, None


@assign_operator.samples
def assign_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """0-d, empty, odd sizes."""
    for shape in ((3, 5), (), (0, 2)):
        yield Sample(rng.normal(size=shape), rng.normal(size=shape))


def assign(dst: Variable, src: Operand) -> Variable:
    """Assign ``src`` to ``dst`` whenever the result is computed.

    Nodes made later see the new value of ``dst``, those made before the old one.

    Args:
        dst: a variable that nothing computes, such as a parameter.
        src: the same shape; cast to the dtype of ``dst``.

    Returns:
        What was assigned.

    Raises:
        ShapeError: shapes differ.
        OperatorError: ``dst`` is not a variable that can be assigned to.

    Gradient:
        To ``dst``, as if the result were ``dst``; none to ``src``.

    Examples:
        >>> mean = Variable((2,))
        >>> F.assign(mean, np.array([1.0, 2.0])).forward()
        >>> mean.d
        array([1., 2.], dtype=float32)

    Elsewhere:
        - nnabla: `assign`
        - PyTorch: `torch.Tensor.copy_`, whose gradient goes to the source
        - ONNX: none, a graph there changes no value
    """
    if not isinstance(dst, Variable) or dst.parent is not None or dst.is_constant:
        found = "the result of a node or a constant"
        if not isinstance(dst, Variable):
            found = f"a {type(dst).__name__}"
        raise OperatorError(
            "assign: dst must be a variable that nothing computes, such as a parameter, not "
            f"{found}"
        )
    value = to_variable(src)
    if value.shape != dst.shape:
        raise ShapeError(f"assign: src of shape {value.shape} does not fit dst of {dst.shape}")
    y: Variable = assign_operator(
        dst, value if value.dtype == dst.dtype else cast(value, dst.dtype)
    )
    add_effects(y, [(dst, y)])
    return y


# Sinks -------------------------------------------------------------------------------------------


@defop("nnl::sink", save=("xs",))
def sink_operator(*xs: Array, one_input_grad: bool = True) -> Array:
    """Return 0; gradients begin in the inputs."""
    return np.zeros((), np.float32)


@sink_operator.infer
def sink_infer(*xs: Spec, one_input_grad: bool) -> Spec:
    """0-d."""
    return Spec(())


@sink_operator.vjp(surrogate=True)
def sink_vjp(g: Any, y: Any, *xs: Any, one_input_grad: bool) -> tuple[Any, ...]:
    """Ones; or what the inputs' gradients hold, which a leaf holds already."""
    if one_input_grad:
        return tuple(F.ones_like(x) for x in xs)
    return tuple(None if x.parent is None else Variable.on(x.grad) for x in xs)


@sink_operator.samples
def sink_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One input, several, whole numbers, empty, none."""
    yield Sample(rng.normal(size=(2, 3)))
    yield Sample(rng.normal(size=3), rng.normal(size=()), np.zeros((0, 2)))
    yield Sample(np.arange(3), rng.normal(size=2))
    yield Sample()


def sink(*x: Operand, one_input_grad: bool = True) -> Variable:
    """Join variables, so that one ``forward()`` computes all, and one ``backward()`` begins in all.

    Args:
        x: any number of variables of any shapes.
        one_input_grad: whether gradients of the inputs begin with ones; else they begin with
            what the inputs' ``g`` holds, to be assigned before.

    Returns:
        0, without axes, whose own gradient counts for nothing.

    Gradient:
        Ones, or the given gradients; not the derivative, which is 0.

    Examples:
        >>> x = Variable.from_numpy_array(np.array([3.0]), need_grad=True)
        >>> both = F.sink(x * x, 2 * x)
        >>> both.forward(), both.backward()
        (None, None)
        >>> x.g
        array([8.])

    Elsewhere:
        - nnabla: `sink`
        - PyTorch: `torch.autograd.backward`, which takes several tensors and their gradients
        - ONNX: none, a graph there has any number of outputs
    """
    return sink_operator(*map(to_variable, x), one_input_grad=bool(one_input_grad))


# Gradients stopped --------------------------------------------------------------------------------


@defop("nnl::unlink")
def unlink(x: Array) -> Array:
    """Return ``x``, and stop the gradient: ``y = x``.

    Args:
        x: any shape and dtype.

    Gradient:
        0 everywhere; not the derivative, which is 1.

    Examples:
        >>> x = Variable.from_numpy_array(np.array([3.0]), need_grad=True)
        >>> nnl.grad(x * F.unlink(x), x)[0].d
        array([3.])

    Elsewhere:
        - nnabla: `unlink`
        - PyTorch: `torch.Tensor.detach`
        - ONNX: `Identity`
    """
    return x.copy()


unlink.elementwise("x")


@unlink.vjp(surrogate=True)
def unlink_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """None."""
    return (None,)


@unlink.samples
def unlink_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """0-d, empty, odd sizes, whole numbers."""
    yield Sample(rng.normal(size=()))
    yield Sample(rng.normal(size=(3, 5)))
    yield Sample(np.zeros((0, 2)))
    yield Sample(rng.integers(-9, 9, size=4))


# An old name --------------------------------------------------------------------------------------


def bc_add2(x0: Operand, x1: Operand, inplace: bool = False) -> Variable:
    """Add with broadcasting, as `add2` does: ``y = x0 + x1``.

    Args:
        x0: any shape and dtype, or a number.
        x1: the same, broadcast with ``x0``.
        inplace: a hint that planning memory makes needless.

    Raises:
        ShapeError: the two shapes do not broadcast.

    Gradient:
        1 to each, summed back to its shape.

    Examples:
        >>> F.bc_add2(np.array([[1.0], [2.0]]), np.array([10.0, 20.0])).d
        array([[11., 21.],
               [12., 22.]])

    Elsewhere:
        - nnabla: `bc_add2`, an old name of `add2`
        - PyTorch: `torch.add`
        - ONNX: `Add`
    """
    result: Variable = F.add2(x0, x1)
    return result
