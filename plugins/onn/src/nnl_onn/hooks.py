"""Hooks by which any distribution contributes nodal operators, pools and activations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nnl_core.hooks import provider


class NodalSpec(NamedTuple):
    """A nodal operator. ``target`` is a `nnl_onn.Nodal`."""

    name: str
    target: str
    summary: str


class PoolSpec(NamedTuple):
    """A pool. ``target`` is a `nnl_onn.Pool`."""

    name: str
    target: str
    summary: str


class ActivationSpec(NamedTuple):
    """An activation. ``target`` is a function of a variable that returns one of the same shape."""

    name: str
    target: str
    summary: str


class OnnHooks:
    """What a plugin may contribute to operational layers."""

    @provider("nodal operator", NodalSpec)
    def nnl_onn_nodal_operators(self) -> Iterable[NodalSpec]:
        """Contribute nodal operators. Once a plugin (A)."""
        return ()

    @provider("pool", PoolSpec)
    def nnl_onn_pools(self) -> Iterable[PoolSpec]:
        """Contribute pools. Once a plugin (A)."""
        return ()

    @provider("activation", ActivationSpec)
    def nnl_onn_activations(self) -> Iterable[ActivationSpec]:
        """Contribute activations of operator sets. Once a plugin (A)."""
        return ()
