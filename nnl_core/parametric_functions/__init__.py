"""``PF``: functions that make their own parameters in the current scope, under nnabla's names."""

from __future__ import annotations

from nnl_core.parametric_functions.activation import prelu
from nnl_core.parametric_functions.attention import multi_head_attention
from nnl_core.parametric_functions.convolution import (
    convolution,
    deconvolution,
    depthwise_convolution,
    depthwise_deconvolution,
)
from nnl_core.parametric_functions.linear import affine, embed
from nnl_core.parametric_functions.normalization import (
    batch_normalization,
    fused_batch_normalization,
    group_normalization,
    instance_normalization,
    layer_normalization,
)

__all__ = [
    "affine",
    "batch_normalization",
    "convolution",
    "deconvolution",
    "depthwise_convolution",
    "depthwise_deconvolution",
    "embed",
    "fused_batch_normalization",
    "group_normalization",
    "instance_normalization",
    "layer_normalization",
    "multi_head_attention",
    "prelu",
]
