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
from nnl_core.parametric_functions.deformable import deformable_convolution
from nnl_core.parametric_functions.factorized import (
    cpd3_convolution,
    svd_affine,
    svd_convolution,
)
from nnl_core.parametric_functions.linear import affine, embed
from nnl_core.parametric_functions.normalization import (
    batch_normalization,
    fused_batch_normalization,
    group_normalization,
    instance_normalization,
    layer_normalization,
    sync_batch_normalization,
)
from nnl_core.parametric_functions.quantization import (
    fixed_point_quantized_affine,
    fixed_point_quantized_convolution,
    min_max_quantize,
    min_max_quantized_affine,
    min_max_quantized_convolution,
    pow2_quantized_affine,
    pow2_quantized_convolution,
    pruned_affine,
    pruned_convolution,
)
from nnl_core.parametric_functions.quantized_layers import (
    binary_connect_affine,
    binary_connect_convolution,
    binary_weight_affine,
    binary_weight_convolution,
    inq_affine,
    inq_convolution,
)
from nnl_core.parametric_functions.recurrent import LSTMCell, gru, lstm, lstm_cell, rnn

__all__ = [
    "LSTMCell",
    "affine",
    "batch_normalization",
    "binary_connect_affine",
    "binary_connect_convolution",
    "binary_weight_affine",
    "binary_weight_convolution",
    "convolution",
    "cpd3_convolution",
    "deconvolution",
    "deformable_convolution",
    "depthwise_convolution",
    "depthwise_deconvolution",
    "embed",
    "fixed_point_quantized_affine",
    "fixed_point_quantized_convolution",
    "fused_batch_normalization",
    "group_normalization",
    "gru",
    "inq_affine",
    "inq_convolution",
    "instance_normalization",
    "layer_normalization",
    "lstm",
    "lstm_cell",
    "min_max_quantize",
    "min_max_quantized_affine",
    "min_max_quantized_convolution",
    "multi_head_attention",
    "pow2_quantized_affine",
    "pow2_quantized_convolution",
    "prelu",
    "pruned_affine",
    "pruned_convolution",
    "rnn",
    "svd_affine",
    "svd_convolution",
    "sync_batch_normalization",
]
