"""Solvers give what nnabla's gave, update by update."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nnl_core import S
from nnl_core.parameters import Parameter

DATA = Path(__file__).parent / "data"
with np.load(DATA / "arguments" / "arguments.npz") as archive:
    ARGUMENTS = {key: archive[key] for key in archive.files}
CASES = list(enumerate(json.loads(str(ARGUMENTS["cases"]))))


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


@pytest.mark.parametrize(("number", "case"), CASES, ids=[f"{i}-{case[0]}" for i, case in CASES])
def test_all_arguments_schedules_and_decays_do_what_was_recorded(number, case):
    name, arguments = case
    parameters, gradients = ARGUMENTS[f"{number}/p"], ARGUMENTS[f"{number}/g"]
    solver = getattr(S, name)(**arguments)
    parameter = Parameter((5,))
    parameter.d = parameters[0]
    solver.set_parameters({"p": parameter})
    rate = solver.learning_rate()
    for step, gradient in enumerate(gradients):
        parameter.g = gradient
        if step % 2:
            solver.weight_decay(0.05)
        solver.set_learning_rate(rate * (1 - step / 10))
        solver.update()
        np.testing.assert_allclose(parameter.d, parameters[step + 1], rtol=2e-6, atol=2e-7)
    for label, array in solver.get_states()["p"].pstate.items():
        expected = ARGUMENTS[f"{number}/state/{label}"]
        np.testing.assert_allclose(array, expected, rtol=2e-6, atol=2e-7)
