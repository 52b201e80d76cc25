"""Scopes that change how nodes are made: run at once, no gradient, recomputed, half precision."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from nnl_core.errors import ShapeError
from nnl_core.graph.dtypes import as_dtype, is_half


class Modes(threading.local):
    """The scopes in force on this thread."""

    auto_forward = False
    no_grad = False
    recompute = False
    half: np.dtype | None = None  # what mixed precision casts to
    moment: int | None = None  # of nodes made now, where it is not the present


modes = Modes()


@contextmanager
def _switched(name: str, value: bool | int | np.dtype | None) -> Iterator[None]:
    before = getattr(modes, name)
    setattr(modes, name, value)
    try:
        yield
    finally:
        setattr(modes, name, before)


@contextmanager
def auto_forward(auto: bool = True) -> Iterator[None]:
    """Run every node as it is made (dynamic graph) inside a ``with`` block."""
    with _switched("auto_forward", auto):
        yield


@contextmanager
def no_grad(no_grad_: bool = True) -> Iterator[None]:
    """Make nodes through which no gradient flows inside a ``with`` block."""
    with _switched("no_grad", no_grad_):
        yield


@contextmanager
def recompute(recompute_: bool = True) -> Iterator[None]:
    """Free the outputs of nodes made inside, and compute them again for the backward pass.

    Memory for time: only what enters the block is kept. Gradients are the same.
    """
    with _switched("recompute", recompute_):
        yield


@contextmanager
def mixed_precision(dtype: npt.DTypeLike | None = "bfloat16") -> Iterator[None]:
    """Compute products of matrices, and the like, in half precision inside a ``with`` block.

    They cast their operands to ``dtype``, ``"bfloat16"`` or ``"float16"``; sums, statistics,
    losses, exponentials, logarithms and powers cast theirs to ``float32``; everything else follows
    its operands (`defop` says which is which). Parameters stay as they are, and so does
    ``float64``. The gradient needs no scope. ``None`` switches it off inside another block. With
    ``float16``, scale the loss.

    Raises `ShapeError` for another dtype, `BackendError` where ``bfloat16`` is not to be had.
    """
    half = None if dtype is None else as_dtype(dtype)
    if half is not None and not is_half(half):
        raise ShapeError(f"mixed precision is of 'bfloat16' or 'float16', not {half}")
    with _switched("half", half):
        yield


@contextmanager
def at_moment(moment: int) -> Iterator[None]:
    """Make nodes inside a ``with`` block see variables as an earlier node did (gradient rules)."""
    with _switched("moment", moment):
        yield


def set_auto_forward(auto: bool) -> None:
    """Switch dynamic execution on or off for this thread."""
    modes.auto_forward = auto
