"""Layers whose weight is a product of factors, and deformable convolution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nnl_core import PF, F, I, Variable
from nnl_core.errors import ParameterError
from nnl_core.parameters import get_parameter_or_create, get_parameters, parameter_scope


@pytest.fixture(autouse=True)
def own_scope() -> Iterator[None]:
    with parameter_scope("", {}):
        yield


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def shapes() -> dict[str, tuple[int, ...]]:
    return {name: parameter.shape for name, parameter in get_parameters().items()}


IMAGE = (2, 3, 6, 7)
CONVOLUTION: dict[str, Any] = {"pad": (1, 0), "stride": (2, 1), "dilation": (1, 2)}


def test_parameters_of_an_affine_layer_of_low_rank() -> None:
    y = PF.svd_affine(Variable((2, 3, 4)), (5, 2), r=2, name="fc")
    assert y.shape == (2, 5, 2)
    assert shapes() == {
        "fc/svd_affine/U": (12, 2), "fc/svd_affine/V": (2, 5, 2), "fc/svd_affine/b": (5, 2),
    }  # fmt: skip


def test_affine_at_full_rank_is_the_given_weight() -> None:
    x, weight, b = draw(2, 3, 4), draw(4, 5), draw(5)
    for axis in (2, -1):
        with parameter_scope("", {}):
            y = PF.svd_affine(
                Variable.from_numpy_array(x), 5, 4, axis, uv_init=weight, b_init=b
            )  # fmt: skip
            np.testing.assert_allclose(y.d, x @ weight + b, rtol=1e-4, atol=1e-5)


def test_affine_of_low_rank_is_the_nearest_of_that_rank() -> None:
    weight = draw(6, 5)
    left, values, right = np.linalg.svd(weight.astype(float))
    nearest = left[:, :2] * values[:2] @ right[:2]
    y = PF.svd_affine(Variable.from_numpy_array(np.eye(6, dtype=np.float32)), 5, 2, uv_init=weight)
    np.testing.assert_allclose(y.d, nearest, rtol=1e-4, atol=1e-5)


def test_convolution_at_full_rank_is_the_given_weight() -> None:
    x, weight, b = draw(*IMAGE), draw(4, 3, 2, 3), draw(4)
    y = PF.svd_convolution(
        Variable.from_numpy_array(x), 4, (2, 3), 4, uv_init=weight, b_init=b, **CONVOLUTION
    )
    np.testing.assert_allclose(
        y.d, F.convolution(x, weight, b, **CONVOLUTION).d, rtol=1e-3, atol=1e-4
    )
    assert shapes() == {
        "svd_conv/U": (12, 2, 3), "svd_conv/V": (4, 12, 1, 1), "svd_conv/b": (4,),
    }  # fmt: skip


def test_convolution_of_rank_one_in_each_channel_needs_no_more() -> None:
    taps, maps = draw(3, 6), draw(3, 4)
    weight = np.einsum("ik,io->oik", taps, maps).reshape(4, 3, 2, 3)
    x = draw(*IMAGE)
    y = PF.svd_convolution(Variable.from_numpy_array(x), 4, (2, 3), 1, uv_init=weight)
    np.testing.assert_allclose(y.d, F.convolution(x, weight).d, rtol=1e-3, atol=1e-4)


def test_convolution_with_a_sum_of_outer_products_finds_it() -> None:
    factors = draw(4, 2), draw(3, 2), draw(6, 2)
    weight = np.einsum("or,ir,kr->oik", *factors).reshape(4, 3, 2, 3)
    x, b = draw(*IMAGE), draw(4)
    y = PF.cpd3_convolution(
        Variable.from_numpy_array(x), 4, (2, 3), 2, oik_init=weight, b_init=b,
        rng=np.random.default_rng(0), max_iter=1000, stopping_criterion=1e-14, **CONVOLUTION,
    )  # fmt: skip
    np.testing.assert_allclose(
        y.d, F.convolution(x, weight, b, **CONVOLUTION).d, rtol=1e-3, atol=1e-3
    )
    assert shapes() == {
        "cpd3_conv/I": (2, 3, 1, 1), "cpd3_conv/K": (2, 2, 3), "cpd3_conv/O": (4, 2, 1, 1),
        "cpd3_conv/b": (4,),
    }  # fmt: skip


def affine(x: Variable, **options: Any) -> Variable:
    return PF.svd_affine(x, 5, 2, **options)


def convolution(x: Variable, **options: Any) -> Variable:
    return PF.svd_convolution(x, 4, (2, 3), 2, **options)


def outer_products(x: Variable, **options: Any) -> Variable:
    return PF.cpd3_convolution(x, 4, (2, 3), 2, **options)


def deformable(x: Variable, **options: Any) -> Variable:
    return PF.deformable_convolution(x, 4, (2, 3), np.zeros((2, 12, 5, 5)), **options)


LAYERS = (affine, convolution, outer_products, deformable)


@pytest.mark.parametrize("layer", LAYERS)
def test_parameters_that_exist_are_used_again(layer: Any) -> None:
    x = Variable.from_numpy_array(draw(*IMAGE))
    first, second = layer(x), layer(x)
    np.testing.assert_array_equal(first.d, second.d)


@pytest.mark.parametrize("layer", LAYERS)
def test_parameters_receive_gradients_unless_they_are_fixed(layer: Any) -> None:
    x = Variable.from_numpy_array(draw(*IMAGE), need_grad=True)
    fixed = F.sum(layer(x, fix_parameters=True))
    fixed.forward()
    fixed.backward()
    assert not any(p.g.any() for p in get_parameters(grad_only=False).values())
    loose = F.sum(layer(x))
    loose.forward()
    loose.backward()
    assert all(p.g.any() for p in get_parameters().values())


@pytest.mark.parametrize("layer", LAYERS)
def test_there_may_be_no_bias(layer: Any) -> None:
    layer(Variable(IMAGE), with_bias=False)
    assert not any(name.endswith("/b") for name in shapes())


def test_initial_values_come_from_initializers_and_the_given_generator() -> None:
    x = Variable(IMAGE)
    found = []
    for _ in range(2):
        with parameter_scope("", {}):
            outer_products(x, rng=np.random.default_rng(4))
            found.append([p.d.copy() for p in get_parameters().values()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    affine(x, uv_init=I.ConstantInitializer(2.0))
    u, v = (get_parameters()[f"svd_affine/{name}"].d for name in "UV")
    np.testing.assert_allclose(u @ v, np.full((126, 5), 2), rtol=1e-5)


def test_a_factor_without_the_others_is_replaced() -> None:
    x, weight = np.eye(4, dtype=np.float32), draw(4, 3)
    with parameter_scope("svd_affine"):
        get_parameter_or_create("U", (4, 3))
    y = PF.svd_affine(Variable.from_numpy_array(x), 3, 3, uv_init=weight)
    np.testing.assert_allclose(y.d, weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (lambda x: PF.svd_affine(x, 5, 6), "rank 6 must be between 1 and 5"),
        (lambda x: PF.svd_convolution(x, 4, (1, 2), 3), "rank 3 must be between 1 and 2"),
        (lambda x: PF.cpd3_convolution(x, 4, (1, 2), 0), "rank 0 .* must be at least 1"),
        (
            lambda x: PF.svd_affine(x, 5, 2, uv_init=np.ones((5, 126))),
            r"has shape \(5, 126\) and must have \(126, 5\)",
        ),
    ],
)
def test_ranks_and_weights_that_do_not_fit_are_refused(layer: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        layer(Variable(IMAGE))


def test_parameters_of_a_deformable_convolution() -> None:
    x, offset = Variable((2, 6, 7, 4)), Variable((2, 5, 6, 16))
    y = PF.deformable_convolution(
        x, 6, (2, 2), offset, group=2, deformable_group=2, channel_last=True
    )
    assert y.shape == (2, 5, 6, 6)
    assert shapes() == {"deformable_conv/W": (6, 2, 2, 2), "deformable_conv/b": (6,)}


def test_a_deformable_convolution_without_offsets_is_a_convolution() -> None:
    x, w, b = draw(*IMAGE), draw(4, 3, 2, 3), draw(4)
    y = PF.deformable_convolution(
        Variable.from_numpy_array(x), 4, (2, 3), np.zeros((2, 12, 5, 5)), np.ones((2, 6, 5, 5)),
        w_init=w, b_init=b, apply_w=lambda v: 2 * v, apply_b=lambda v: 3 * v,
    )  # fmt: skip
    np.testing.assert_allclose(y.d, F.convolution(x, 2 * w, 3 * b).d, rtol=1e-4, atol=1e-4)
