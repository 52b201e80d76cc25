"""NumPy kernels that are faster than the references: they write into planned memory.

Each module attaches kernels to operators of one family; importing this package attaches all.
"""

from __future__ import annotations

from nnl_core.cpu.kernels import (
    activation,
    arithmetic,
    array,
    convolution,
    einsum,
    extremes,
    flat,
    indexing,
    integers,
    linear,
    logical,
    loss,
    math,
    matrices,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resampling,
    scan,
    signal,
    softmax,
    stochastic,
    unfolding,
    warping,
)

__all__ = [
    "activation",
    "arithmetic",
    "array",
    "convolution",
    "einsum",
    "extremes",
    "flat",
    "indexing",
    "integers",
    "linear",
    "logical",
    "loss",
    "math",
    "matrices",
    "normalization",
    "pooling",
    "quantization",
    "recurrent",
    "reduction",
    "resampling",
    "scan",
    "signal",
    "softmax",
    "stochastic",
    "unfolding",
    "warping",
]
