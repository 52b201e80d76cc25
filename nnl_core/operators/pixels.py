"""Channels that become pixels, and pixels that become channels."""

from __future__ import annotations

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.variable import Operand, Variable

__all__ = ["pixel_shuffle", "pixel_unshuffle"]

ORDERS = ("CRD", "DCR")


def pixel_shuffle(
    x: Operand, upscale_factor: int, order: str = "CRD", channel_last: bool = False
) -> Variable:
    """Make blocks of ``r * r`` pixels of groups of ``r * r`` channels: depth to space.

        y[..., c, h r + i, w r + j] = x[..., (c r + i) r + j, h, w]     (order "CRD")
        y[..., c, h r + i, w r + j] = x[..., (i r + j) C + c, h, w]     (order "DCR")

    ``C`` is the number of channels of ``y``. W. Shi and others, Real-time single image and video
    super-resolution using an efficient sub-pixel convolutional neural network, 2016.

    Args:
        x: ``(..., channels, height, width)``, or channels last; any dtype.
        upscale_factor: ``r``.
        order: whether a channel's pixels lie together (``"CRD"``) or all channels of a pixel do
            (``"DCR"``).
        channel_last: whether channels are the last axis of ``x`` and of the result.

    Returns:
        ``(..., channels / r**2, height * r, width * r)``, or channels last.

    Raises:
        OperatorError: an unknown order, or a factor below 1.
        ShapeError: fewer than three axes, or channels that ``r**2`` does not divide.

    Gradient:
        The elements put back, by `pixel_unshuffle`.

    Examples:
        >>> F.pixel_shuffle(np.array([1, 2, 3, 4]).reshape(4, 1, 1), 2).d
        array([[[1, 2],
                [3, 4]]])

    Elsewhere:
        - nnabla: none, `reshape` and `transpose`
        - PyTorch: `torch.nn.functional.pixel_shuffle`, in order ``"CRD"``
        - ONNX: `DepthToSpace`, whose default is ``"DCR"``
    """
    variable, r = _checked("pixel_shuffle", x, upscale_factor, order)
    *leading, channels, height, width = _shape(variable, channel_last)
    if channels % r**2:
        raise ShapeError(
            f"pixel_shuffle: {channels} channels cannot be divided by {r}**2: input shape "
            f"{variable.shape}"
        )
    depth = channels // r**2
    n = len(leading)
    split = (depth, r, r) if order == "CRD" else (r, r, depth)
    c, i, j = (n, n + 1, n + 2) if order == "CRD" else (n + 2, n, n + 1)
    if channel_last:
        cut, h, w = (*leading, height, width, *split), n, n + 1
        joined = F.transpose(F.reshape(variable, cut), (*range(n), h, i + 2, w, j + 2, c + 2))
        return F.reshape(joined, (*leading, height * r, width * r, depth))
    cut, h, w = (*leading, *split, height, width), n + 3, n + 4
    joined = F.transpose(F.reshape(variable, cut), (*range(n), c, h, i, w, j))
    return F.reshape(joined, (*leading, depth, height * r, width * r))


def pixel_unshuffle(
    x: Operand, downscale_factor: int, order: str = "CRD", channel_last: bool = False
) -> Variable:
    """Make groups of ``r * r`` channels of blocks of ``r * r`` pixels: space to depth.

    The inverse of `pixel_shuffle`, in the same order:

        y[..., (c r + i) r + j, h, w] = x[..., c, h r + i, w r + j]     (order "CRD")
        y[..., (i r + j) C + c, h, w] = x[..., c, h r + i, w r + j]     (order "DCR")

    Args:
        x: ``(..., channels, height, width)``, or channels last; any dtype.
        downscale_factor: ``r``.
        order: whether a channel's pixels lie together (``"CRD"``) or all channels of a pixel do
            (``"DCR"``).
        channel_last: whether channels are the last axis of ``x`` and of the result.

    Returns:
        ``(..., channels * r**2, height / r, width / r)``, or channels last.

    Raises:
        OperatorError: an unknown order, or a factor below 1.
        ShapeError: fewer than three axes, or a height or width that ``r`` does not divide.

    Gradient:
        The elements put back, by `pixel_shuffle`.

    Examples:
        >>> F.pixel_unshuffle(np.array([[[1, 2], [3, 4]]]), 2).d.ravel()
        array([1, 2, 3, 4])

    Elsewhere:
        - nnabla: none, `reshape` and `transpose`
        - PyTorch: `torch.nn.functional.pixel_unshuffle`, in order ``"CRD"``
        - ONNX: `SpaceToDepth`, in order ``"DCR"``
    """
    variable, r = _checked("pixel_unshuffle", x, downscale_factor, order)
    *leading, depth, height, width = _shape(variable, channel_last)
    if height % r or width % r:
        raise ShapeError(
            f"pixel_unshuffle: height {height} and width {width} cannot both be divided by {r}: "
            f"input shape {variable.shape}"
        )
    n = len(leading)
    inner = (height // r, r, width // r, r)
    if channel_last:
        cut, c, h = (*leading, *inner, depth), n + 4, n
    else:
        cut, c, h = (*leading, depth, *inner), n, n + 1
    i, w, j = h + 1, h + 2, h + 3
    group = (c, i, j) if order == "CRD" else (i, j, c)
    places = (h, w, *group) if channel_last else (*group, h, w)
    joined = F.transpose(F.reshape(variable, cut), (*range(n), *places))
    channels = depth * r**2
    small = (height // r, width // r)
    shape = (*small, channels) if channel_last else (channels, *small)
    return F.reshape(joined, (*leading, *shape))


def _checked(name: str, x: Operand, factor: int, order: str) -> tuple[Variable, int]:
    variable = x if isinstance(x, Variable) else Variable.constant(x)
    if order not in ORDERS:
        raise OperatorError(f"{name}: order {order!r} is not one of {', '.join(ORDERS)}")
    if factor < 1:
        raise OperatorError(f"{name}: factor {factor} must be at least 1")
    if variable.ndim < 3:
        raise ShapeError(
            f"{name}: x of shape {variable.shape} needs axes for channels, height and width"
        )
    return variable, int(factor)


def _shape(x: Variable, channel_last: bool) -> tuple[int, ...]:
    """Return the shape with the channels before height and width."""
    if not channel_last:
        return x.shape
    return (*x.shape[:-3], x.shape[-1], *x.shape[-3:-1])
