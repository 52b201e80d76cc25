"""One seed for everything random: initial values, shuffling, dropout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nnl_core.errors import ConfigurationError
from nnl_core.graph.variable import Variable

__all__ = ["counter", "get_state", "prng", "seed", "set_state", "start_of_node"]

DEFAULT_SEED = 313
_BITS = 2**64 - 1

counter = Variable((), dtype=np.uint64)
"""Counts the runs of programs that draw random numbers; each run draws anew by it."""
counter.name = "random/counter"

prng = np.random.Generator(np.random.PCG64(DEFAULT_SEED))
"""What draws on the host come from: initialisers, shuffling. `seed` resets it in place."""

_seed = DEFAULT_SEED
_nodes = 0  # random nodes made since the seed was set


def seed(value: int) -> None:
    """Start all random sequences again from a whole number of at least 0.

    The same seed, before the same code, gives the same numbers, bit for bit.
    """
    global _seed, _nodes
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ConfigurationError(f"seed {value!r} must be a whole number of at least 0")
    _seed, _nodes = int(value), 0
    counter.d = np.uint64(0)
    prng.bit_generator.state = np.random.PCG64(_seed).state


def get_state() -> dict[str, Any]:
    """Return what `set_state` needs to go on from here, as numbers and texts that JSON can hold."""
    return {
        "seed": _seed,
        "nodes": _nodes,
        "counter": int(counter.d),
        "prng": prng.bit_generator.state,
    }


def set_state(state: Mapping[str, Any]) -> None:
    """Go on from where `get_state` was called.

    Raises `ConfigurationError`, and changes nothing, where the state is none of its.
    """
    global _seed, _nodes
    before = prng.bit_generator.state
    try:
        restored = int(state["seed"]), int(state["nodes"]), np.uint64(state["counter"])
        prng.bit_generator.state = state["prng"]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        prng.bit_generator.state = before
        raise ConfigurationError(
            f"no random state ({type(error).__name__}: {error}): give what get_state returned"
        ) from error
    _seed, _nodes, counter.d = restored


def start_of_node(user_seed: int | None = None) -> Variable:
    """Return where the draws of a new random node begin: a seed, and the counter's value there.

    Without a seed of the user's it is the next of the sequence that the global seed begins. With
    one, draws begin anew with each node.
    """
    global _nodes
    if user_seed is None:
        _nodes += 1
        start = _mix(_mix(_seed & _BITS) + _nodes * 0x9E3779B97F4A7C15), 0
    else:
        start = user_seed & _BITS, int(counter.d)
    return Variable.from_numpy_array(np.array(start, np.uint64))


def _mix(value: int) -> int:
    """Scramble 64 bits, so that neighbours share none (the last step of SplitMix64)."""
    value &= _BITS
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _BITS
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _BITS
    return value ^ value >> 31
