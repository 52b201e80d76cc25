"""Tests for recurrent layers on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnl_core.gpu import blas
from nnl_core.graph.operator import Array, lookup

Compute = Callable[..., tuple[Array, ...]]

STEPS, BATCH, HIDDEN = 3, 5, 70  # more elements than a block
GATES = {"rnn": 1, "lstm": 4, "gru": 3}


def _arrays(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(1)
    return [rng.normal(scale=0.5, size=shape) for shape in shapes]


def _forward(layer: str) -> list[Array]:
    rows = GATES[layer] * HIDDEN
    shapes: list[tuple[int, ...]] = [(STEPS, BATCH, rows), (BATCH, HIDDEN), (rows, HIDDEN)]
    if layer == "lstm":
        shapes.insert(2, (BATCH, HIDDEN))
    if layer == "gru":
        shapes.append((HIDDEN,))
    return _arrays(*shapes)


def _backward(layer: str) -> list[Array]:
    states, state, rows = (STEPS, BATCH, HIDDEN), (BATCH, HIDDEN), GATES[layer] * HIDDEN
    gates = (STEPS, BATCH, 4 * HIDDEN)
    return {
        "rnn": lambda: _arrays(states, (rows, HIDDEN), states),
        "lstm": lambda: _arrays(gates, states, state, (rows, HIDDEN), states, states, gates),
        "gru": lambda: _arrays(gates, states, state, (rows, HIDDEN), states, gates),
    }[layer]()


def _agrees(compute: Compute, name: str, inputs: list[Array], **attributes: Any) -> None:
    results = compute(name, *inputs, **attributes)
    target = lookup(name).reference(*inputs, **attributes)
    for result, expected in zip(results, target if len(results) > 1 else [target], strict=True):
        expected = expected[0] if isinstance(expected, tuple) else expected
        np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("with_library", [True, False])
@pytest.mark.parametrize("layer", GATES)
def test_layers_of_several_blocks_agree_with_the_reference(
    compute: Compute, layer: str, with_library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_library:
        monkeypatch.setattr(blas, "find", lambda device: None)
    _agrees(compute, f"nnl::{layer}_layer", _forward(layer))


@pytest.mark.parametrize("layer", GATES)
def test_gradients_of_several_blocks_agree_with_the_reference(compute: Compute, layer: str) -> None:
    _agrees(compute, f"nnl::{layer}_layer_gradient", _backward(layer))
