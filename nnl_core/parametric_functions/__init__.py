"""``PF``: functions that make their own parameters in the current scope, under nnabla's names."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from nnl_core.operators.naming import name_errors as _name_errors
from nnl_core.parameters import get_parameter, get_parameter_or_create, parameter_scope
from nnl_core.parametric_functions.activation import prelu
from nnl_core.parametric_functions.attention import multi_head_attention
from nnl_core.parametric_functions.common import parametric_function_api
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
from nnl_core.parametric_functions.linear import affine, embed, low_rank_affine
from nnl_core.parametric_functions.low_rank import (
    low_rank_adapters,
    low_rank_parameters,
    merge_low_rank,
)
from nnl_core.parametric_functions.normalization import (
    batch_normalization,
    fused_batch_normalization,
    group_normalization,
    instance_normalization,
    layer_normalization,
    mean_subtraction,
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
from nnl_core.parametric_functions.reparameterization import spectral_norm, weight_normalization
from nnl_core.parametric_functions.transformer import (
    transformer,
    transformer_decode,
    transformer_encode,
)

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
    "get_parameter",
    "get_parameter_or_create",
    "group_normalization",
    "gru",
    "inq_affine",
    "inq_convolution",
    "instance_normalization",
    "layer_normalization",
    "low_rank_adapters",
    "low_rank_affine",
    "low_rank_parameters",
    "lstm",
    "lstm_cell",
    "mean_subtraction",
    "merge_low_rank",
    "min_max_quantize",
    "min_max_quantized_affine",
    "min_max_quantized_convolution",
    "multi_head_attention",
    "parameter_scope",
    "parametric_function_api",
    "pow2_quantized_affine",
    "pow2_quantized_convolution",
    "prelu",
    "pruned_affine",
    "pruned_convolution",
    "rnn",
    "spectral_norm",
    "svd_affine",
    "svd_convolution",
    "sync_batch_normalization",
    "transformer",
    "transformer_decode",
    "transformer_encode",
    "weight_normalization",
]

_name_errors(globals(), "nnl_core.parametric_functions")

if not _TYPE_CHECKING:  # checkers know what is above, and nothing else

    def __getattr__(name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from nnl_core.parametric_functions.contributed import contributed_layer

        return contributed_layer(name)
