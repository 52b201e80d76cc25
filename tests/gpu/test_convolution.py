"""Tests for convolution and its adjoints on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from nnl_core import F, Variable, allow_tf32, backend_scope
from nnl_core.gpu import blas
from nnl_core.gpu.device import device
from nnl_core.graph.dtypes import bfloat16
from nnl_core.graph.operator import Array, lookup
from nnl_core.graph.spec import Spec

Compute = Callable[..., tuple[Array, ...]]

# x, weight, stride, pad, dilation, group
CASES: dict[str, tuple[Any, ...]] = {
    "several blocks": ((2, 10, 9, 11), (70, 10, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "groups": ((3, 24, 7, 8), (40, 12, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 2),
    "single elements": ((2, 16, 6, 8), (12, 16, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "stride and dilation": ((2, 12, 9, 7), (9, 12, 3, 3), (2, 3), ((1, 2), (0, 1)), (2, 3), 1),
    "three axes": (
        (2, 12, 4, 5, 6), (9, 12, 2, 3, 2), (2, 1, 2), ((1, 0), (0, 1), (1, 1)), (1, 2, 1), 1,
    ),
    "a map a channel": ((2, 40, 20), (40, 1, 5), (3,), ((2, 2),), (2,), 40),
    "three maps": ((2, 12, 17, 17), (3, 12, 4, 4), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
    "elements that no window reaches": (
        (2, 12, 16, 16), (16, 12, 3, 3), (4, 4), ((0, 0), (0, 0)), (1, 1), 1,
    ),
    "windows in slices": ((4, 9, 20, 20), (9, 9, 1, 3), (1, 1), ((0, 0), (1, 1)), (1, 1), 1),
}  # fmt: skip
ADJOINTS = ("convolution", "convolution_data_gradient", "convolution_weight_gradient")


def _operands(
    name: str, case: tuple[Any, ...], dtype: np.dtype
) -> tuple[list[Array], dict[str, Any]]:
    """Return the inputs of an adjoint, whole numbers that half precision holds, and attributes."""
    x, weight, stride, pad, dilation, group = case
    options = {"stride": stride, "pad": pad, "dilation": dilation, "group": group}
    (y,) = lookup("nnl::convolution").infer_specs([Spec(x), Spec(weight), None], options)
    shapes = {
        "convolution": (x, weight, weight[:1]),
        "convolution_data_gradient": (y.shape, weight),
        "convolution_weight_gradient": (x, y.shape),
    }[name]
    if name == "convolution_weight_gradient":
        options["kernel"] = weight[2:]
    rng = np.random.default_rng(1)
    return [rng.integers(-2, 3, shape).astype(dtype) for shape in shapes], options


def _agrees(compute: Compute, name: str, case: tuple[Any, ...], dtype: np.dtype) -> None:
    """Compare with the reference in float64: sums of small whole numbers are exact."""
    inputs, options = _operands(name, case, dtype)
    (result,) = compute(f"nnl::{name}", *inputs, **options)
    wide = [one.astype(np.float64) for one in inputs]
    target = lookup(f"nnl::{name}").reference(*wide, **options)
    np.testing.assert_array_equal(result, target.astype(dtype))


@pytest.mark.parametrize("name", ADJOINTS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_float32_agrees_with_the_reference(
    compute: Compute, name: str, case: tuple[Any, ...]
) -> None:
    _agrees(compute, name, case, np.dtype(np.float32))


@pytest.mark.parametrize("name", ADJOINTS)
@pytest.mark.parametrize("case", ["several blocks", "groups", "windows in slices"])
def test_half_precision_on_tensor_cores_is_rounded_once(
    compute: Compute, name: str, case: str
) -> None:
    _agrees(compute, name, CASES[case], bfloat16())


@pytest.mark.parametrize("name", ADJOINTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_large_tiles_agree_with_the_reference(
    compute: Compute, name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(device(0).__dict__, "multiprocessors", 1)
    chosen = bfloat16() if dtype == "bfloat16" else np.dtype(dtype)
    _agrees(compute, name, CASES["several blocks"], chosen)


@pytest.mark.parametrize("name", ADJOINTS)
def test_tensor_cores_multiply_float32_where_tf32_is_allowed(
    compute: Compute, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device(0), "allow_tf32", True)
    _agrees(compute, name, CASES["several blocks"], np.dtype(np.float32))


def test_a_program_rounds_to_tf32_only_while_that_is_allowed() -> None:
    x = Variable.from_numpy_array(np.full((1, 4, 5, 5), 1 + 2**-14, np.float32))
    with backend_scope("cuda"):
        y = F.convolution(x, np.ones((12, 4, 1, 3), np.float32))
        results = []
        for allowed in (False, True, False):
            with allow_tf32() if allowed else nullcontext():
                y.forward()
            results.append(float(y.d[0, 0, 0, 0]))
    assert results == [12 + 12 * 2**-14, 12, 12 + 12 * 2**-14]


@pytest.mark.parametrize("name", ADJOINTS)
def test_single_elements_need_no_library(
    compute: Compute, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blas, "find", lambda device: None)
    _agrees(compute, name, CASES["single elements"], np.dtype(np.float32))


@pytest.mark.parametrize("outside", [np.inf, np.nan])
def test_what_is_beyond_a_window_never_comes_into_its_product(
    compute: Compute, outside: float
) -> None:
    x = np.full((1, 9, 1, 5), 1, np.float32)
    x[..., 4] = outside
    weight = np.ones((9, 9, 1, 2), np.float32)
    options = {"stride": (1, 3), "pad": ((0, 0), (1, 0)), "dilation": (1, 1)}
    (y,) = compute("nnl::convolution", x, weight, np.zeros(9, np.float32), **options)
    np.testing.assert_array_equal(y, np.broadcast_to([9, 18], (1, 9, 1, 2)))
