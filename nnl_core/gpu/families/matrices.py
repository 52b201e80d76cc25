"""Square matrices: inverse, determinant, cofactors and Cholesky factor, a block for each."""

from __future__ import annotations

import math

import numpy as np

from nnl_core.gpu.families.products import Plan, computing_dtype, width_of
from nnl_core.gpu.kernel import (
    C_TYPES,
    FLOATING,
    NULL,
    Argument,
    Call,
    Emission,
    Launch,
    emitter,
    failing,
    given,
    kernel,
    result,
)

SHARED = 40 << 10  # bytes of shared memory that a matrix may take
LARGEST = 1 << 14  # rows, whose elements kernels count in 32 bits


@emitter("nnl::batch_det")
def batch_det(call: Call) -> Emission | None:
    """Multiply the pivots of an elimination."""
    return _emission(call, "determinant", 1, 0, np.bool_(False))


@emitter("nnl::batch_logdet")
def batch_logdet(call: Call) -> Emission | None:
    """Sum the logarithms of the pivots of an elimination."""
    return _emission(call, "determinant", 1, 0, np.bool_(True))


@emitter("nnl::batch_inv")
def batch_inv(call: Call) -> Emission | None:
    """Eliminate in the matrix and the identity beside it."""
    message = (
        "batch_inv: a matrix is singular: it has no inverse; add a small multiple of the identity"
    )
    return _emission(call, "inverse", 2, 0, *failing(call, message))


@emitter("nnl::batch_cofactor")
def batch_cofactor(call: Call) -> Emission | None:
    """Multiply the cofactors of triangular factors."""
    return _emission(call, "cofactors", 2, 2)


@emitter("nnl::batch_cholesky")
def batch_cholesky(call: Call) -> Emission | None:
    """Take roots of pivots, column by column."""
    message = (
        "batch_cholesky: a matrix is not positive definite: it has no Cholesky factor; add a "
        "multiple of the identity"
    )
    upper = np.bool_(call.attributes["upper"])
    return _emission(call, "cholesky", 1, 0, upper, *failing(call, message))


def _emission(
    call: Call, entry: str, copies: int, lines: int, *arguments: Argument
) -> Emission | None:
    """Return one launch, whose blocks work on copies of a matrix and some lines more."""
    x = call.inputs[0]
    dtype = call.outputs[0].dtype.name
    if x is None or dtype not in FLOATING or not call.has_only(dtype):
        return None
    n, count = x.shape[-1], math.prod(x.shape[:-2])
    if n >= LARGEST:
        return None
    size = n * (copies * n + lines) * width_of(computing_dtype(dtype))
    threads = 32 if n <= 8 else 128 if n <= 32 else 256
    plan = Plan()
    is_small = size <= SHARED
    space = NULL if is_small else plan.scratch(count * size)
    operands: tuple[Argument, ...] = (given(0), result(), space, np.int32(n), *arguments)
    function = kernel("matrices.cu", entry, T=C_TYPES[dtype])
    plan.add(Launch(function, (count, 1, 1), (threads, 1, 1), operands, size * is_small))
    return plan.emission()
