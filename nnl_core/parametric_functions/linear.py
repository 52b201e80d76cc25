"""Affine layers and embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.initializers import RandomSource, UniformInitializer
from nnl_core.parameters import Initial, get_parameter_or_create
from nnl_core.parametric_functions.common import Applied, bias, layer_scope, weight


def affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    apply_w: Applied | None = None,
    apply_b: Applied | None = None,
    name: str | None = None,
) -> Variable:
    """Apply a fully connected layer: all axes from ``base_axis`` on to ``n_outmaps`` outputs.

    Parameters ``affine/W`` of shape (inputs, *outputs) and ``affine/b`` of shape (*outputs).
    """
    outputs = (n_outmaps,) if isinstance(n_outmaps, int) else tuple(n_outmaps)
    inputs = math.prod(inp.shape[base_axis:])
    with layer_scope("affine", name):
        fans = (inputs, math.prod(outputs), ())
        w = weight((inputs, *outputs), w_init, fans, fix_parameters, rng, apply_w)
        b = bias(outputs, b_init, with_bias, fix_parameters, apply_b)
        return F.affine(inp, w, b, base_axis)


def embed(
    inp: Variable,
    n_inputs: int,
    n_features: int,
    initializer: Initial | None = None,
    fix_parameters: bool = False,
    apply_w: Applied | None = None,
    name: str | None = None,
) -> Variable:
    """Look up a row of ``n_features`` for each index, which is below ``n_inputs``.

    Parameter ``embed/W`` of shape (n_inputs, n_features), by default uniform with variance 1.
    """
    if initializer is None:
        initializer = UniformInitializer((-math.sqrt(3), math.sqrt(3)))
    with layer_scope("embed", name):
        w = get_parameter_or_create(
            "W", (n_inputs, n_features), initializer, True, not fix_parameters
        )
        return F.embed(inp, w if apply_w is None else apply_w(w))
