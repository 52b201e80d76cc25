"""What ``benchmarks.operators`` computes: the same function in NNL and in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nnl_core import F

Array = npt.NDArray[Any]


class Case(NamedTuple):
    """A function of some arrays: ``torch`` is the text of a lambda in PyTorch's environment."""

    family: str
    name: str
    nnl: Callable[..., Any]
    torch: str
    inputs: Callable[[np.random.Generator], list[Array]]
    differentiable: tuple[int, ...] = (0,)


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[Array]]:
    """Arrays of normal random numbers."""
    return lambda rng: [rng.standard_normal(shape, np.float32) for shape in shapes]


def positive(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[Array]]:
    """Arrays of numbers between 0.5 and 1.5."""
    return lambda rng: [rng.random(shape, np.float32) + np.float32(0.5) for shape in shapes]


def with_indices(
    shape: tuple[int, ...], count: int, indices: tuple[int, ...]
) -> Callable[[np.random.Generator], list[Array]]:
    """An array of normal random numbers, and indices below ``count``."""
    return lambda rng: [rng.standard_normal(shape, np.float32), rng.integers(0, count, indices)]


def scattered(rng: np.random.Generator) -> list[Array]:
    """An array, positions along its rows, and what is put there."""
    shape = (256, 512)
    return [*normal(FLAT)(rng), rng.integers(0, 1024, shape), *normal(shape)(rng)]


def sequences(rng: np.random.Generator) -> list[Array]:
    """Scores of 50 steps, 16 sequences and 20 symbols; 10 labels of each; the lengths."""
    labels = rng.integers(1, 20, (16, 10))
    return [*normal((50, 16, 20))(rng), labels, np.full(16, 50), np.full(16, 10)]


def regular(rng: np.random.Generator) -> list[Array]:
    """Matrices that are far from singular."""
    noise = rng.standard_normal((64, 32, 32), np.float32)
    return [np.eye(32, dtype=np.float32) + np.float32(0.05) * noise]


LSTM = (
    "lambda x, h, c, w, b: torch.lstm(x, (h[0], c[0]), (w[0, :, :, :64].reshape(256, 64), "
    "w[0, :, :, 64:].reshape(256, 64), b[0, 0].reshape(256), torch.zeros(256)), "
    "True, 1, 0.0, True, False, False)[0]"
)
"""One layer; nnabla's weights hold those of the input and of the state side by side."""

FLAT = (256, 1024)
IMAGE = (16, 32, 28, 28)

