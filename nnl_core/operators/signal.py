"""Fourier transforms, of whole signals and of windows that move along them.

A complex array has its real and imaginary parts in a last axis of length 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, same_dtype
from nnl_core.operators.dtypes import floating, single_precision, wide, wide_dtype

__all__ = ["fft", "ifft", "irfft", "istft", "rfft", "stft"]

Norm: TypeAlias = Literal["backward", "forward", "ortho"]
OTHER_NORM: dict[Norm, Norm] = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
"""How the adjoint of a transform is scaled: as NumPy names it, the direction that divides."""


def _complex(x: Array) -> Array:
    parts = np.ascontiguousarray(wide(x))
    return parts.view(np.result_type(parts.dtype, np.complex64))[..., 0]


def _parts(x: Array) -> Array:
    pairs = np.ascontiguousarray(x)[..., None]
    return pairs.view(pairs.real.dtype)


def _check_signal(x: Spec, signal_ndim: int, *, is_complex: bool) -> None:
    if is_complex and (not x.ndim or x.shape[-1] != 2):
        raise ShapeError("the last axis holds real and imaginary parts, so it must have length 2")
    axes = x.shape[:-1] if is_complex else x.shape
    if not 1 <= signal_ndim <= len(axes):
        raise ShapeError(f"signal_ndim {signal_ndim} must be between 1 and {len(axes)}")
    if 0 in axes[-signal_ndim:]:
        raise ShapeError(f"the signal has a length of 0: {axes[-signal_ndim:]}")


def _cost(x: Spec, *, signal_ndim: int, **attributes: Any) -> int:
    """Some 2.5 multiply-adds per number and level of the transform."""
    lengths = x.shape[-1 - signal_ndim : -1] if x.shape[-1] == 2 else x.shape[-signal_ndim:]
    return int(2.5 * x.size * max(1.0, math.log2(max(1, math.prod(lengths)))))


# Complex signals ---------------------------------------------------------------------------------


@defop("nnl::fft", precision="full")
@single_precision
def fft_operator(
    x: Array, *, signal_ndim: int, inverse: bool = False, norm: Norm = "backward"
) -> Array:
    """Fourier transform of the last ``signal_ndim`` axes of complex numbers, or its inverse."""
    transform = np.fft.ifftn if inverse else np.fft.fftn
    return _parts(transform(_complex(x), axes=range(-signal_ndim, 0), norm=norm))


@fft_operator.infer
def fft_infer(x: Spec, *, signal_ndim: int, inverse: bool, norm: Norm) -> Spec:
    """The same as the input."""
    _check_signal(x, signal_ndim, is_complex=True)
    return x


@fft_operator.vjp
def fft_vjp(
    g: Any, y: Any, x: Any, *, signal_ndim: int, inverse: bool, norm: Norm
) -> tuple[Any, ...]:
    """The transform the other way round, scaled as this one is."""
    other = OTHER_NORM[norm]
    return (fft_operator(g, signal_ndim=signal_ndim, inverse=not inverse, norm=other),)


@fft_operator.samples
def fft_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both directions, each scale, one to three axes, odd lengths, one number, no signals."""
    for inverse in (False, True):
        for norm in OTHER_NORM:
            yield Sample(rng.normal(size=(2, 5, 2)), signal_ndim=1, inverse=inverse, norm=norm)
            yield Sample(rng.normal(size=(3, 4, 2)), signal_ndim=2, inverse=inverse, norm=norm)
        yield Sample(rng.normal(size=(2, 2, 3, 2, 2)), signal_ndim=3, inverse=inverse)
        yield Sample(rng.normal(size=(1, 2)), signal_ndim=1, inverse=inverse)
        yield Sample(np.zeros((0, 3, 2)), signal_ndim=1, inverse=inverse)


def _norm(normalized: bool) -> Norm:
    return "ortho" if normalized else "backward"


