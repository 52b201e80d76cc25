"""Convolution with padding, normalisation, a residual and a nonlinearity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core.errors import OperatorError
from nnl_core.graph.variable import Variable


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def value(variable: Variable) -> np.ndarray:
    variable.forward()
    return np.array(variable.d)


@pytest.mark.parametrize("channel_last", [False, True])
def test_it_is_the_chain_of_its_parts(channel_last: bool) -> None:
    x, w, b = numbers(2, 4, 5, 6), numbers(6, 2, 3, 3, seed=1), numbers(6, seed=2)
    z = numbers(2, 6, 3, 3, seed=3)
    beta, gamma = numbers(1, 6, 1, 1, seed=4), numbers(1, 6, 1, 1, seed=5)
    if channel_last:
        x, w, z, beta, gamma = (np.moveaxis(a, 1, -1) for a in (x, w, z, beta, gamma))
    options = {"pad": (1, 1), "stride": (2, 2), "group": 2, "channel_last": channel_last}
    h = F.convolution(x, w, b, **options)
    h = F.batch_normalization(h, beta, gamma, None, None, -1 if channel_last else 1)
    y = F.fused_convolution(x, w, b, beta, gamma, None, None, z, **options)
    np.testing.assert_allclose(value(y), np.maximum(value(h) + z, 0), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("identity", (), [-1, 8]),
        ("", (), [-1, 8]),
        ("relu", (), [0, 8]),
        ("relu6", (), [0, 6]),
        ("leaky_relu", (0.25,), [-0.25, 8]),
        ("elu", (2.0,), [2 * np.expm1(-1), 8]),
        ("tanh", (), np.tanh([-1, 8])),
        ("sigmoid", (), 1 / (1 + np.exp([1.0, -8]))),
    ],
)
def test_nonlinearities(name: str, arguments: Any, expected: Any) -> None:
    y = F.fused_convolution(
        np.array([[[-1.0, 8]]]), np.ones((1, 1, 1)), nonlinearity=name, nonlinearity_args=arguments
    )
    np.testing.assert_allclose(value(y)[0, 0], expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"pad": 1}, [1, 3, 5, 3]),
        ({"pad": [(0, 1)]}, [3, 5, 3]),
        ({"pad": (0, 1)}, [3, 5, 3]),
        ({"pad": (0, 0, 1, 0)}, [1, 3, 5]),
        ({"pad": 1, "constant_value": 10}, [11, 3, 5, 13]),
        ({"pad": 1, "pad_mode": "reflect"}, [3, 3, 5, 5]),
    ],
)
def test_padding_is_that_of_convolution_or_of_pad(options: Any, expected: list[float]) -> None:
    y = F.fused_convolution(np.array([[[1.0, 2, 3]]]), np.ones((1, 1, 2)), **options)
    np.testing.assert_array_equal(value(y)[0, 0], expected)


def test_running_statistics_are_updated_once_a_pass() -> None:
    mean, variance = Variable((1, 1, 1)), Variable((1, 1, 1))
    y = F.fused_convolution(
        np.array([[[2.0, 4]]]), np.ones((1, 1, 1)), mean=mean, variance=variance, decay_rate=0.5
    )
    y.forward()
    assert (mean.d.item(), variance.d.item()) == (1.5, 1.0)


def test_unknown_nonlinearities_and_arguments_are_refused() -> None:
    x, w = np.ones((1, 1, 2)), np.ones((1, 1, 1))
    with pytest.raises(OperatorError, match="'swish' is none of identity, relu"):
        F.fused_convolution(x, w, nonlinearity="swish")
    with pytest.raises(OperatorError, match=r"relu does not take arguments \(0.1,\)"):
        F.fused_convolution(x, w, nonlinearity_args=[0.1])
