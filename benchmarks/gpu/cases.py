"""Single operations in the words of both libraries: what they move, compute, and must reach."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.cpu.arrays import Array
from benchmarks.gpu.results import COPY, TORCH, Bar
from nnl_core import F

Shape = tuple[int, ...]
HALF = "bf16"
TOLERANCES = {"float32": 1e-4, "tf32": 5e-3, HALF: 2e-2}
REDUCTION_BAR, PRODUCT_BAR = Bar(TORCH, 0.8), Bar(TORCH, 0.97)
CONVOLUTION_BARS = {"float32": Bar(TORCH, 0.4), HALF: Bar(TORCH, 0.25)}


@dataclass(frozen=True)
class Case:
    """An operation on arrays of these shapes, with the gradients of all of them if so said.

    ``torch`` is given PyTorch before the tensors. ``moved`` are bytes, ``operations`` of floating
    point.
    """

    name: str
    shapes: tuple[Shape, ...]
    nnl: Callable[..., Any]
    torch: Callable[..., Any]
    precision: str = "float32"
    moved: int = 0
    operations: int = 0
    bars: list[Bar] = field(default_factory=list)
    gradient: bool = False
    layouts: bool = False  # whether PyTorch may have its images with channels last
    own: bool = False  # whether NNL multiplies without cuBLAS
    centre: float = 0.0  # mean of all elements

    def arrays(self) -> list[Array]:
        """Return the inputs."""
        return [
            spread(shape, seed) + np.float32(self.centre) for seed, shape in enumerate(self.shapes)
        ]

    @property
    def dtype(self) -> str:
        """Type of the elements."""
        return "bfloat16" if self.precision == HALF else "float32"

    @property
    def tolerance(self) -> float:
        """Largest norm of a difference, relative to that of what is expected."""
        return TOLERANCES[self.precision]


def spread(shape: Shape, seed: int = 0) -> Array:
    """Return random elements, a million of them over and over: many take long to draw."""
    few = min(math.prod(shape), 1_000_003)
    return np.resize(np.random.default_rng(seed).standard_normal(few, np.float32), shape)


def memory_cases(smoke: bool) -> Iterator[Case]:
    """Yield what memory bounds: a fused chain, a sum of all, softmax and layer normalisation."""
    size = 1 << (12 if smoke else 27)
    for precision, width in (("float32", 4), (HALF, 2)):
        yield Case(
            f"chain of 7 elementwise, {precision}",
            ((size,), (size,)),
            lambda x, y: F.relu(x * 1.5 + y) * y + F.abs(x) * 0.5 - y,
            lambda torch, x, y: torch.relu(x * 1.5 + y) * y + torch.abs(x) * 0.5 - y,
            precision,
            3 * width * size,
            bars=[Bar(COPY, 0.85)],
        )
    size = 1 << (12 if smoke else 28)
    yield Case(
        "sum of all elements",
        ((size,),),
        F.sum,
        lambda torch, x: x.sum(),
        moved=4 * size,
        bars=[REDUCTION_BAR],
        centre=0.5,
    )
    rows, lengths = (4, (64, 257)) if smoke else (8192, (1024, 4096, 16384))
    for length in lengths:
        for gradient in (False, True) if length == lengths[1] else (False,):
            suffix = ", with gradient" if gradient else ""
            shape = f"{rows} x {length}{suffix}"
            # The gradient reads what came in and out, and writes as much.
            moved = 4 * rows * length * (5 if gradient else 2)
            yield Case(
                f"softmax {shape}",
                ((rows, length),),
                lambda x: F.softmax(x, axis=1),
                lambda torch, x: torch.softmax(x, 1),
                moved=moved,
                bars=[REDUCTION_BAR],
                gradient=gradient,
            )
            yield Case(
                f"layer norm {shape}",
                ((rows, length), (1, length), (1, length)),
                F.layer_normalization,
                _torch_layer_norm,
                moved=moved,
                bars=[REDUCTION_BAR],
                gradient=gradient,
            )


def _torch_layer_norm(torch: Any, x: Any, beta: Any, gamma: Any) -> Any:
    flat = gamma.reshape(-1), beta.reshape(-1)
    return torch.nn.functional.layer_norm(x, x.shape[1:], *flat)


def product_cases(smoke: bool) -> Iterator[Case]:
    """Yield square products by cuBLAS, and by NNL's own kernels."""
    wanted = [("float32", 2048), ("float32", 4096), ("tf32", 8192), (HALF, 4096), (HALF, 8192)]
    for precision, length in [("float32", 24), (HALF, 33)] if smoke else wanted:
        yield _product(precision, length)
    for precision, length in [("float32", 33)] if smoke else [("float32", 4096), (HALF, 4096)]:
        yield _product(precision, length, own=True)


def _product(precision: str, length: int, own: bool = False) -> Case:
    return Case(
        f"product {length}^3, {precision}{', own kernels' if own else ''}",
        ((length, length), (length, length)),
        F.matmul,
        lambda torch, x, y: x @ y,
        precision,
        operations=2 * length**3,
        bars=[] if own else [PRODUCT_BAR],
        own=own,
    )


def convolution_cases(smoke: bool) -> Iterator[Case]:
    """Yield 3 x 3 convolutions as of a residual network, one of them with its gradients."""
    layers = [(2, 3, 5)] if smoke else [(64, 64, 56), (64, 128, 28), (64, 256, 14)]
    for precision in ("float32", "tf32", HALF):
        for batch, channels, length in layers:
            for gradient in (False, True) if (batch, channels, length) == layers[-1] else (False,):
                yield _convolution(precision, batch, channels, length, gradient)


def _convolution(precision: str, batch: int, channels: int, length: int, gradient: bool) -> Case:
    suffix = ", with gradients" if gradient else ""
    operations = 2 * 9 * batch * channels**2 * length**2
    return Case(
        f"convolution 3x3, {batch} x {channels} x {length}^2, {precision}{suffix}",
        ((batch, channels, length, length), (channels, channels, 3, 3)),
        lambda x, w: F.convolution(x, w, pad=(1, 1)),
        lambda torch, x, w: torch.nn.functional.conv2d(x, w, padding=1),
        precision,
        operations=operations * (3 if gradient else 1),
        bars=[CONVOLUTION_BARS[precision]] if precision in CONVOLUTION_BARS else [],
        gradient=gradient,
        layouts=True,
    )
