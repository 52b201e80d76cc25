"""Bring a graph to one form: no operation that does nothing, constants computed beforehand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.ir import ABSENT, FOLDABLE, Graph, Instruction
from nnl_core.graph.spec import Spec, promote

Rule = Callable[[Instruction, list[Spec]], bool]


def _same_spec(instruction: Instruction, specs: list[Spec]) -> bool:
    return specs[instruction.inputs[0]] == specs[instruction.outputs[0]]


def _neutral(value: float) -> Rule:
    def rule(instruction: Instruction, specs: list[Spec]) -> bool:
        return _same_spec(instruction, specs) and instruction.attributes["val"] == value

    return rule


def _ordered_axes(instruction: Instruction, specs: list[Spec]) -> bool:
    axes = instruction.attributes["axes"]
    return tuple(axes) == tuple(range(len(axes)))


DOES_NOTHING: dict[str, Rule] = {
    "nnl::identity": lambda instruction, specs: True,
    "nnl::cast": _same_spec,
    "nnl::reshape": _same_spec,
    "nnl::broadcast_to": _same_spec,
    "nnl::sum_to": _same_spec,
    "nnl::transpose": _ordered_axes,
    "nnl::add_scalar": _neutral(0),  # though -0.0 + 0 is 0.0: equal numbers
    "nnl::mul_scalar": _neutral(1),
    "nnl::pow_scalar": _neutral(1),
}
"""Operators that return their input unchanged, and when."""

COMPOSES = {"nnl::reshape", "nnl::broadcast_to"}
"""Operators that, applied twice, equal the second alone."""


def canonicalize(graph: Graph) -> Graph:
    """Drop operations that do nothing, shorten chains of reshapes and casts, fold constants."""
    replaced: dict[int, int] = {}
    producer: dict[int, Instruction] = {}
    constants = dict(graph.constants)
    kept: list[Instruction] = []
    for old in graph.instructions:
        inputs = tuple(replaced.get(value, value) for value in old.inputs)
        operator = old.operator
        name = operator.name if operator is not None else ""
        source = producer.get(inputs[0]) if inputs else None
        if (
            name in COMPOSES
            and source is not None
            and source.operator is operator
            and source.epoch == old.epoch
        ):
            inputs = (source.inputs[0], *inputs[1:])
        if name == "nnl::cast" and source is not None and _casts_back(old, source, graph.specs):
            replaced[old.outputs[0]] = source.inputs[0]
            continue
        new = Instruction(operator, inputs, old.outputs, old.attributes, old.source, old.epoch)
        rule = DOES_NOTHING.get(name)
        if rule is not None and rule(new, graph.specs):
            replaced[new.outputs[0]] = inputs[0]
            continue
        if _foldable(new, constants, graph.specs):
            assert operator is not None
            with np.errstate(all="ignore"):
                given = [None if value == ABSENT else constants[value] for value in inputs]
                results = operator.evaluate(given, new.attributes)
            for value, array in zip(new.outputs, results, strict=True):
                constants[value] = np.asarray(array, graph.specs[value].dtype)
            continue
        kept.append(new)
        for value in new.outputs:
            producer[value] = new
    result_graph = graph.rewrite(kept, replaced)
    result_graph.constants = constants
    return result_graph


def _casts_back(instruction: Instruction, source: Instruction, specs: list[Spec]) -> bool:
    """Whether a value was cast to a dtype that holds it exactly, and is cast back."""
    if source.operator is not instruction.operator or source.epoch != instruction.epoch:
        return False
    first, between = specs[source.inputs[0]].dtype, specs[source.outputs[0]].dtype
    last = specs[instruction.outputs[0]].dtype
    return first == last and promote(first, between) == between and is_floating(first)


def _foldable(
    instruction: Instruction, constants: dict[int, np.ndarray], specs: list[Spec]
) -> bool:
    return all(value == ABSENT or value in constants for value in instruction.inputs) and all(
        specs[value].size <= FOLDABLE for value in instruction.outputs
    )
