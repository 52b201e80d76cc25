"""Every function against recorded calls of nnabla and of an independent NumPy reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core.graph.execute import forward_all
from nnl_core.graph.modes import auto_forward, modes
from nnl_core.graph.variable import Variable

FILES = sorted((Path(__file__).parent / "data").glob("*.npz"))

SHAPE_FOLLOWS_DATA = {"bool_gather", "pack_padded_sequence", "pad_packed_sequence"}
"""Functions that read a mask or lengths when they are called, as these decide the shape."""

DTYPE_DECIDES = {"bit_shift", "mod2"}
"""Functions that treat integers otherwise than floating numbers, or take only them."""

WRONG_GRADIENT = {
    "mean_subtraction": "nnabla leaves out that an element moves the mean of the others",
    "sort": "nnabla takes the gradient at the sorted positions, and must put it there; it also has "
    "one where only the positions are returned",
}
"""Functions whose gradient in nnabla is not the derivative; NNL's is held to differences."""

FORWARD_RTOL = 1e-5
GRADIENT_RTOL = 1e-4
GRADIENT_ATOL = 1e-5  # the tests' own go up to 0.03, as they compare with differences


class Call(NamedTuple):
    """One recorded call."""

    function: str
    inputs: list[np.ndarray | None]
    arguments: list[Any]
    keywords: dict[str, Any]
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]


class Result(NamedTuple):
    """What a call gives: outputs, and the gradient of each input or ``None``."""

    outputs: list[np.ndarray]
    gradients: list[np.ndarray | None]


def read(file: Path) -> Call:
    with np.load(file) as stored:
        arrays = {name: stored[name] for name in stored.files if name != "meta"}
        meta = json.loads(str(stored["meta"]))
    return Call(
        function=meta["F"],
        inputs=[arrays.get(f"in{position}") for position in range(meta["n_in"])],
        arguments=[decoded(value) for value in meta["args"]],
        keywords={name: decoded(value) for name, value in meta["kwargs"].items()},
        meta=meta,
        arrays=arrays,
    )


def decoded(value: Any) -> Any:
    if isinstance(value, dict) and "type" in value:
        return np.dtype(value["type"]).type
    if isinstance(value, dict) and "ndarray" in value:
        return np.array(value["ndarray"], value["dtype"])
    return value


def recorded(call: Call, name: str) -> list[np.ndarray]:
    found = [call.arrays.get(f"{name}{position}") for position in range(len(call.arrays))]
    return [array for array in found if array is not None]


def given(array: np.ndarray, need_grad: bool) -> Variable:
    """Give an input as it was recorded."""
    return Variable.from_numpy_array(array, need_grad=need_grad)


def run(call: Call, make: Callable[[np.ndarray, bool], Variable] = given) -> Result:
    """Make the call, its outputs and all gradients, the weights being those recorded."""
    variables = [
        None if array is None else make(array, bool(need_grad))
        for array, need_grad in zip(call.inputs, call.meta["need_grad"], strict=False)
    ]
    result = getattr(F, call.function)(*variables, *call.arguments, **call.keywords)
    outputs = [result] if isinstance(result, Variable) else list(result)
    for variable, array in zip(variables, call.inputs, strict=True):
        if variable is not None and make is assigned_later:
            variable.d = array
    if not modes.auto_forward:  # there, everything was computed as it was built
        forward_all(outputs)
    values = [np.array(output.d) for output in outputs]
    for output, weight in zip(outputs, recorded(call, "gout"), strict=False):
        if output.need_grad:
            output.backward(weight)
    return Result(values, [None if v is None else np.array(v.g) for v in variables])


def assigned_later(array: np.ndarray, need_grad: bool) -> Variable:
    """Give an input as scripts do that build the network before they have data."""
    return Variable(array.shape, need_grad=need_grad)


def check(call: Call, result: Result) -> None:
    """Compare with what was recorded."""
    expected = recorded(call, "out")
    assert len(result.outputs) >= len(expected)
    for position, value in enumerate(result.outputs[: len(expected)]):
        for name in (f"out{position}", f"ref{position}"):
            np.testing.assert_allclose(
                value,
                call.arrays[name],
                rtol=FORWARD_RTOL,
                atol=call.meta["atol_f"],
                err_msg=name,
            )
    if call.function not in WRONG_GRADIENT:
        check_gradients(call, result)


def check_gradients(call: Call, result: Result) -> None:
    """Compare gradients with nnabla's."""
    for position, gradient in enumerate(result.gradients):
        name = f"gin{position}"
        if name in call.arrays and call.meta["need_grad"][position]:
            np.testing.assert_allclose(
                gradient,
                call.arrays[name],
                rtol=GRADIENT_RTOL,
                atol=min(call.meta["atol_b"], GRADIENT_ATOL),
                err_msg=name,
            )


@pytest.fixture(params=FILES, ids=[file.stem for file in FILES])
def call(request: pytest.FixtureRequest) -> Call:
    return read(request.param)


def test_outputs_and_gradients_are_those_recorded(call: Call) -> None:
    check(call, run(call))


def test_dynamic_graph_gives_the_numbers_of_the_static_one(call: Call) -> None:
    static = run(call)
    with auto_forward():
        dynamic = run(call)
    for one, other in zip(static.outputs, dynamic.outputs, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(static.gradients, dynamic.gradients, strict=True):
        if one is not None:
            np.testing.assert_array_equal(one, other)


def test_inputs_may_be_assigned_after_the_graph_is_built(call: Call) -> None:
    if call.function in SHAPE_FOLLOWS_DATA:
        with pytest.raises(Exception, match="build the graph again"):
            run(call, assigned_later)
        return
    if call.function not in DTYPE_DECIDES:
        check(call, run(call, assigned_later))


@pytest.mark.parametrize("function", WRONG_GRADIENT)
def test_a_gradient_that_is_said_to_be_wrong_differs(function: str) -> None:
    calls = [read(file) for file in FILES if file.stem.rpartition("_")[0] == function]
    with pytest.raises(AssertionError, match="Not equal"):
        for call in calls:
            check_gradients(call, run(call))
