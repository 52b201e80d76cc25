"""Tests for Fourier transforms on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnl_core.gpu.families.fourier import find_radices, split_length
from nnl_core.graph.operator import Array

Compute = Callable[..., tuple[Array, ...]]

# Powers of 2, small radices, a prime summed directly, two launches, a chirp, one of two launches.
LENGTHS = [1, 8, 64, 360, 1001, 59, 4096, 6000, 67, 1009, 3217]


def pairs(z: Array) -> Array:
    """Return real and imaginary parts in a last axis."""
    return np.stack([z.real, z.imag], axis=-1)


def signal(shape: tuple[int, ...]) -> Array:
    """Return complex numbers."""
    rng = np.random.default_rng(6)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


@pytest.mark.parametrize("length", LENGTHS)
def test_transforms_of_any_length_are_those_of_numpy(compute: Compute, length: int) -> None:
    z = signal((2, length))
    (y,) = compute("nnl::fft", pairs(z), signal_ndim=1)
    np.testing.assert_allclose(y, pairs(np.fft.fft(z)), atol=1e-12 * length, rtol=0)


@pytest.mark.parametrize("length", [1536, 1009])
def test_single_precision_keeps_seven_digits(compute: Compute, length: int) -> None:
    z = signal((1, length))
    (y,) = compute("nnl::fft", pairs(z).astype(np.float32), signal_ndim=1, norm="ortho")
    np.testing.assert_allclose(y, pairs(np.fft.fft(z, norm="ortho")), atol=3e-6, rtol=0)


@pytest.mark.parametrize("shape", [(3, 40, 6), (2, 3, 67)])
def test_inverses_of_several_axes_are_those_of_numpy(
    compute: Compute, shape: tuple[int, ...]
) -> None:
    z = signal(shape)
    (y,) = compute("nnl::fft", pairs(z), signal_ndim=2, inverse=True)
    np.testing.assert_allclose(y, pairs(np.fft.ifft2(z)), atol=1e-12)


@pytest.mark.parametrize("length", [9, 10, 67, 2200, 4096])
def test_real_transforms_keep_half_of_the_frequencies(compute: Compute, length: int) -> None:
    x = signal((3, 2, length)).real
    (y,) = compute("nnl::rfft", x, signal_ndim=2)
    np.testing.assert_allclose(y, pairs(np.fft.rfft2(x)), atol=1e-11)


@pytest.mark.parametrize("length", [9, 10, 67, 2200, 4096])
def test_inverses_to_reals_leave_out_what_no_real_signal_has(compute: Compute, length: int) -> None:
    z = signal((3, 2, length // 2 + 1))
    (x,) = compute("nnl::irfft", pairs(z), signal_ndim=2, length=length)
    np.testing.assert_allclose(x, np.fft.irfft2(z, s=(2, length)), atol=1e-12)


def test_half_precision_is_rounded_once(compute: Compute) -> None:
    z = signal((4, 6, 8))
    given = pairs(z).astype(np.float16)
    (y,) = compute("nnl::fft", given, signal_ndim=2)
    exact = np.fft.fft2(given[..., 0].astype(np.float64) + 1j * given[..., 1])
    np.testing.assert_allclose(y, pairs(exact).astype(np.float16), rtol=1e-3, atol=1e-4)


def test_radices_multiply_to_the_length() -> None:
    for length in (1, 2, 12, 61, 1024, 3**7):
        radices = find_radices(length)
        assert radices is not None and np.prod(radices, initial=1) == length
    assert find_radices(2 * 67) is None


def test_lengths_are_split_as_evenly_as_can_be() -> None:
    assert split_length(4096, 100) == (64, 64)
    assert split_length(6000, 100) == (75, 80)
    assert split_length(61**3, 3000) is None
