"""Products of matrices: batch_matmul and affine."""

from __future__ import annotations

import math

from nnl_core.gpu.families.products import Matrices, Multiplication, Plan, multiply
from nnl_core.gpu.kernel import C_TYPES, Call, Emission, emitter, given, result


@emitter("nnl::batch_matmul")
def batch_matmul(call: Call) -> Emission | None:
    """Multiply stacks of matrices, whose axes broadcast by strides of 0."""
    a, b = call.inputs[0], call.inputs[1]
    c = call.outputs[0]
    if a is None or b is None or a.dtype != b.dtype or a.dtype.name not in C_TYPES:
        return None
    transpose_a, transpose_b = call.attributes["transpose_a"], call.attributes["transpose_b"]
    stack = c.shape[:-2]
    plan = Plan()
    product = Multiplication(
        a.dtype.name,
        c.shape[-2],
        c.shape[-1],
        a.shape[-2 if transpose_a else -1],
        Matrices(given(0), transpose_a, _strides(a.shape, stack)),
        Matrices(given(1), transpose_b, _strides(b.shape, stack)),
        result(),
        stack,
        result_dtype=c.dtype.name,
    )
    return plan.emission() if multiply(call.device, plan, product) else None


def _strides(shape: tuple[int, ...], stack: tuple[int, ...]) -> tuple[int, ...]:
    """Return the elements from member to member along each axis that a stack broadcasts to."""
    own = shape[:-2]
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(own))]
    strides = [0 if length == 1 else step for length, step in zip(own, steps, strict=True)]
    return (*(0,) * (len(stack) - len(own)), *strides)


@emitter("nnl::affine")
def affine(call: Call) -> Emission | None:
    """Multiply all rows by one matrix."""
    x, weight, bias = (*call.inputs, None)[:3]
    y = call.outputs[0]
    if x is None or weight is None or x.dtype != weight.dtype or x.dtype.name not in C_TYPES:
        return None
    if bias is not None and bias.dtype != x.dtype:
        return None
    inputs, outputs = weight.shape[0], math.prod(weight.shape[1:])
    plan = Plan()
    product = Multiplication(
        x.dtype.name,
        math.prod(x.shape[: call.attributes["base_axis"] % x.ndim]),
        outputs,
        inputs,
        Matrices(given(0)),
        Matrices(given(1)),
        result(),
        bias=None if bias is None else given(2),
        result_dtype=y.dtype.name,
    )
    return plan.emission() if multiply(call.device, plan, product) else None