CASES = [
    Case("activation", "relu", F.relu, "torch.relu", normal(FLAT)),
    Case("activation", "gelu", F.gelu, "lambda x: nnF.gelu(x, approximate='tanh')", normal(FLAT)),
    Case("activation", "sigmoid", F.sigmoid, "torch.sigmoid", normal(FLAT)),
    Case("activation", "elu", F.elu, "nnF.elu", normal(FLAT)),
    Case("softmax", "softmax", F.softmax, "lambda x: torch.softmax(x, 1)", normal(FLAT)),
    Case(
        "softmax", "log_softmax", F.log_softmax, "lambda x: torch.log_softmax(x, 1)", normal(FLAT)
    ),
    Case("arithmetic", "add", F.add2, "torch.add", normal(FLAT, FLAT), (0, 1)),
    Case("arithmetic", "multiply by a row", F.mul2, "torch.mul", normal(FLAT, (1024,)), (0, 1)),
    Case(
        "arithmetic",
        "chain of five",
        lambda x, y: F.tanh(x * y + x) * 0.5 - y,
        "lambda x, y: torch.tanh(x * y + x) * 0.5 - y",
        normal(FLAT, FLAT),
        (0, 1),
    ),
    Case("math", "exp", F.exp, "torch.exp", normal(FLAT)),
    Case("math", "log", F.log, "torch.log", positive(FLAT)),
    Case("math", "erf", F.erf, "torch.erf", normal(FLAT)),
    Case("logical", "greater", F.greater, "torch.gt", normal(FLAT, FLAT), ()),
    Case(
        "logical",
        "where",
        lambda x, y: F.where(F.greater(x, 0.0), x, y),
        "lambda x, y: torch.where(x > 0, x, y)",
        normal(FLAT, FLAT),
        (0, 1),
    ),
    Case("reduction", "sum of rows", lambda x: F.sum(x, 1), "lambda x: x.sum(1)", normal(FLAT)),
    Case("reduction", "mean of all", F.mean, "torch.mean", normal(FLAT)),
    Case("reduction", "max of columns", lambda x: F.max(x, 0), "lambda x: x.amax(0)", normal(FLAT)),
    Case(
        "reduction",
        "logsumexp",
        lambda x: F.logsumexp(x, 1),
        "lambda x: torch.logsumexp(x, 1)",
        normal(FLAT),
    ),
    Case("scan", "cumsum", lambda x: F.cumsum(x, 1), "lambda x: torch.cumsum(x, 1)", normal(FLAT)),
    Case(
        "linear",
        "affine",
        F.affine,
        "lambda x, w, b: torch.addmm(b, x, w)",
        normal((128, 784), (784, 512), (512,)),
        (0, 1, 2),
    ),
    Case(
        "linear",
        "batch_matmul",
        F.batch_matmul,
        "torch.bmm",
        normal((32, 64, 64), (32, 64, 64)),
        (0, 1),
    ),
    Case(
        "linear",
        "einsum",
        lambda x, y: F.einsum(x, y, equation="bij,bkj->bik"),
        "lambda x, y: torch.einsum('bij,bkj->bik', x, y)",
        normal((16, 64, 32), (16, 48, 32)),
        (0, 1),
    ),
    Case(
        "convolution",
        "3x3",
        lambda x, w, b: F.convolution(x, w, b, pad=(1, 1)),
        "lambda x, w, b: nnF.conv2d(x, w, b, padding=1)",
        normal(IMAGE, (32, 32, 3, 3), (32,)),
        (0, 1, 2),
    ),
    Case(
        "convolution",
        "5x5, stride 2",
        lambda x, w: F.convolution(x, w, stride=(2, 2)),
        "lambda x, w: nnF.conv2d(x, w, stride=2)",
        normal((16, 16, 28, 28), (32, 16, 5, 5)),
        (0, 1),
    ),
    Case(
        "convolution",
        "depthwise 3x3",
        lambda x, w: F.depthwise_convolution(x, w, pad=(1, 1)),
        "lambda x, w: nnF.conv2d(x, w.unsqueeze(1), padding=1, groups=32)",
        normal(IMAGE, (32, 3, 3)),
        (0, 1),
    ),
    Case(
        "convolution",
        "transposed 3x3",
        lambda x, w: F.deconvolution(x, w, stride=(2, 2)),
        "lambda x, w: nnF.conv_transpose2d(x, w, stride=2)",
        normal((16, 32, 14, 14), (32, 16, 3, 3)),
        (0, 1),
    ),
    Case(
        "pooling",
        "max 2x2",
        lambda x: F.max_pooling(x, (2, 2)),
        "lambda x: nnF.max_pool2d(x, 2)",
        normal(IMAGE),
    ),
    Case(
        "pooling",
        "max 3x3, stride 2",
        lambda x: F.max_pooling(x, (3, 3), (2, 2), pad=(1, 1)),
        "lambda x: nnF.max_pool2d(x, 3, 2, padding=1)",
        normal(IMAGE),
    ),
    Case(
        "pooling",
        "average 2x2",
        lambda x: F.average_pooling(x, (2, 2)),
        "lambda x: nnF.avg_pool2d(x, 2)",
        normal(IMAGE),
    ),
    Case(
        "normalization",
        "layer",
        lambda x, b, g: F.layer_normalization(x, b, g),
        "lambda x, b, g: nnF.layer_norm(x, (1024,), g[0], b[0])",
        normal(FLAT, (1, 1024), (1, 1024)),
        (0,),
    ),
    Case(
        "normalization",
        "group",
        lambda x, b, g: F.group_normalization(x, b, g, num_groups=4),
        "lambda x, b, g: nnF.group_norm(x, 4, g.reshape(-1), b.reshape(-1))",
        normal(IMAGE, (1, 32, 1, 1), (1, 32, 1, 1)),
        (0,),
    ),
    Case(
        "attention",
        "scaled dot product",
        F.scaled_dot_product_attention,
        "nnF.scaled_dot_product_attention",
        normal(*[(4, 8, 64, 32)] * 3),
        (0, 1, 2),
    ),
    Case(
        "loss",
        "softmax cross entropy",
        lambda x, t: F.softmax_cross_entropy(x, F.reshape(t, (256, 1))),
        "lambda x, t: nnF.cross_entropy(x, t, reduction='none').unsqueeze(1)",
        with_indices(FLAT, 1024, (256,)),
    ),
    Case(
        "loss",
        "huber",
        lambda x, y: F.huber_loss(x, y, 1.0),
        "lambda x, y: 2 * nnF.huber_loss(x, y, reduction='none')",
        normal(FLAT, FLAT),
        (0, 1),
    ),
    Case(
        "array",
        "transpose",
        lambda x: F.transpose(x, (0, 2, 3, 1)) * 2.0,
        "lambda x: x.permute(0, 2, 3, 1).contiguous() * 2",
        normal(IMAGE),
    ),
    Case(
        "array",
        "concatenate",
        lambda x, y: F.concatenate(x, y, axis=1),
        "lambda x, y: torch.cat([x, y], 1)",
        normal(FLAT, FLAT),
        (0, 1),
    ),
    Case(
        "array",
        "pad",
        lambda x: F.pad(x, (2, 2, 2, 2), "reflect"),
        "lambda x: nnF.pad(x, (2, 2, 2, 2), 'reflect')",
        normal(IMAGE),
    ),
    Case(
        "indexing",
        "embed",
        lambda w, i: F.embed(i, w),
        "lambda w, i: nnF.embedding(i, w)",
        with_indices((5000, 128), 5000, (32, 64)),
    ),
    Case(
        "indexing",
        "gather_elements",
        lambda x, i: F.gather_elements(x, i, axis=1),
        "lambda x, i: torch.gather(x, 1, i)",
        with_indices(FLAT, 1024, (256, 512)),
    ),
    Case(
        "sorting", "sort", lambda x: F.sort(x, 1), "lambda x: torch.sort(x, 1).values", normal(FLAT)
    ),
    Case(
        "sorting",
        "topk",
        lambda x: F.topk(x, 16)[0],
        "lambda x: torch.topk(x, 16).values",
        normal(FLAT),
    ),
    Case(
        "scan",
        "cummax",
        lambda x: F.cummax(x, 1),
        "lambda x: torch.cummax(x, 1).values",
        normal(FLAT),
    ),
    Case(
        "indexing",
        "scatter_elements, add",
        lambda x, i, u: F.scatter_elements(x, F.cast(i, "int64"), u, 1, "add"),
        "lambda x, i, u: x.scatter_add(1, i.long(), u)",
        scattered,
        (0, 2),
    ),
    Case(
        "normalization",
        "batch",
        lambda x, b, g: F.batch_normalization(x, b, g, None, None),
        "lambda x, b, g: nnF.batch_norm(x, None, None, g.view(-1), b.view(-1), training=True)",
        normal(IMAGE, (1, 32, 1, 1), (1, 32, 1, 1)),
        (0, 1, 2),
    ),
    Case(
        "normalization",
        "rms",
        lambda x, g: F.rms_norm(x, g, eps=1e-6),
        "lambda x, g: nnF.rms_norm(x, (1024,), g, 1e-6)",
        normal(FLAT, (1024,)),
        (0, 1),
    ),
    Case(
        "recurrent",
        "lstm, 35 steps",
        lambda x, h, c, w, b: F.lstm(x, h, c, w, None, b)[0],
        LSTM,
        normal((35, 20, 64), (1, 1, 20, 64), (1, 1, 20, 64), (1, 4, 64, 128), (1, 1, 4, 64)),
        (0,),
    ),
    Case(
        "loss",
        "ctc",
        lambda x, t, n, m: F.ctc_loss(F.log_softmax(x, 2), t, n, m),
        "lambda x, t, n, m: nnF.ctc_loss(torch.log_softmax(x, 2), t, n, m, reduction='none')",
        sequences,
    ),
    Case(
        "images",
        "interpolate, twice as large",
        lambda x: F.interpolate(x, scale=(2, 2), half_pixel=True),
        "lambda x: nnF.interpolate(x, scale_factor=2, mode='bilinear')",
        normal(IMAGE),
    ),
    Case(
        "images",
        "grid_sample",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        "lambda x, g: nnF.grid_sample(x, g, align_corners=False)",
        normal(IMAGE, (16, 28, 28, 2)),
        (0,),
    ),
    Case(
        "images",
        "pixel_shuffle",
        lambda x: F.pixel_shuffle(x, 2),
        "lambda x: nnF.pixel_shuffle(x, 2)",
        normal(IMAGE),
    ),
    Case(
        "images",
        "unfold 3x3",
        lambda x: F.unfold(x, (3, 3)),
        "lambda x: nnF.unfold(x, 3)",
        normal(IMAGE),
    ),
    Case("matrices", "inverse", F.batch_inv, "torch.linalg.inv", regular),
    Case("matrices", "determinant", F.batch_det, "torch.linalg.det", regular),
    Case(
        "matrices",
        "cholesky",
        lambda x: F.batch_cholesky(F.batch_matmul(x, x, transpose_b=True)),
        "lambda x: torch.linalg.cholesky(x @ x.mT)",
        regular,
    ),
    Case(
        "signal",
        "rfft",
        lambda x: F.rfft(x, 1),
        "lambda x: torch.view_as_real(torch.fft.rfft(x))",
        normal(FLAT),
    ),
    Case(
        "quantization",
        "fixed point",
        lambda x: F.fixed_point_quantize(x, n=8, delta=0.0625),
        "lambda x: torch.fake_quantize_per_tensor_affine(x, 0.0625, 0, -127, 127)",
        normal(FLAT),
    ),
]
