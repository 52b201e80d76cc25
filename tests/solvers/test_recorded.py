"""Solvers give what nnabla's gave, update by update."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnl_core import S
from nnl_core.parameters import Parameter

DATA = Path(__file__).parent / "data"
ARGUMENTS = {"default": {}, "lr": {"lr": 0.05}}


@pytest.mark.parametrize("path", sorted(DATA.glob("*.npz")), ids=lambda path: path.stem)
def test_parameters_and_states_are_those_recorded(path):
    name, _, variant = path.stem.partition("_")
    kind = getattr(S, name)
    solver = kind() if variant == "default" else kind(0.05)
    with np.load(path) as recorded:
        parameters = {}
        for key in "wb":
            parameters[key] = Parameter(recorded[f"p0/{key}"].shape)
            parameters[key].d = recorded[f"p0/{key}"]
        solver.set_parameters(parameters)
        for step in range(5):
            for key, parameter in parameters.items():
                parameter.g = recorded[f"g{step}/{key}"]
            if step % 2:
                solver.weight_decay(0.01)
            solver.update()
            for key, parameter in parameters.items():
                expected = recorded[f"p{step + 1}/{key}"]
                np.testing.assert_allclose(parameter.d, expected, rtol=2e-6, atol=2e-8)
        for key, state in solver.get_states().items():
            assert state.t == recorded[f"t/{key}"]
            for label, array in state.pstate.items():
                expected = recorded[f"state/{key}/{label}"]
                np.testing.assert_allclose(array, expected, rtol=2e-6, atol=1e-9)
