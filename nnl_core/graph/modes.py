"""Scopes that change how nodes are made: dynamic execution, no gradient, recomputation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Modes(threading.local):
    """The scopes in force on this thread."""

    auto_forward = False
    no_grad = False
    recompute = False
    moment: int | None = None  # of nodes made now, where it is not the present


modes = Modes()


@contextmanager
def _switched(name: str, value: bool | int | None) -> Iterator[None]:
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
def at_moment(moment: int) -> Iterator[None]:
    """Make nodes inside a ``with`` block see variables as an earlier node did (gradient rules)."""
    with _switched("moment", moment):
        yield


def set_auto_forward(auto: bool) -> None:
    """Switch dynamic execution on or off for this thread."""
    modes.auto_forward = auto
