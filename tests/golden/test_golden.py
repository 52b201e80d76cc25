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
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.variable import Variable

FILES = sorted((Path(__file__).parent / "data").glob("*.npz"))

NOT_YET = {
    "absolute_error": "?",
    "adaptive_separable_convolution": "?",
    "add_n": "?",
    "affine_grid": "?",
    "average_pooling": "?",
    "batch_cholesky": "?",
    "batch_det": "?",
    "batch_inv": "?",
    "batch_logdet": "?",
    "batch_normalization": "?",
    "binary_connect_affine": "?",
    "binary_connect_convolution": "?",
    "binary_cross_entropy": "?",
    "binary_error": "?",
    "binary_sigmoid": "?",
    "binary_tanh": "?",
    "binary_weight_affine": "?",
    "binary_weight_convolution": "?",
    "bit_shift": "?",
    "categorical_cross_entropy": "?",
    "clip_grad_by_norm": "?",
    "clip_grad_by_value": "?",
    "cumprod": "?",
    "cumsum": "?",
    "deformable_convolution": "?",
    "dequantize_linear": "?",
    "epsilon_insensitive_loss": "?",
    "fixed_point_quantize": "?",
    "fused_batch_normalization": "?",
    "global_average_pooling": "?",
    "group_normalization": "?",
    "gru": "?",
    "huber_loss": "?",
    "inq_affine": "?",
    "inq_convolution": "?",
    "instance_normalization": "?",
    "interpolate": "?",
    "kl_multinomial": "?",
    "layer_normalization": "?",
    "lstm": "?",
    "max": "?",
    "max_pooling": "?",
    "mean": "?",
    "mean_subtraction": "?",
    "min": "?",
    "min_max_quantize": "?",
    "mod2": "?",
    "mul_n": "?",
    "norm": "?",
    "norm_normalization": "?",
    "pack_padded_sequence": "?",
    "pad_packed_sequence": "?",
    "pow2_quantize": "?",
    "prod": "?",
    "prune": "?",
    "quantize_linear": "?",
    "reduce": "?",
    "rnn": "?",
    "roi_align": "?",
    "searchsorted": "?",
    "sigmoid_cross_entropy": "?",
    "softmax_cross_entropy": "?",
    "sort": "?",
    "squared_error": "?",
    "sum": "?",
    "sum_pooling": "?",
    "top_k_data": "?",
    "top_k_grad": "?",
    "unpooling": "?",
    "warp_by_flow": "?",
    "weight_normalization": "?",
    "weight_standardization": "?",
}
"""Recorded functions that NNL does not have, and why."""

SHAPE_FOLLOWS_DATA = {"bool_gather"}
"""Functions that read the mask when they are called, as it decides the shape."""

FORWARD_RTOL = 1e-5
GRADIENT_RTOL = 1e-4


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
    """Compare outputs with nnabla's and the reference's, gradients with nnabla's."""
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
    for position, gradient in enumerate(result.gradients):
        name = f"gin{position}"
        if name in call.arrays and call.meta["need_grad"][position]:
            np.testing.assert_allclose(
                gradient,
                call.arrays[name],
                rtol=GRADIENT_RTOL,
                atol=call.meta["atol_b"],
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
    check(call, run(call, assigned_later))


def test_what_is_not_there_yet_is_said_to_be_missing() -> None:
    there = sorted(name for name in NOT_YET if hasattr(F, name))
    assert not there, f"copy the data of {there} and take them out of NOT_YET"


def test_nothing_is_both_recorded_here_and_said_to_be_missing() -> None:
    assert not {read(file).function for file in FILES} & NOT_YET.keys()
