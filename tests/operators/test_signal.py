"""Fourier transforms, and of moving windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.execute import forward_all
from nnl_core.graph.variable import Variable

WINDOWS = ["hanning", "hamming", "rectangular", None]


def parts(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag], -1)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape)


def with_gradient(x: np.ndarray) -> Variable:
    variable = Variable.from_numpy_array(x, need_grad=True)
    variable.grad.zero()
    return variable


def fourier_matrix(length: int) -> np.ndarray:
    k = np.arange(length)
    return np.exp(-2j * np.pi * np.outer(k, k) / length)


# Whole signals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 7, 12])
def test_transform_is_the_product_with_the_fourier_matrix(length: int) -> None:
    x = noise(3, length, 2)
    expected = parts((x[..., 0] + 1j * x[..., 1]) @ fourier_matrix(length))
    np.testing.assert_allclose(F.fft(x, 1).d, expected, atol=1e-12)


def test_two_axes_are_transformed_one_after_the_other() -> None:
    x = noise(4, 5, 2)
    complex_x = x[..., 0] + 1j * x[..., 1]
    expected = parts(fourier_matrix(4) @ complex_x @ fourier_matrix(5))
    np.testing.assert_allclose(F.fft(x, 2).d, expected, atol=1e-12)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("signal_ndim", [1, 2, 3])
def test_inverse_undoes_the_transform(signal_ndim: int, normalized: bool) -> None:
    x = noise(2, 3, 4, 5, 2)
    y = F.ifft(F.fft(x, signal_ndim, normalized), signal_ndim, normalized)
    np.testing.assert_allclose(y.d, x, atol=1e-12)


def test_normalized_transform_keeps_the_norm() -> None:
    x = noise(4, 6, 2)
    assert np.linalg.norm(F.fft(x, 2, normalized=True).d) == pytest.approx(np.linalg.norm(x))


def test_gradient_of_the_transform_is_the_conjugate_product() -> None:
    x, g = with_gradient(noise(5, 2)), noise(2, 5, 2)[1]
    y = F.fft(x, 1)
    y.forward()
    y.backward(g)
    expected = parts(fourier_matrix(5).conj() @ (g[..., 0] + 1j * g[..., 1]))
    np.testing.assert_allclose(x.g, expected, atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_real_transform_is_the_half_that_is_not_mirrored(length: int) -> None:
    x = noise(3, length)
    full = F.fft(parts(x.astype(complex)), 1).d
    np.testing.assert_allclose(F.rfft(x, 1).d, full[:, : length // 2 + 1], atol=1e-12)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("shape", [(4,), (5,), (3, 4), (3, 5)])
def test_real_inverse_undoes_the_real_transform(shape: tuple[int, ...], normalized: bool) -> None:
    x, ndim = noise(2, *shape), len(shape)
    y = F.irfft(F.rfft(x, ndim, normalized), ndim, normalized, length=shape[-1])
    np.testing.assert_allclose(y.d, x, atol=1e-12)


def test_half_floats_are_transformed_in_single_precision() -> None:
    x = np.full((1, 4096, 2), 1 / 64, np.float16)
    y = F.fft(x, 1)
    assert y.dtype == np.float16
    assert y.d[0, 0].tolist() == [64, 64]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.fft(noise(4, 3), 1), "the last axis holds real and imaginary parts"),
        (lambda: F.fft(noise(4, 2), 2), "signal_ndim 2 must be between 1 and 1"),
        (lambda: F.rfft(noise(4), 0), "signal_ndim 0 must be between 1 and 1"),
        (lambda: F.fft(np.zeros((2, 0, 2)), 1), "length of 0"),
        (lambda: F.irfft(noise(3, 2), 1, length=8), "length 8 has 5 frequencies, not 3"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call()


# Moving windows ----------------------------------------------------------------------------------


def test_each_piece_is_transformed_under_its_window() -> None:
    x = noise(2, 13)
    real, imaginary = F.stft(x, 4, 3, 6, "hamming", center=False)
    forward_all([real, imaginary])
    window = np.array([0, 0.08, 0.54, 1.0, 0.54, 0])
    assert real.shape == imaginary.shape == (2, 4, 3)
    for piece in range(3):
        under = x[:, 3 * piece : 3 * piece + 6] * window
        expected = (under @ fourier_matrix(6))[:, :4]
        np.testing.assert_allclose(real.d[..., piece], expected.real, atol=1e-12)
        np.testing.assert_allclose(imaginary.d[..., piece], expected.imag, atol=1e-12)


@pytest.mark.parametrize(("pad_mode", "outside"), [("reflect", [3, 2]), ("constant", [0, 0])])
def test_centred_pieces_begin_outside(pad_mode: str, outside: list[int]) -> None:
    x = np.array([[1.0, 2, 3, 4, 5, 6]])
    real, _ = F.stft(x, 4, 2, 4, None, pad_mode=pad_mode)
    assert real.d[0, 0, 0] == pytest.approx(sum(outside) + 1 + 2)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 9),
    st.integers(0, 3),
    st.integers(1, 3),
    st.sampled_from(WINDOWS),
)
@settings(deadline=None, max_examples=40)
def test_inverse_gives_the_signal_back(
    seed: int, window_size: int, more: int, parts_of_window: int, window_type: str | None
) -> None:
    stride = max(1, window_size // (parts_of_window + 1))
    fft_size, pieces = window_size + more, 12
    arguments = (window_size, stride, fft_size, window_type)
    samples = (pieces - 1) * stride + fft_size - 2 * (fft_size // 2)
    x = np.random.default_rng(seed).normal(size=(2, samples))
    if samples <= fft_size // 2:
        return
    real, imaginary = F.stft(x, *arguments)
    np.testing.assert_allclose(F.istft(real, imaginary, *arguments).d, x, atol=1e-9)


@pytest.mark.parametrize("window_type", WINDOWS)
@pytest.mark.parametrize(("center", "pad_mode"), [(True, "reflect"), (True, "constant")])
@pytest.mark.parametrize("sizes", [(8, 4, 8), (5, 2, 7)])
def test_the_gradient_as_a_function_is_the_gradient(
    window_type: str, center: bool, pad_mode: str, sizes: tuple[int, int, int]
) -> None:
    arguments = (*sizes, window_type, center, pad_mode)
    _, stride, size = sizes
    samples = 8 * stride + size - 2 * (size // 2)
    x, g = with_gradient(noise(2, samples)), noise(2, 2, size // 2 + 1, 9)
    real, imaginary = F.stft(x, *arguments)
    total = F.sum(real * Variable.constant(g[0]) + imaginary * Variable.constant(g[1]))
    total.forward()
    total.backward()
    adjoint = F.istft(g[0], g[1], *arguments, as_stft_backward=True)
    np.testing.assert_allclose(adjoint.d, x.g, atol=1e-12)

    real, imaginary = with_gradient(g[0]), with_gradient(g[1])
    y = F.istft(real, imaginary, *arguments)
    y.forward()
    y.backward(x.d)
    slopes = F.stft(x, *arguments, as_istft_backward=True)
    forward_all(slopes)
    np.testing.assert_allclose(slopes[0].d, real.g, atol=1e-12)
    np.testing.assert_allclose(slopes[1].d, imaginary.g, atol=1e-12)


def test_no_signals_have_no_spectra() -> None:
    real, imaginary = F.stft(np.zeros((0, 16)), 4, 2, 4)
    assert real.shape == (0, 3, 9)
    assert F.istft(real, imaginary, 4, 2, 4).d.shape == (0, 16)


def test_spectra_of_half_floats_are_half_floats() -> None:
    real, imaginary = F.stft(np.ones((1, 16), np.float16), 4, 2, 4)
    assert real.dtype == imaginary.dtype == np.float16
    y = F.istft(real, imaginary, 4, 2, 4)
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.d, 1, atol=2e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 2, 4, "blackman"), "window_type 'blackman' is not one of"),
        ((4, 2, 4, "hanning", True, "wrap"), "pad_mode 'wrap'"),
        ((5, 2, 4), "window_size 5 between 1 and fft_size 4"),
        ((4, 0, 4), "stride 0 must be at least 1"),
    ],
)
def test_unknown_arguments_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        F.stft(noise(1, 16), *arguments)


def test_a_signal_shorter_than_a_piece_is_refused() -> None:
    with pytest.raises(ShapeError, match="must have 8 elements or more"):
        F.stft(noise(1, 7), 8, 2, 8, center=False)


def test_an_element_under_no_window_is_named() -> None:
    with pytest.raises(OperatorError, match="no window covers element 0 of the signal"):
        F.istft(noise(1, 3, 5), noise(1, 3, 5), 4, 2, 4, "hanning", center=False)


def test_spectra_of_another_size_are_refused() -> None:
    with pytest.raises(ShapeError, match="fft_size 8 gives 5 frequencies"):
        F.istft(noise(1, 3, 5), noise(1, 3, 5), 8, 2, 8)
