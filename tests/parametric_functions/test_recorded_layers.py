"""Layers against what nnabla 1.39 gave for the same inputs and parameters.

``data/layers.npz`` holds, for each call, inputs ``x0`` ..., parameters ``P`` by name (with dots),
the output ``y``, the weights ``g`` of its backward pass, the gradients ``dx0`` ... and ``D`` by
name, and parameters ``A`` after the forward pass where it changes them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F
from nnl_core.graph.variable import Variable

with np.load(Path(__file__).parent / "data" / "layers.npz") as stored:
    RECORDED = {name: stored[name] for name in stored.files}


def recorded(name: str) -> np.ndarray:
    return RECORDED[name.replace("/", ".")]


def of(call: str, kind: str) -> dict[str, np.ndarray]:
    """The recorded arrays of a kind by the names of parameters."""
    start = f"{call}!{kind}!"
    found = {name: array for name, array in RECORDED.items() if name.startswith(start)}
    return {name.removeprefix(start).replace(".", "/"): array for name, array in found.items()}


def masked(src: Variable, tgt: Variable) -> Variable:
    return PF.transformer(
        src, tgt, embed_dim=8, num_heads=4, num_encoder_layers=1, num_decoder_layers=1,
        dim_feedforward=5, dropout=0, activation=F.gelu, add_attn_bias=True, name="m",
        src_additive_mask=recorded("smask"), tgt_additive_mask=recorded("mask"),
        memory_additive_mask=recorded("mmask"), src_key_padding_mask=recorded("kp"),
        tgt_key_padding_mask=recorded("tkp"), memory_key_padding_mask=recorded("kp"),
    )  # fmt: skip


CALLS: dict[str, Callable[..., Variable]] = {
    "trm": masked,
    "enc": lambda x: PF.transformer_encode(x, 8, 2, dim_feedforward=6, dropout=0),
    "dec": lambda x, m: PF.transformer_decode(x, m, 8, 2, dim_feedforward=6, dropout=0),
    "sn0": lambda w: PF.spectral_norm(w, dim=0, itr=2),
    "sn1": lambda w: PF.spectral_norm(w, dim=1, itr=2),
    "sn2": lambda w: PF.spectral_norm(w, dim=2, itr=2),
    "wn0": lambda w: PF.weight_normalization(w, dim=0),
    "wn1": lambda w: PF.weight_normalization(w, dim=1),
    "wn2": lambda w: PF.weight_normalization(w, dim=2),
    "ms": PF.mean_subtraction,
}
NO_DERIVATIVE = {"ms"}
"""nnabla leaves out that an element moves the mean of the others."""


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Any:
    with nnl.parameter_scope("", {}):
        yield request.param


def inputs(call: str) -> list[Variable]:
    arrays = [RECORDED.get(f"{call}!x{position}") for position in range(2)]
    return [Variable.from_numpy_array(a, need_grad=True) for a in arrays if a is not None]


def test_parameters_have_the_names_and_shapes_recorded(call: str) -> None:
    CALLS[call](*inputs(call))
    found = {name: p.shape for name, p in nnl.get_parameters(grad_only=False).items()}
    assert found == {name: array.shape for name, array in of(call, "P").items()}
    assert set(nnl.get_parameters()) == set(of(call, "D"))


def test_outputs_and_gradients_are_those_recorded(call: str) -> None:
    x = inputs(call)
    y = CALLS[call](*x)
    parameters = nnl.get_parameters(grad_only=False)
    for name, array in of(call, "P").items():
        parameters[name].d = array
    y.forward()
    y.backward(recorded(f"{call}!g"))
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(y.d, recorded(f"{call}!y"), **close)
    for name, array in of(call, "A").items():
        np.testing.assert_allclose(parameters[name].d, array, **close)
    if call in NO_DERIVATIVE:
        return
    for position, variable in enumerate(x):
        np.testing.assert_allclose(variable.g, recorded(f"{call}!dx{position}"), **close)
    for name, array in of(call, "D").items():
        np.testing.assert_allclose(parameters[name].g, array, err_msg=name, **close)
