"""What a solver remembers of a parameter, and files of that."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from nnl_core.errors import SolverError
from nnl_core.graph.operator import Array


class SolverState(NamedTuple):
    """What a solver remembers of one parameter."""

    t: int
    """updates so far"""
    pstate: dict[str, Array]
    """arrays of the parameter's shape, by name"""


def write_states(
    path: str | os.PathLike[str], solver: str, states: Mapping[str, SolverState]
) -> None:
    """Save states to a file, whole or not at all; the suffix names the format."""
    from nnl_core.io import StoredParameter, save

    arrays = {}
    for name, state in states.items():
        arrays[f"{name}/t"] = StoredParameter(np.asarray(state.t, np.int64), False)
        for key, array in state.pstate.items():
            arrays[f"{name}/{key}"] = StoredParameter(array, False)
    save(path, arrays, {"solver": solver})


def read_states(path: str | os.PathLike[str], solver: str) -> dict[str, SolverState]:
    """Return what `write_states` wrote of the same solver, by parameter."""
    from nnl_core.io import load

    contents = load(path)
    found = contents.metadata.get("solver")
    if found != solver:
        raise SolverError(
            f"{os.fspath(path)}: holds the states of solver {found!r}, not of {solver!r}"
        )
    states: dict[str, dict[str, Array]] = {}
    for key, entry in contents.parameters.items():
        name, _, state = key.rpartition("/")
        states.setdefault(name, {})[state] = entry.array
    return {name: SolverState(int(arrays.pop("t")), arrays) for name, arrays in states.items()}