def fft(x: Operand, signal_ndim: int, normalized: bool = False) -> Variable:
    """Transform complex signals: ``y[k] = sum_n x[n] exp(-2 pi i k n / N)``, over each axis.

    Real and imaginary parts lie in the last axis, the signal in the ``signal_ndim`` axes before it.
    Any length will do; products of small primes are fastest. ``float16`` is computed in
    ``float32``.

    Args:
        x: ``(..., n_1, ..., n_d, 2)``; integers become ``float32``.
        signal_ndim: how many axes the signal has.
        normalized: divide by the square root of the number of points, so that norms are kept.

    Returns:
        The shape of ``x``.

    Raises:
        ShapeError: the last axis is not 2 long, there are too few axes, or a length is 0.

    Gradient:
        The inverse transform of the gradient, without its division by the number of points.

    Examples:
        >>> F.fft(np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]), signal_ndim=1).d
        array([[1., 0.],
               [1., 0.],
               [1., 0.]])

    Elsewhere:
        - nnabla: `fft`
        - PyTorch: `torch.fft.fftn`, of complex arrays
        - ONNX: `DFT`, one axis
    """
    return fft_operator(
        floating(x), signal_ndim=whole(signal_ndim, "signal_ndim"), norm=_norm(normalized)
    )


def ifft(x: Operand, signal_ndim: int, normalized: bool = False) -> Variable:
    """Undo `fft`: ``y[n] = 1/N sum_k x[k] exp(2 pi i k n / N)``, over each axis.

    Args:
        x: ``(..., n_1, ..., n_d, 2)``, real and imaginary parts last; integers become ``float32``.
        signal_ndim: how many axes the signal has.
        normalized: divide by the square root of the number of points instead, which undoes an
            `fft` that did so, too.

    Returns:
        The shape of ``x``.

    Raises:
        ShapeError: the last axis is not 2 long, there are too few axes, or a length is 0.

    Gradient:
        The transform of the gradient, divided as the result is.

    Examples:
        >>> F.ifft(np.array([[2.0, 0.0], [2.0, 0.0]]), signal_ndim=1).d
        array([[2., 0.],
               [0., 0.]])

    Elsewhere:
        - nnabla: `ifft`
        - PyTorch: `torch.fft.ifftn`, of complex arrays
        - ONNX: `DFT`, with `inverse=1`, one axis
    """
    return fft_operator(
        floating(x),
        signal_ndim=whole(signal_ndim, "signal_ndim"),
        inverse=True,
        norm=_norm(normalized),
    )


# Real signals ------------------------------------------------------------------------------------


@defop("nnl::rfft", precision="full")
@single_precision
def rfft_operator(x: Array, *, signal_ndim: int, norm: Norm = "backward") -> Array:
    """Fourier transform of real numbers, without the mirrored half of the last axis."""
    return _parts(np.fft.rfftn(x, axes=range(-signal_ndim, 0), norm=norm))


