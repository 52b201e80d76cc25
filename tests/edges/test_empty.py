"""Nothing in, nothing out: every function of ``F`` on arrays without elements.

A batch of none gives results of the right shape, and gradients of the right shape that are 0: what
has no elements depends on nothing. Where mathematics has no answer there is an error of our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import NnlError, NotDifferentiableError
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.execute import forward_all
from nnl_core.operators.synchronized import Alone

Shape = tuple[int, ...]


class Call(NamedTuple):
    """A call on ones of some shapes, and the shapes of its results."""

    build: Callable[..., Any]
    shapes: tuple[Shape, ...]
    results: tuple[Shape, ...]


def call(build: Callable[..., Any], *shapes: Shape, gives: Shape | list[Shape]) -> Call:
    return Call(build, shapes, tuple(gives) if isinstance(gives, list) else (gives,))


def whole(*shape: int, value: int = 0) -> np.ndarray:
    """Return integers: labels, indices, lengths."""
    return np.full(shape, value, np.int64)


def variable(*shape: int) -> Variable:
    """Return something that a function writes to."""
    return Variable.from_numpy_array(np.ones(shape))


ROWS: Shape = (0, 3)
IMAGES: Shape = (0, 2, 4, 4)

UNARY = """abs acos acosh asin asinh atan atanh binary_sigmoid binary_tanh ceil cos cosh elu erf
exp expm1 fixed_point_quantize floor gelu hard_sigmoid hard_tanh identity isinf isnan leaky_relu log
log1p log_sigmoid log_softmax logical_not masked_softmax mish neg ones_like pow2_quantize prune relu
relu6 reset_inf reset_nan round rsqrt selu sigmoid sign silu sin sinc sinh softmax softplus softsign
sqrt square swish tan tanh tanh_shrink unlink zeros_like cummax cummin cumprod cumsum logcumsumexp
clip_grad_by_norm flip sort dropout random_flip random_shift random_crop shift
rms_norm add_scalar mul_scalar pow_scalar r_sub_scalar r_div_scalar r_pow_scalar maximum_scalar
minimum_scalar equal_scalar not_equal_scalar less_scalar less_equal_scalar greater_scalar
greater_equal_scalar""".split()
BINARY = """absolute_error add add2 add_n atan2 bc_add2 binary_cross_entropy binary_error div div2
equal focal_loss greater greater_equal hinge_loss huber_loss kl_divergence less less_equal
logical_and logical_or logical_xor maximum2 minimum2 mul mul2 mul_n not_equal poisson_nll_loss pow
pow2 sigmoid_cross_entropy squared_error sub sub2 times_sign margin_ranking_loss mod2""".split()

CALLS: dict[str, Call] = {
    **{name: call(getattr(F, name, None), ROWS, gives=ROWS) for name in UNARY},
    **{name: call(getattr(F, name, None), ROWS, ROWS, gives=ROWS) for name in BINARY},
    # attributes and elementwise
    "margin_ranking_loss": call(
        lambda x, y: F.margin_ranking_loss(x, y, np.ones(ROWS)), ROWS, ROWS, gives=ROWS
    ),
    "epsilon_insensitive_loss": call(
        lambda x, y: F.epsilon_insensitive_loss(x, y, 0.1), ROWS, ROWS, gives=ROWS
    ),
    "gaussian_nll_loss": call(F.gaussian_nll_loss, ROWS, ROWS, ROWS, gives=ROWS),
    "logical_and_scalar": call(lambda x: F.logical_and_scalar(x, 1), ROWS, gives=ROWS),
    "logical_or_scalar": call(lambda x: F.logical_or_scalar(x, 1), ROWS, gives=ROWS),
    "logical_xor_scalar": call(lambda x: F.logical_xor_scalar(x, 1), ROWS, gives=ROWS),
    "cast": call(lambda x: F.cast(x, "int8"), ROWS, gives=ROWS),
    "clip": call(lambda x: F.clip(x, -1, 1), ROWS, gives=ROWS),
    "clip_by_value": call(lambda x: F.clip_by_value(x, -1.0, 1.0), ROWS, gives=ROWS),
    "clip_by_norm": call(lambda x: F.clip_by_norm(x, 1.0, axis=1), ROWS, gives=ROWS),
    "clip_grad_by_value": call(
        lambda x: F.clip_grad_by_value(x, -np.ones(ROWS), np.ones(ROWS)), ROWS, gives=ROWS
    ),
    "celu": call(F.celu, ROWS, gives=(0, 6)),
    "crelu": call(F.crelu, ROWS, gives=(0, 6)),
    "prelu": call(F.prelu, ROWS, (3,), gives=ROWS),
    "where": call(lambda x, y: F.where(np.zeros(ROWS, bool), x, y), ROWS, ROWS, gives=ROWS),
    "bit_shift": call(lambda: F.bit_shift(*[np.zeros(ROWS, np.uint8)] * 2), gives=ROWS),
    "quantize_linear": call(lambda x: F.quantize_linear(x, np.ones(1), whole(1)), ROWS, gives=ROWS),
    "dequantize_linear": call(
        lambda: F.dequantize_linear(np.zeros(ROWS, np.int8), np.ones(1), whole(1)), gives=ROWS
    ),
    "min_max_quantize": call(
        lambda x: F.min_max_quantize(
            x, *(variable(1, 1) * v for v in (0.0, 1.0)), np.zeros((1, 1)), np.full((1, 1), 255.0)
        ),
        ROWS,
        gives=ROWS,
    ),
    "unbroadcast": call(lambda x: F.unbroadcast(x, variable(3)), ROWS, gives=(3,)),
    "sum_to": call(lambda x: F.sum_to(x, shape=(1, 3)), ROWS, gives=(1, 3)),
    # shapes
    "broadcast": call(lambda x: F.broadcast(x, (0, 3)), (1, 3), gives=ROWS),
    "broadcast_to": call(lambda x: F.broadcast_to(x, (2, 0, 3)), ROWS, gives=(2, 0, 3)),
    "concatenate": call(lambda x, y: F.concatenate(x, y, axis=0), ROWS, ROWS, gives=ROWS),
    "expand_dims": call(lambda x: F.expand_dims(x, 0), ROWS, gives=(1, 0, 3)),
    "eye_like": call(F.eye_like, ROWS, gives=ROWS),
    "getitem": call(lambda x: F.getitem(x, (slice(None), 1)), ROWS, gives=(0,)),
    "matrix_diag": call(F.matrix_diag, ROWS, gives=(0, 3, 3)),
    "matrix_diag_part": call(F.matrix_diag_part, (0, 3, 3), gives=ROWS),
    "meshgrid": call(F.meshgrid, (0,), (2,), gives=[(2, 0), (2, 0)]),
    "pack": call(F.pack, (0,), (0,), gives=(0,)),
    "pad": call(lambda x: F.pad(x, (1, 1)), ROWS, gives=(0, 5)),
    "pixel_shuffle": call(lambda x: F.pixel_shuffle(x, 2), (0, 4, 2, 2), gives=(0, 1, 4, 4)),
    "pixel_unshuffle": call(lambda x: F.pixel_unshuffle(x, 2), (0, 1, 4, 4), gives=(0, 4, 2, 2)),
    "reshape": call(lambda x: F.reshape(x, (3, 0)), ROWS, gives=(3, 0)),
    "shape": call(F.shape, ROWS, gives=(2,)),
    "sink": call(F.sink, ROWS, gives=()),
    "slice": call(lambda x: F.slice(x, (0, 1), (0, 3), (1, 1)), ROWS, gives=(0, 2)),
    "split": call(lambda x: F.split(x, axis=1), ROWS, gives=[(0,)] * 3),
    "squeeze": call(lambda x: F.squeeze(x, 1), (0, 1), gives=(0,)),
    "stack": call(F.stack, ROWS, ROWS, gives=(2, 0, 3)),
    "tile": call(lambda x: F.tile(x, (2, 2)), ROWS, gives=(0, 6)),
    "transpose": call(lambda x: F.transpose(x, (1, 0)), ROWS, gives=(3, 0)),
    "trilu": call(F.trilu, (0, 3, 3), gives=(0, 3, 3)),
    # reductions
    "sum": call(lambda x: F.sum(x, axis=0), ROWS, gives=(3,)),
    "prod": call(lambda x: F.prod(x, axis=0), ROWS, gives=(3,)),
    "norm": call(lambda x: F.norm(x, axis=0), ROWS, gives=(3,)),
    "mean": call(lambda x: F.mean(x, axis=1), ROWS, gives=(0,)),
    "max": call(lambda x: F.max(x, axis=1), ROWS, gives=(0,)),
    "min": call(lambda x: F.min(x, axis=1), ROWS, gives=(0,)),
    "var": call(lambda x: F.var(x, axis=1), ROWS, gives=(0,)),
    "std": call(lambda x: F.std(x, axis=1), ROWS, gives=(0,)),
    "logsumexp": call(lambda x: F.logsumexp(x, axis=1), ROWS, gives=(0,)),
    "argmax": call(lambda x: F.argmax(x, axis=1), ROWS, gives=(0,)),
    "argmin": call(lambda x: F.argmin(x, axis=1), ROWS, gives=(0,)),
    "reduce": call(F.reduce, ROWS, gives=()),
    "all_reduce": call(lambda x: F.all_reduce(x, Alone()), ROWS, gives=ROWS),
    "assign": call(lambda x: F.assign(variable(0, 3), x), ROWS, gives=ROWS),
    "reduce_sum": call(F.reduce_sum, ROWS, gives=()),
    # choosing
    "bool_fill": call(lambda x: F.bool_fill(x, np.zeros(ROWS, bool)), ROWS, gives=ROWS),
    "bool_gather": call(lambda x: F.bool_gather(x, np.zeros(ROWS)), ROWS, gives=(0,)),
    "bool_scatter": call(lambda x: F.bool_scatter(x, np.zeros((0, 3))), (0,), gives=ROWS),
    "embed": call(lambda w: F.embed(whole(0, 2), w), (3, 4), gives=(0, 2, 4)),
    "gather": call(lambda x: F.gather(x, whole(0), axis=0), (3, 4), gives=(0, 4)),
    "gather_adjoint": call(
        lambda g: F.gather_adjoint(g, whole(0), axis=0, batch_dims=0, size=3), (0, 4), gives=(3, 4)
    ),
    "gather_elements": call(lambda x: F.gather_elements(x, whole(0, 3)), (2, 3), gives=ROWS),
    "gather_nd": call(lambda x: F.gather_nd(x, whole(1, 0)), (3, 4), gives=(0, 4)),
    "scatter_add": call(
        lambda y: F.scatter_add(np.ones((2, 3)), whole(0, 3), y, axis=0), ROWS, gives=(2, 3)
    ),
    "scatter_elements": call(
        lambda y: F.scatter_elements(np.ones((2, 3)), whole(0, 3), y), ROWS, gives=(2, 3)
    ),
    "scatter_nd": call(lambda x: F.scatter_nd(x, whole(1, 0), shape=(2, 3)), ROWS, gives=(2, 3)),
    "nonzero": call(F.nonzero, ROWS, gives=(2, 0)),
    "one_hot": call(lambda: F.one_hot(whole(0, 1), (3,)), gives=ROWS),
    "searchsorted": call(F.searchsorted, ROWS, (0, 2), gives=(0, 2)),
    "topk": call(lambda x: F.topk(x, 2), ROWS, gives=[(0, 2)] * 2),
    "top_k_data": call(lambda x: F.top_k_data(x, 2), ROWS, gives=(0, 2)),
    "top_k_grad": call(lambda x: F.top_k_grad(x, 2), ROWS, gives=ROWS),
    "unique": call(F.unique, ROWS, gives=(0,)),
    # products
    "affine": call(F.affine, ROWS, (3, 2), (2,), gives=(0, 2)),
    "batch_matmul": call(F.batch_matmul, (0, 2, 3), (0, 3, 4), gives=(0, 2, 4)),
    "dot": call(F.dot, ROWS, (3, 2), gives=(0, 2)),
    "einsum": call(lambda x, y: F.einsum("ij,jk->ik", x, y), ROWS, (3, 2), gives=(0, 2)),
    "matmul": call(F.matmul, ROWS, (3, 2), gives=(0, 2)),
    "chain_rule": call(F.chain_rule, ROWS, ROWS, gives=ROWS),
    "batch_cholesky": call(F.batch_cholesky, (0, 3, 3), gives=(0, 3, 3)),
    "batch_det": call(F.batch_det, (0, 3, 3), gives=(0,)),
    "batch_inv": call(F.batch_inv, (0, 3, 3), gives=(0, 3, 3)),
    "batch_logdet": call(F.batch_logdet, (0, 3, 3), gives=(0,)),
    "binary_connect_affine": call(
        lambda x, w: F.binary_connect_affine(x, w, variable(3, 2)), ROWS, (3, 2), gives=(0, 2)
    ),
    "binary_weight_affine": call(
        lambda x, w: F.binary_weight_affine(x, w, variable(3, 2), variable(2)),
        ROWS,
        (3, 2),
        gives=(0, 2),
    ),
    "inq_affine": call(
        lambda x, w: F.inq_affine(x, w, Variable.from_numpy_array(whole(3, 2))),
        ROWS,
        (3, 2),
        gives=(0, 2),
    ),
    # windows
    "convolution": call(F.convolution, IMAGES, (3, 2, 2, 2), (3,), gives=(0, 3, 3, 3)),
    "deconvolution": call(F.deconvolution, IMAGES, (2, 3, 2, 2), (3,), gives=(0, 3, 5, 5)),
    "depthwise_convolution": call(
        F.depthwise_convolution, IMAGES, (2, 2, 2), (2,), gives=(0, 2, 3, 3)
    ),
    "depthwise_deconvolution": call(
        F.depthwise_deconvolution, IMAGES, (2, 2, 2), (2,), gives=(0, 2, 5, 5)
    ),
    "deformable_convolution": call(
        F.deformable_convolution,
        IMAGES,
        (3, 2, 2, 2),
        (0, 8, 3, 3),
        (0, 4, 3, 3),
        gives=(0, 3, 3, 3),
    ),
    "fused_convolution": call(F.fused_convolution, IMAGES, (3, 2, 2, 2), gives=(0, 3, 3, 3)),
    "binary_connect_convolution": call(
        lambda x, w: F.binary_connect_convolution(x, w, variable(3, 2, 2, 2)),
        IMAGES,
        (3, 2, 2, 2),
        gives=(0, 3, 3, 3),
    ),
    "binary_weight_convolution": call(
        lambda x, w: F.binary_weight_convolution(x, w, variable(3, 2, 2, 2), variable(3)),
        IMAGES,
        (3, 2, 2, 2),
        gives=(0, 3, 3, 3),
    ),
    "inq_convolution": call(
        lambda x, w: F.inq_convolution(x, w, Variable.from_numpy_array(whole(3, 2, 2, 2))),
        IMAGES,
        (3, 2, 2, 2),
        gives=(0, 3, 3, 3),
    ),
    "adaptive_separable_convolution": call(
        F.adaptive_separable_convolution,
        IMAGES,
        (0, 3, 2, 2),
        (0, 3, 2, 2),
        gives=(0, 2, 2, 2),
    ),
    "average_pooling": call(lambda x: F.average_pooling(x, (2, 2)), IMAGES, gives=(0, 2, 2, 2)),
    "max_pooling": call(lambda x: F.max_pooling(x, (2, 2)), IMAGES, gives=(0, 2, 2, 2)),
    "max_pooling_backward": call(
        lambda dy, x: F.max_pooling_backward(dy, x, (2, 2)), (0, 2, 2, 2), IMAGES, gives=IMAGES
    ),
    "sum_pooling": call(lambda x: F.sum_pooling(x, (2, 2)), IMAGES, gives=(0, 2, 2, 2)),
    "global_average_pooling": call(F.global_average_pooling, IMAGES, gives=(0, 2, 1, 1)),
    "unpooling": call(lambda x: F.unpooling(x, (2, 2)), IMAGES, gives=(0, 2, 8, 8)),
    "unfold": call(lambda x: F.unfold(x, (2, 2)), IMAGES, gives=(0, 8, 9)),
    "fold": call(lambda x: F.fold(x, (4, 4), (2, 2)), (0, 8, 9), gives=IMAGES),
    "patch_correlation": call(F.patch_correlation, IMAGES, IMAGES, gives=(0, 1, 1, 4, 4)),
    # images
    "affine_grid": call(lambda t: F.affine_grid(t, (3, 5)), (0, 2, 3), gives=(0, 3, 5, 2)),
    "grid_sample": call(
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        IMAGES,
        (0, 3, 5, 2),
        gives=(0, 2, 3, 5),
    ),
    "warp_by_grid": call(F.warp_by_grid, IMAGES, (0, 3, 5, 2), gives=(0, 2, 3, 5)),
    "warp_by_flow": call(F.warp_by_flow, IMAGES, (0, 2, 4, 4), gives=IMAGES),
    "interpolate": call(lambda x: F.interpolate(x, output_size=(3, 5)), IMAGES, gives=(0, 2, 3, 5)),
    "onnx_resize": call(lambda x: F.onnx_resize(x, sizes=(0, 2, 3, 5)), IMAGES, gives=(0, 2, 3, 5)),
    "roi_align": call(
        lambda x: F.roi_align(x, np.zeros((0, 5)), (2, 3)), (1, 2, 4, 4), gives=(0, 2, 2, 3)
    ),
    "nms_detection2d": call(lambda: F.nms_detection2d(np.zeros((0, 2, 6))), gives=(0, 2, 6)),
    "onnx_non_max_suppression": call(
        lambda: F.onnx_non_max_suppression(
            np.zeros((0, 2, 4)), np.zeros((0, 1, 2)), max_output_boxes_per_class=2
        ),
        gives=(0, 3),
    ),
    "image_augmentation": call(F.image_augmentation, (0, 3, 4, 4), gives=(0, 3, 4, 4)),
    "random_erase": call(F.random_erase, (0, 3, 4, 4), gives=(0, 3, 4, 4)),
    "random_choice": call(lambda x, w: F.random_choice(x, w, (2,)), ROWS, ROWS, gives=(0, 2)),
    "vat_noise": call(lambda x: F.vat_noise(x, variable(0, 3)), ROWS, gives=ROWS),
    # normalisation
    "batch_normalization": call(
        lambda x, b, g: F.batch_normalization(x, b, g, None, None),
        ROWS,
        (1, 3),
        (1, 3),
        gives=ROWS,
    ),
    "fused_batch_normalization": call(
        lambda x, b, g: F.fused_batch_normalization(x, b, g, None, None),
        ROWS,
        (1, 3),
        (1, 3),
        gives=ROWS,
    ),
    "sync_batch_normalization": call(
        lambda x, b, g: F.sync_batch_normalization(x, b, g, None, None, None),
        ROWS,
        (1, 3),
        (1, 3),
        gives=ROWS,
    ),
    "group_normalization": call(
        lambda x, b, g: F.group_normalization(x, b, g, 2),
        (0, 4, 2),
        (1, 4, 1),
        (1, 4, 1),
        gives=(0, 4, 2),
    ),
    "instance_normalization": call(
        F.instance_normalization, (0, 3, 2), (1, 3, 1), (1, 3, 1), gives=(0, 3, 2)
    ),
    "layer_normalization": call(F.layer_normalization, ROWS, (1, 3), (1, 3), gives=ROWS),
    "tensor_normalization": call(
        lambda x, b, g: F.tensor_normalization(x, 0, b, g), ROWS, (1, 1), (1, 1), gives=ROWS
    ),
    "weight_standardization": call(F.weight_standardization, ROWS, gives=ROWS),
    "weight_normalization": call(F.weight_normalization, ROWS, (0,), gives=ROWS),
    "spectral_norm": call(lambda w: F.spectral_norm(w, variable(0)), ROWS, gives=ROWS),
    "norm_normalization": call(lambda x: F.norm_normalization(x, axes=1), ROWS, gives=ROWS),
    "mean_subtraction": call(
        lambda x: F.mean_subtraction(x, variable(3), Variable.from_numpy_array(whole(1))),
        ROWS,
        gives=ROWS,
    ),
    # losses
    "categorical_cross_entropy": call(
        lambda x: F.categorical_cross_entropy(x, whole(0, 1)), ROWS, gives=(0, 1)
    ),
    "softmax_cross_entropy": call(
        lambda x: F.softmax_cross_entropy(x, whole(0, 1)), ROWS, gives=(0, 1)
    ),
    "nll_loss": call(lambda x: F.nll_loss(x, whole(0, 1)), ROWS, gives=(0, 1)),
    "confusion_matrix": call(lambda x: F.confusion_matrix(x, whole(0, 1)), ROWS, gives=(3, 3)),
    "top_n_error": call(lambda x: F.top_n_error(x, whole(0, 1)), ROWS, gives=(0, 1)),
    "kl_multinomial": call(F.kl_multinomial, ROWS, ROWS, gives=(0, 1)),
    "contrastive_loss": call(
        lambda x, y: F.contrastive_loss(x, y, np.zeros(0)), ROWS, ROWS, gives=(0,)
    ),
    "cosine_embedding_loss": call(
        lambda x, y: F.cosine_embedding_loss(x, y, np.ones(0)), ROWS, ROWS, gives=(0,)
    ),
    "cosine_similarity": call(F.cosine_similarity, ROWS, ROWS, gives=(0,)),
    "info_nce": call(F.info_nce, ROWS, ROWS, gives=(0,)),
    "triplet_loss": call(F.triplet_loss, ROWS, ROWS, ROWS, gives=(0,)),
    "ctc_loss": call(
        lambda x: F.ctc_loss(x, whole(0, 2, value=1), whole(0), whole(0)), (5, 0, 3), gives=(0,)
    ),
    # sequences and signals
    "scaled_dot_product_attention": call(
        F.scaled_dot_product_attention, (0, 5, 4), (0, 6, 4), (0, 6, 2), gives=(0, 5, 2)
    ),
    "multi_head_attention": call(
        lambda q, k, v, *w: F.multi_head_attention(q, k, v, 2, *w),
        (3, 0, 4),
        (5, 0, 4),
        (5, 0, 4),
        *[(4, 4)] * 4,
        gives=[(3, 0, 4), (0, 3, 5)],
    ),
    "rnn": call(F.rnn, (5, 0, 3), (1, 1, 0, 2), (1, 2, 5), gives=[(5, 0, 2), (1, 1, 0, 2)]),
    "gru": call(F.gru, (5, 0, 3), (1, 1, 0, 2), (1, 3, 2, 5), gives=[(5, 0, 2), (1, 1, 0, 2)]),
    "lstm": call(
        F.lstm,
        (5, 0, 3),
        (1, 1, 0, 2),
        (1, 1, 0, 2),
        (1, 4, 2, 5),
        gives=[(5, 0, 2), (1, 1, 0, 2), (1, 1, 0, 2)],
    ),
    "pack_padded_sequence": call(
        lambda x: F.pack_padded_sequence(x, whole(0)), (5, 0, 3), gives=[(0, 3), (5,)]
    ),
    "pad_packed_sequence": call(
        lambda x: F.pad_packed_sequence(x, whole(0)), (0, 3), gives=[(0, 0, 3), (0,)]
    ),
    "fft": call(lambda x: F.fft(x, 1), (0, 4, 2), gives=(0, 4, 2)),
    "ifft": call(lambda x: F.ifft(x, 1), (0, 4, 2), gives=(0, 4, 2)),
    "rfft": call(lambda x: F.rfft(x, 1), (0, 4), gives=(0, 3, 2)),
    "irfft": call(lambda x: F.irfft(x, 1), (0, 3, 2), gives=(0, 4)),
    "stft": call(lambda x: F.stft(x, 4, 2, 4), (0, 8), gives=[(0, 3, 5)] * 2),
    "istft": call(lambda r, i: F.istft(r, i, 4, 2, 4), (0, 3, 5), (0, 3, 5), gives=(0, 8)),
}


def outputs(result: Any) -> list[Variable]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def run(built: Call, dynamic: bool) -> tuple[list[Variable], list[Variable]]:
    leaves = [Variable.from_numpy_array(np.ones(shape), need_grad=True) for shape in built.shapes]
    with nnl.auto_forward(dynamic):
        results = outputs(built.build(*leaves))
    if not dynamic:
        forward_all(results)
    return leaves, results


EXECUTION = pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
each_call = pytest.mark.parametrize("name", sorted(CALLS))


@EXECUTION
@each_call
def test_a_batch_of_none_gives_results_of_the_right_shape(name: str, dynamic: bool) -> None:
    _, results = run(CALLS[name], dynamic)
    assert tuple(y.shape for y in results) == CALLS[name].results
    assert tuple(y.d.shape for y in results) == CALLS[name].results


@each_call
def test_a_batch_of_none_gives_no_nan(name: str) -> None:
    _, results = run(CALLS[name], False)
    assert not any(np.isnan(y.d).any() for y in results if is_floating(y.dtype))


NO_GRADIENT = {"binary_error", "top_n_error"}
"""Functions of floats to floats that have no gradient."""


@EXECUTION
@each_call
def test_the_gradient_of_nothing_is_zero_in_the_shape_of_the_input(
    name: str, dynamic: bool
) -> None:
    leaves, results = run(CALLS[name], dynamic)
    floating = [y for y in results if is_floating(y.dtype)]
    if not floating or not leaves or name in NO_GRADIENT:
        return
    gradients = nnl.grad(floating, leaves, allow_unused=True)
    forward_all(gradients)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        np.testing.assert_array_equal(gradient.d, np.zeros(leaf.shape))


@pytest.mark.parametrize("name", sorted(NO_GRADIENT))
def test_what_has_no_gradient_says_so_of_nothing_too(name: str) -> None:
    leaves, results = run(CALLS[name], False)
    with pytest.raises(NotDifferentiableError, match=name):
        nnl.grad(results, leaves)


@each_call
def test_a_loss_of_a_batch_of_none_trains_nothing(name: str) -> None:
    """Forward, backward and update are one program here."""
    leaves = [Variable.from_numpy_array(np.ones(s), need_grad=True) for s in CALLS[name].shapes]
    floating = [y for y in outputs(CALLS[name].build(*leaves)) if y.need_grad]
    if not floating or not leaves or name in NO_GRADIENT:
        return
    solver = nnl.S.Sgd(1.0)
    solver.set_parameters({str(n): leaf for n, leaf in enumerate(leaves)})
    reached = [F.sum(leaf) * 0 for leaf in leaves]  # some functions depend on no values
    nnl.compile_step(F.add_n(*map(F.sum, floating), *reached), solver).run()
    for leaf in leaves:
        np.testing.assert_array_equal(leaf.d, np.ones(leaf.shape))


SOURCES = {"arange", "linspace"}
SHAPED = ["constant", "rand", "rand_beta", "rand_binomial", "rand_gamma", "randint", "randn"]
WITHOUT_ARRAYS = {*SOURCES, *SHAPED, "random_key"}
NEEDS_ELEMENTS = {"reduce_mean"}


def test_every_function_is_called_here() -> None:
    public = {name for name in vars(F) if name[0] != "_" and callable(getattr(F, name))}
    assert public - CALLS.keys() - WITHOUT_ARRAYS - NEEDS_ELEMENTS == set()


@pytest.mark.parametrize("name", SHAPED)
def test_an_array_of_no_elements_can_be_made(name: str) -> None:
    assert getattr(F, name)(shape=(0, 3)).d.shape == (0, 3)


def test_a_range_that_ends_before_it_begins_is_empty() -> None:
    assert F.arange(3, 0).d.shape == F.linspace(0, 1, 0).d.shape == (0,)


# What is made of nothing -------------------------------------------------------------------------

NEUTRAL: dict[str, tuple[Callable[..., Any], tuple[Shape, ...], Any]] = {
    "sum": (F.sum, ((0,),), 0),
    "prod": (F.prod, ((0,),), 1),
    "norm": (F.norm, ((0,),), 0),
    "logsumexp": (F.logsumexp, ((0,),), -np.inf),
    "sum of columns": (lambda x: F.sum(x, axis=1), ((2, 0),), [0, 0]),
    "matmul": (F.matmul, ((2, 0), (0, 3)), np.zeros((2, 3))),
    "affine": (F.affine, ((2, 0), (0, 3), (3,)), np.ones((2, 3))),
    "einsum": (lambda x, y: F.einsum("ij,jk->ik", x, y), ((2, 0), (0, 3)), np.zeros((2, 3))),
    "convolution": (F.convolution, ((1, 0, 2, 2), (1, 0, 2, 2), (1,)), np.ones((1, 1, 1, 1))),
    "deconvolution": (F.deconvolution, ((1, 0, 1, 1), (0, 1, 1, 1), (1,)), np.ones((1, 1, 1, 1))),
    "determinant": (F.batch_det, ((1, 0, 0),), [1]),
    "log determinant": (F.batch_logdet, ((1, 0, 0),), [0]),
    "attention to no keys": (
        F.scaled_dot_product_attention,
        ((1, 2, 4), (1, 0, 4), (1, 0, 3)),
        np.zeros((1, 2, 3)),
    ),
    "attention by no channels": (
        F.scaled_dot_product_attention,
        ((1, 2, 0), (1, 3, 0), (1, 3, 2)),
        np.ones((1, 2, 2)),
    ),
    "recurrence of no inputs": (
        lambda *a: F.rnn(*a)[0],
        ((1, 1, 0), (1, 1, 1, 1), (1, 1, 1)),
        np.full((1, 1, 1), np.tanh(1)),
    ),
    "distance": (lambda x, y: F.cosine_similarity(x, y), ((2, 0), (2, 0)), [0, 0]),
    "search": (lambda x: F.searchsorted(np.zeros(0), x), ((2,),), [0, 0]),
    "padding": (lambda x: F.pad(x, (1, 2), constant_value=5), ((1, 0),), [[5, 5, 5]]),
}


@pytest.mark.parametrize(("build", "shapes", "expected"), NEUTRAL.values(), ids=NEUTRAL)
def test_nothing_gives_the_neutral_element(
    build: Callable[..., Any], shapes: tuple[Shape, ...], expected: Any
) -> None:
    leaves, (y,) = run(call(build, *shapes, gives=()), False)
    np.testing.assert_allclose(y.d, expected, rtol=1e-15)
    if is_floating(y.dtype):
        forward_all(nnl.grad(y, leaves, allow_unused=True))


@pytest.mark.parametrize("name", ["mean", "var", "std", "reduce_mean"])
def test_a_mean_of_nothing_is_nan_without_a_warning(name: str) -> None:
    x = Variable.from_numpy_array(np.zeros((0,)), need_grad=True)
    y = getattr(F, name)(x)
    assert np.isnan(y.d)
    assert nnl.grad(y, x)[0].d.shape == (0,)


ROW = np.zeros((2, 0))
NO_ANSWER: dict[str, tuple[str, Callable[[], Any]]] = {
    "max": ("no elements", lambda: F.max(ROW, axis=1)),
    "min": ("no elements", lambda: F.min(ROW)),
    "argmax": ("no elements", lambda: F.argmax(ROW, axis=1)),
    "argmin": ("no elements", lambda: F.argmin(ROW)),
    "topk": ("k 1 must be", lambda: F.topk(ROW, 1)),
    "top_k_data": ("k 1 must be", lambda: F.top_k_data(ROW, 1)),
    "top_k_grad": ("k 1 must be", lambda: F.top_k_grad(ROW, 1)),
    "gather": ("out of range", lambda: F.gather(np.zeros((0, 3)), whole(2), axis=0)),
    "embed": ("out of range", lambda: F.embed(whole(2), np.zeros((0, 3)))),
    "one_hot": ("out of range", lambda: F.one_hot(whole(2, 1), (0,))),
    "softmax_cross_entropy": (
        "no classes",
        lambda: F.softmax_cross_entropy(ROW, whole(2, 1, value=-1)),
    ),
    "categorical_cross_entropy": (
        "no classes",
        lambda: F.categorical_cross_entropy(ROW, whole(2, 1, value=-1)),
    ),
    "confusion_matrix": ("no classes", lambda: F.confusion_matrix(ROW, whole(2, 1))),
    "random_choice": ("nothing to choose", lambda: F.random_choice(ROW, ROW, (1,))),
    "max_pooling": ("does not fit", lambda: F.max_pooling(np.zeros((1, 1, 0, 4)), (2, 2))),
    "convolution": (
        "does not fit",
        lambda: F.convolution(np.zeros((1, 1, 0, 4)), np.zeros((1, 1, 2, 2))),
    ),
    "interpolate": (
        "at least 1",
        lambda: F.interpolate(np.zeros((1, 1, 0, 4)), output_size=(2, 2)),
    ),
    "interpolate to": (
        "at least 1",
        lambda: F.interpolate(np.zeros((1, 1, 2, 4)), output_size=(0, 2)),
    ),
    "warp_by_grid": (
        "without pixels",
        lambda: F.warp_by_grid(np.zeros((1, 1, 0, 4)), np.zeros((1, 2, 2, 2))),
    ),
    "roi_align": (
        "without pixels",
        lambda: F.roi_align(np.zeros((1, 1, 0, 4)), np.zeros((1, 5)), (2, 2)),
    ),
    "affine_grid": ("at least 1", lambda: F.affine_grid(np.zeros((1, 2, 3)), (0, 2))),
    "pad": ("nothing to reflect", lambda: F.pad(ROW, (1, 1), mode="reflect")),
    "rnn": ("with a step", lambda: F.rnn(np.zeros((0, 1, 1)), ROW, ROW)),
    "fft": ("length of 0", lambda: F.fft(np.zeros((2, 0, 2)), 1)),
    "irfft": ("length of 0", lambda: F.irfft(np.zeros((2, 0, 2)), 1)),
    "stft": ("elements", lambda: F.stft(ROW, 4, 2, 4, center=False)),
    "ctc_loss": (
        "none of the 0 classes",
        lambda: F.ctc_loss(np.zeros((2, 1, 0)), whole(1, 0), whole(1), whole(1)),
    ),
    "concatenate": ("nothing", lambda: F.concatenate(axis=0)),
    "stack": ("nothing", F.stack),
    "split": ("length 0", lambda: F.split(np.zeros((0, 3)), axis=0)),
    "add_n": ("at least one", F.add_n),
    "reshape": ("-1", lambda: F.reshape(np.zeros((0, 3)), (0, -1))),
}


@pytest.mark.parametrize(("text", "build"), NO_ANSWER.values(), ids=NO_ANSWER)
def test_where_there_is_no_answer_an_error_says_why(text: str, build: Callable[[], Any]) -> None:
    with pytest.raises(NnlError, match=text):
        forward_all(outputs(build()))


HUGE = 2**40
LONG: dict[str, tuple[Callable[..., Any], tuple[Shape, ...], Shape]] = {
    "convolution": (
        lambda x, w: F.convolution(x, w, pad=(1,)),
        ((0, 1, HUGE), (1, 1, 3)),
        (0, 1, HUGE),
    ),
    "deconvolution, stride": (
        lambda x, w: F.deconvolution(x, w, stride=(2,)),
        ((0, 1, HUGE), (1, 1, 2)),
        (0, 1, 2 * HUGE),
    ),
    "average_pooling": (
        lambda x: F.average_pooling(x, (2,)),
        ((0, 1, HUGE),),
        (0, 1, HUGE // 2),
    ),
    "max_pooling": (lambda x: F.max_pooling(x, (2,)), ((0, 1, HUGE),), (0, 1, HUGE // 2)),
    **{
        name: (lambda x, name=name: getattr(F, name)(x, 1), ((0, HUGE),), (0, HUGE))
        for name in ("cummax", "cumprod", "cumsum", "logcumsumexp", "softmax")
    },
}


@pytest.mark.parametrize(("build", "shapes", "shape"), LONG.values(), ids=LONG)
def test_the_length_of_what_is_empty_costs_nothing(
    build: Callable[..., Any], shapes: tuple[Shape, ...], shape: Shape
) -> None:
    for dynamic in (False, True):
        with nnl.auto_forward(dynamic):
            leaves = [Variable.from_numpy_array(np.ones(s), need_grad=True) for s in shapes]
            y = build(*leaves)
            y.forward()
            assert y.d.shape == shape
            F.sum(y).backward()
            assert all(not leaf.g.any() for leaf in leaves)
