"""What parametric functions share: their scope, weights and biases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from nnl_core.graph.variable import Variable
from nnl_core.initializers import (
    ConstantInitializer,
    RandomSource,
    UniformInitializer,
    calc_uniform_lim_glorot,
)
from nnl_core.parameters import Initial, get_parameter_or_create, parameter_scope

Applied: TypeAlias = Callable[[Variable], Variable]


@contextmanager
def layer_scope(layer: str, name: str | None) -> Iterator[None]:
    """Enter the scope of a layer's parameters: ``layer``, under ``name`` where one is given."""
    with parameter_scope(layer if name is None else f"{name}/{layer}"):
        yield


def weight(
    shape: Sequence[int],
    init: Initial | None,
    fans: tuple[int, int, Sequence[int]],
    fix_parameters: bool,
    rng: RandomSource | None,
    apply: Applied | None = None,
) -> Variable:
    """Return the parameter ``W``, by default Glorot-uniform for ``fans``: maps in, out, kernel."""
    if init is None:
        init = UniformInitializer(calc_uniform_lim_glorot(*fans), rng)
    parameter = get_parameter_or_create("W", shape, init, True, not fix_parameters)
    return parameter if apply is None else apply(parameter)


def bias(
    shape: Sequence[int],
    init: Initial | None,
    with_bias: bool,
    fix_parameters: bool,
    apply: Applied | None = None,
) -> Variable | None:
    """Return the parameter ``b``, by default zero, or ``None`` without bias."""
    if not with_bias:
        return None
    if init is None:
        init = ConstantInitializer()
    parameter = get_parameter_or_create("b", shape, init, True, not fix_parameters)
    return parameter if apply is None else apply(parameter)