@rfft_operator.infer
def rfft_infer(x: Spec, *, signal_ndim: int, norm: Norm) -> Spec:
    """``n // 2 + 1`` complex numbers in place of the last axis."""
    _check_signal(x, signal_ndim, is_complex=False)
    return x.with_shape((*x.shape[:-1], x.shape[-1] // 2 + 1, 2))


@rfft_operator.vjp
def rfft_vjp(g: Any, y: Any, x: Any, *, signal_ndim: int, norm: Norm) -> tuple[Any, ...]:
    """The inverse of it, with half of what counts there for its mirror image, too."""
    length = x.shape[-1]
    half = g / Variable.constant(_mirrored(length, x.dtype))
    other = OTHER_NORM[norm]
    return (irfft_operator(half, signal_ndim=signal_ndim, length=length, norm=other),)


@rfft_operator.samples
def rfft_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Even and odd lengths, each scale, two axes, one number, no signals."""
    for norm in OTHER_NORM:
        for length in (1, 2, 5, 6):
            yield Sample(rng.normal(size=(2, length)), signal_ndim=1, norm=norm)
        yield Sample(rng.normal(size=(2, 3, 4)), signal_ndim=2, norm=norm)
    yield Sample(np.zeros((0, 3)), signal_ndim=1)


@defop("nnl::irfft", precision="full")
@single_precision
def irfft_operator(x: Array, *, signal_ndim: int, length: int, norm: Norm = "backward") -> Array:
    """Inverse Fourier transform to real numbers, ``length`` of them along the last axis."""
    spectrum = _complex(x)
    others = range(-signal_ndim, -1)
    if others:
        spectrum = np.fft.ifftn(spectrum, axes=others, norm=norm)
    return np.fft.irfft(spectrum, n=length, axis=-1, norm=norm)


@irfft_operator.infer
def irfft_infer(x: Spec, *, signal_ndim: int, length: int, norm: Norm) -> Spec:
    """The length in place of the frequencies."""
    _check_signal(x, signal_ndim, is_complex=True)
    if length < 1 or x.shape[-2] != length // 2 + 1:
        raise ShapeError(
            f"a signal of length {length} has {max(length, 0) // 2 + 1} frequencies, not "
            f"{x.shape[-2]}"
        )
    return x.with_shape((*x.shape[:-2], length))


@irfft_operator.vjp
def irfft_vjp(
    g: Any, y: Any, x: Any, *, signal_ndim: int, length: int, norm: Norm
) -> tuple[Any, ...]:
    """The transform, twice where a frequency counts for its mirror image, too."""
    other = rfft_operator(g, signal_ndim=signal_ndim, norm=OTHER_NORM[norm])
    return (other * Variable.constant(_mirrored(length, x.dtype)),)


@irfft_operator.samples
def irfft_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Even and odd lengths, each scale, two axes, one number, no signals."""
    for norm in OTHER_NORM:
        for length in (1, 2, 5, 6):
            x = rng.normal(size=(2, length // 2 + 1, 2))
            yield Sample(x, signal_ndim=1, length=length, norm=norm)
        yield Sample(rng.normal(size=(2, 3, 3, 2)), signal_ndim=2, length=4, norm=norm)
    yield Sample(np.zeros((0, 2, 2)), signal_ndim=1, length=3)


def _mirrored(length: int, dtype: np.dtype) -> Array:
    """For how many of all frequencies each one that is kept counts: 2 but at the ends."""
    counts = np.full((length // 2 + 1, 1), 2, dtype)
    counts[0] = 1
    if length % 2 == 0:
        counts[-1] = 1
    return counts


for _operator in (fft_operator, rfft_operator, irfft_operator):
    _operator.multiply_adds(_cost)


def rfft(x: Operand, signal_ndim: int, normalized: bool = False) -> Variable:
    """Transform real signals: the frequencies of `fft` up to half the length of the last axis.

    The others are their complex conjugates. ``float16`` is computed in ``float32``.

    Args:
        x: ``(..., n_1, ..., n_d)``; integers become ``float32``.
        signal_ndim: how many axes the signal has.
        normalized: divide by the square root of the number of points, so that norms are kept.

    Returns:
        ``(..., n_1, ..., n_d // 2 + 1, 2)``, real and imaginary parts last.

    Raises:
        ShapeError: there are too few axes, or a length is 0.

    Gradient:
        The adjoint: real, as the input is.

    Examples:
        >>> F.rfft(np.array([1.0, 2.0, 1.0, 2.0]), signal_ndim=1).d
        array([[ 6.,  0.],
               [ 0.,  0.],
               [-2.,  0.]])

    Elsewhere:
        - nnabla: none, `fft` with zeros as imaginary parts
        - PyTorch: `torch.fft.rfftn`, gives complex arrays
        - ONNX: `DFT`, with `onesided=1`
    """
    return rfft_operator(
        floating(x), signal_ndim=whole(signal_ndim, "signal_ndim"), norm=_norm(normalized)
    )


def irfft(
    x: Operand, signal_ndim: int, normalized: bool = False, length: int | None = None
) -> Variable:
    """Undo `rfft`: real signals of the frequencies up to half of their last length.

    Where they are not those of a real signal, the part that is so counts: an imaginary part at
    frequency 0, or at half of an even length, is left out.

    Args:
        x: ``(..., n_1, ..., n_d // 2 + 1, 2)``, real and imaginary parts last; integers become
            ``float32``.
        signal_ndim: how many axes the signal has.
        normalized: divide by the square root of the number of points, not by that number.
        length: the length of the last axis of the signal; by default the even one that fits.

    Returns:
        ``(..., n_1, ..., n_d)``.

    Raises:
        ShapeError: the last axis is not 2 long, there are too few axes, or the length does not fit.

    Gradient:
        The adjoint: 0 for the imaginary parts that are left out.

    Examples:
        >>> F.irfft(np.array([[6.0, 0.0], [0.0, 0.0], [-2.0, 0.0]]), signal_ndim=1).d
        array([1., 2., 1., 2.])

    Elsewhere:
        - nnabla: none, the real part of `ifft` of all frequencies
        - PyTorch: `torch.fft.irfftn`, of complex arrays; `s` holds the lengths
        - ONNX: `DFT`, with `inverse=1` and `onesided=1`
    """
    spectrum = floating(x)
    frequencies = spectrum.shape[-2] if spectrum.ndim > 1 else 1
    points = 2 * (frequencies - 1) if length is None else whole(length, "length")
    return irfft_operator(
        spectrum,
        signal_ndim=whole(signal_ndim, "signal_ndim"),
        length=points,
        norm=_norm(normalized),
    )


# Moving windows ----------------------------------------------------------------------------------


@defop("nnl::frames")
def frames(x: Array, *, size: int, stride: int) -> Array:
    """Cut the last axis into pieces of ``size`` that begin every ``stride`` elements."""
    return np.lib.stride_tricks.sliding_window_view(x, size, axis=-1)[..., ::stride, :].copy()


@frames.infer
def frames_infer(x: Spec, *, size: int, stride: int) -> Spec:
    """As many pieces as fit, in place of the last axis."""
    if not x.ndim or x.shape[-1] < size:
        raise ShapeError(f"the last axis must have {size} elements or more")
    return x.with_shape((*x.shape[:-1], (x.shape[-1] - size) // stride + 1, size))


@frames.vjp
def frames_vjp(g: Any, y: Any, x: Any, *, size: int, stride: int) -> tuple[Any, ...]:
    """Add the pieces up."""
    return (overlapped(g, stride=stride, length=x.shape[-1]),)


@frames.samples
def frames_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Overlapping, touching, apart; a rest; one piece; no signals."""
    yield Sample(rng.normal(size=(2, 11)), size=4, stride=2)
    yield Sample(rng.normal(size=(2, 3, 9)), size=3, stride=3)
    yield Sample(rng.normal(size=(8,)), size=2, stride=3)
    yield Sample(rng.normal(size=(5,)), size=5, stride=1)
    yield Sample(np.zeros((0, 5)), size=3, stride=1)


@defop("nnl::overlapped", precision="full")
@single_precision
def overlapped(x: Array, *, stride: int, length: int) -> Array:
    """Add pieces, which begin every ``stride`` elements, to ``length`` zeros."""
    count, size = x.shape[-2:]
    turns = -(-size // stride)
    padded = np.zeros((*x.shape[:-1], turns * stride), x.dtype)
    padded[..., :size] = x
    parts = padded.reshape(*x.shape[:-1], turns, stride)
    sums = np.zeros((*x.shape[:-2], count + turns - 1, stride), x.dtype)
    for turn in range(turns):
        sums[..., turn : turn + count, :] += parts[..., turn, :]
    flat = sums.reshape(*x.shape[:-2], (count + turns - 1) * stride)
    result = np.zeros((*x.shape[:-2], length), x.dtype)
    result[..., : flat.shape[-1]] = flat[..., :length]
    return result


@overlapped.infer
def overlapped_infer(x: Spec, *, stride: int, length: int) -> Spec:
    """The length in place of the pieces."""
    if x.ndim < 2 or x.shape[-2] != (length - x.shape[-1]) // stride + 1:
        raise ShapeError(f"these are not the pieces of {length} elements, one every {stride}")
    return x.with_shape((*x.shape[:-2], length))


@overlapped.vjp
def overlapped_vjp(g: Any, y: Any, x: Any, *, stride: int, length: int) -> tuple[Any, ...]:
    """Cut the gradient into pieces."""
    return (frames(g, size=x.shape[-1], stride=stride),)


@overlapped.samples
def overlapped_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Overlapping, touching, apart; a rest; one piece; no signals."""
    yield Sample(rng.normal(size=(2, 4, 4)), stride=2, length=11)
    yield Sample(rng.normal(size=(2, 3, 3, 3)), stride=3, length=9)
    yield Sample(rng.normal(size=(3, 2)), stride=3, length=8)
    yield Sample(rng.normal(size=(1, 5)), stride=1, length=5)
    yield Sample(np.zeros((0, 3, 3)), stride=1, length=5)


overlapped.multiply_adds(lambda x, **attributes: x.size)

WINDOWS = {"hanning": 0.5, "hamming": 0.54, "rectangular": 1.0}
"""Periodic windows ``a - (1 - a) cos(2 pi n / size)`` by their ``a``."""


class _Windows:
    """What `stft` and `istft` share: the window, and how frames lie in the signal."""

    def __init__(
        self,
        name: str,
        window_size: int,
        stride: int,
        fft_size: int,
        window_type: str | None,
        center: bool,
        pad_mode: str,
    ) -> None:
        kind = "rectangular" if window_type is None else window_type
        if kind not in WINDOWS:
            raise OperatorError(f"{name}: window_type {kind!r} is not one of {sorted(WINDOWS)}")
        if pad_mode not in ("constant", "reflect"):
            raise OperatorError(f"{name}: pad_mode {pad_mode!r} is not 'constant' or 'reflect'")
        if stride < 1 or not 1 <= window_size <= fft_size:
            raise OperatorError(
                f"{name}: stride {stride} must be at least 1, and window_size {window_size} "
                f"between 1 and fft_size {fft_size}"
            )
        share = WINDOWS[kind]
        angles = 2 * np.pi * np.arange(window_size) / window_size
        before = (fft_size - window_size) // 2
        self.name = name
        self.size, self.stride = whole(fft_size, "fft_size"), whole(stride, "stride")
        self.window = np.zeros(fft_size)
        self.window[before : before + window_size] = share - (1 - share) * np.cos(angles)
        self.margin = fft_size // 2 if center else 0
        self.pad_mode = pad_mode

    def widths(self, x: Variable) -> list[int]:
        """The padding of the last axis alone."""
        return [0] * (2 * x.ndim - 2) + [self.margin] * 2

    def constant(self, values: Array, x: Variable) -> Variable:
        return Variable.constant(values.astype(x.dtype))

    def length(self, count: int) -> int:
        """How long a padded signal of so many frames is."""
        return (count - 1) * self.stride + self.size

    def power(self, length: int) -> Array:
        """The sum of the squared windows at each place of the signal; 1 behind the last piece."""
        count = (length - self.size) // self.stride + 1
        squares = np.broadcast_to(self.window**2, (count, self.size))
        sums = overlapped.reference(squares, stride=self.stride, length=length)
        sums[self.length(count) :] = 1
        sums = sums[self.margin : length - self.margin]
        low = np.flatnonzero(sums < 1e-11)
        if low.size:
            raise OperatorError(
                f"{self.name}: no window covers element {low[0]} of the signal, so it cannot be "
                "recovered; take a smaller stride, another window, or center=True"
            )
        return sums

    def cut(self, x: Variable) -> Variable:
        """Take the margins off a padded signal."""
        if not self.margin:
            return x
        key = (..., slice(self.margin, x.shape[-1] - self.margin))
        result: Variable = F.getitem(x, key)
        return result


def _swapped(x: Variable) -> Variable:
    result: Variable = F.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    return result


def _narrowed(x: Variable, dtype: np.dtype) -> Variable:
    return x if x.dtype == dtype else cast(x, dtype)


def stft(
    x: Operand,
    window_size: int,
    stride: int,
    fft_size: int,
    window_type: str | None = "hanning",
    center: bool = True,
    pad_mode: str = "reflect",
    as_istft_backward: bool = False,
) -> tuple[Variable, Variable]:
    """Transform pieces of a signal, each under a window: the short-time Fourier transform.

    Piece ``t`` begins at element ``t * stride`` and has ``fft_size`` elements, of which the window
    lets the ``window_size`` in the middle through: ``y[:, t] = rfft(window * piece)``. The window
    is periodic, ``a - (1 - a) cos(2 pi n / window_size)``. What is left behind the last whole
    piece is not seen. ``float16`` is computed in ``float32``.

    Args:
        x: ``(..., samples)``, usually ``(batch, samples)``; integers become ``float32``.
        window_size: how many elements the window has, at most ``fft_size``.
        stride: from one piece to the next.
        fft_size: how many elements a piece has.
        window_type: ``"hanning"`` (``a`` is 0.5), ``"hamming"`` (0.54), or ``"rectangular"`` or
            ``None`` (1).
        center: pad the signal by ``fft_size // 2`` on both sides, so that piece ``t`` has element
            ``t * stride`` in its middle.
        pad_mode: ``"reflect"``, at the outermost elements, which are not doubled; or
            ``"constant"``, zeros.
        as_istft_backward: compute the gradient of `istft` instead, of which ``x`` is that of the
            output.

    Returns:
        Real and imaginary parts, ``(..., fft_size // 2 + 1, pieces)`` each.

    Raises:
        ShapeError: the signal (padded) is shorter than a piece.
        OperatorError: an argument is not one of the values above, or with ``as_istft_backward``
            an element is under no window.

    Gradient:
        The adjoint: pieces transformed back, under the window, added up.

    Examples:
        >>> real, imaginary = F.stft(np.ones((1, 8)), 4, 2, 4, window_type=None, center=False)
        >>> real.d
        array([[[4., 4., 4.],
                [0., 0., 0.],
                [0., 0., 0.]]])

    Elsewhere:
        - nnabla: `stft`
        - PyTorch: `torch.stft`, takes the window as an array
        - ONNX: `STFT`, never pads
    """
    windows = _Windows("stft", window_size, stride, fft_size, window_type, center, pad_mode)
    given = floating(x)
    if not given.ndim:
        raise ShapeError("stft: a signal needs an axis: input shape ()")
    wanted = wide_dtype(given.dtype)
    signal = _narrowed(given, wanted)
    if as_istft_backward:
        length = signal.shape[-1] + 2 * windows.margin
        signal = signal / windows.constant(windows.power(length), signal)
        windows.pad_mode = "constant"
    if windows.margin:
        signal = F.pad(signal, windows.widths(signal), mode=windows.pad_mode)
    pieces = frames(signal, size=windows.size, stride=windows.stride)
    pieces = pieces * windows.constant(windows.window, signal)
    spectrum = rfft_operator(pieces, signal_ndim=1)
    if as_istft_backward:
        counts = _mirrored(windows.size, np.dtype(wanted)) / windows.size
        spectrum = spectrum * windows.constant(counts, signal)
    real, imaginary = (_swapped(F.getitem(spectrum, (..., part))) for part in (0, 1))
    return _narrowed(real, given.dtype), _narrowed(imaginary, given.dtype)


def istft(
    y_r: Operand,
    y_i: Operand,
    window_size: int,
    stride: int,
    fft_size: int,
    window_type: str | None = "hanning",
    center: bool = True,
    pad_mode: str = "reflect",
    as_stft_backward: bool = False,
) -> Variable:
    """Undo `stft`: add the pieces, under the window again, and divide by the squared windows.

    This gives the signal back where pieces are those of a signal, and else the signal whose
    pieces are nearest (Griffin, Lim 1984). ``float16`` is computed in ``float32``.

    Args:
        y_r: ``(..., fft_size // 2 + 1, pieces)``, the real parts; integers become ``float32``.
        y_i: the imaginary parts, of the same shape.
        window_size: as it was for `stft`; so are the following.
        stride: from one piece to the next.
        fft_size: how many elements a piece has.
        window_type: ``"hanning"``, ``"hamming"``, or ``"rectangular"`` or ``None``.
        center: cut ``fft_size // 2`` elements off on both sides.
        pad_mode: ``"reflect"`` or ``"constant"``; it counts with ``as_stft_backward`` alone.
        as_stft_backward: compute the gradient of `stft` instead, of which ``y_r`` and ``y_i`` are
            those of the outputs.

    Returns:
        ``(..., (pieces - 1) * stride + fft_size)``, shorter by twice ``fft_size // 2`` if centred.

    Raises:
        ShapeError: the shapes differ, or do not fit ``fft_size``.
        OperatorError: an argument is not one of the values above, or an element is under no
            window, as the first is with ``"hanning"`` that is not centred.

    Gradient:
        The adjoint; 0 for the imaginary parts that a real signal has not.

    Examples:
        >>> real, imaginary = F.stft(np.arange(8.0)[None], 4, 2, 4)
        >>> F.istft(real, imaginary, 4, 2, 4).d.round(6)
        array([[0., 1., 2., 3., 4., 5., 6., 7.]])

    Elsewhere:
        - nnabla: `istft`, whose `pad_mode` must be "constant", and `fft_size` a multiple of
          `stride`
        - PyTorch: `torch.istft`, of a complex array
        - ONNX: none, `DFT` with `inverse=1` of each piece
    """
    windows = _Windows("istft", window_size, stride, fft_size, window_type, center, pad_mode)
    real, imaginary = (floating(part) for part in same_dtype(y_r, y_i))
    shape, bins = real.shape, windows.size // 2 + 1
    if shape != imaginary.shape or len(shape) < 2 or shape[-2] != bins or not shape[-1]:
        raise ShapeError(
            f"istft: shapes {shape} and {imaginary.shape} must be equal and end with "
            f"({bins}, pieces): fft_size {windows.size} gives {bins} frequencies"
        )
    dtype, wanted = real.dtype, wide_dtype(real.dtype)
    spectrum = F.stack(*(_swapped(_narrowed(p, wanted)) for p in (real, imaginary)), axis=-1)
    if as_stft_backward:
        counts = windows.size / _mirrored(windows.size, np.dtype(wanted))
        spectrum = spectrum * windows.constant(counts, spectrum)
    pieces = irfft_operator(spectrum, signal_ndim=1, length=windows.size)
    pieces = pieces * windows.constant(windows.window, spectrum)
    length = windows.length(shape[-1])
    padded = overlapped(pieces, stride=windows.stride, length=length)
    if as_stft_backward:
        return _narrowed(_unpadded(padded, windows), dtype)
    signal = windows.cut(padded) / windows.constant(windows.power(length), spectrum)
    return _narrowed(signal, dtype)


def _unpadded(padded: Variable, windows: _Windows) -> Variable:
    """The adjoint of padding: what lies in the margins belongs to what they were copied from."""
    if not windows.margin or windows.pad_mode == "constant":
        return windows.cut(padded)
    length = padded.shape[-1] - 2 * windows.margin
    sources = np.pad(np.arange(length), windows.margin, mode="reflect")
    result: Variable = F.gather_adjoint(
        padded, Variable.constant(sources), size=length, axis=padded.ndim - 1, batch_dims=0
    )
    return result
