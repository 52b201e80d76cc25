"""Fold batch normalisation by steady statistics into the convolution or product before it.

``(W x + b - mean) / sqrt(variance + eps) * gamma + beta`` is ``W' x + b'``. The new weight and bias
follow from parameters alone, so a program computes them once (`prologue`), by the operator
`normalize` itself.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.operator import Operator, lookup
from nnl_core.graph.spec import Spec


class _Linear(NamedTuple):
    """Where the channels of an operator's result are: axes of its weight, and of its output."""

    weight: int
    output: int
    takes_bias: bool


LINEAR = {
    "nnl::convolution": _Linear(0, 1, True),
    "nnl::convolution_data_gradient": _Linear(1, 1, False),
    "nnl::affine": _Linear(1, -1, True),
}


def fold(graph: Graph) -> Graph:
    """Return the graph with normalisations folded, and its groups taken apart.

    Only where nothing else reads what is normalised, and nobody asked for it.
    """
    if graph.observed or not graph.steady:
        return graph
    folder = _Folder(graph)
    for instruction in graph.instructions:
        for member in instruction.members or (instruction,):
            folder.add(member)
    return folder.folded() if folder.changes else graph


class _Folder:
    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.graph = graph.rewrite(())
        self.graph.specs = list(graph.specs)
        self.graph.constants = dict(graph.constants)
        self.steady = {*graph.constants, *(graph.leaves[position] for position in graph.steady)}
        self.asked = set(graph.outputs)
        self.reads = Counter(
            value
            for instruction in graph.instructions
            for member in instruction.members or (instruction,)
            for value in member.inputs
        )
        self.kept: list[Instruction | None] = []
        self.makers: dict[int, int] = {}  # value -> position of the linear operator that makes it
        self.changes = 0

    def folded(self) -> Graph:
        """Return the graph with what was added."""
        self.graph.instructions = [one for one in self.kept if one is not None]
        return self.graph

    def add(self, instruction: Instruction) -> None:
        """Append an instruction, folded where that can be."""
        operator = instruction.operator
        if all(value == ABSENT or value in self.steady for value in instruction.inputs):
            self.steady.update(instruction.outputs)
        if operator is not None and operator.name == "nnl::normalize":
            position = self.makers.get(instruction.inputs[0])
            linear = None if position is None else self.kept[position]
            if linear is not None and self._fits(linear, instruction):
                assert position is not None
                self.kept[position] = None
                self._fold(linear, instruction)
                self.changes += 1
                return
        elif operator is not None and operator.name in LINEAR:
            self.makers[instruction.outputs[0]] = len(self.kept)
        self.kept.append(instruction)

    def _fits(self, linear: Instruction, normalize: Instruction) -> bool:
        assert linear.operator is not None
        specs = self.graph.specs
        weight, result = specs[linear.inputs[1]], specs[linear.outputs[0]]
        axes = LINEAR[linear.operator.name]
        statistics = normalize.inputs[1:]
        parameters = [value for value in (*linear.inputs[1:], *statistics) if value != ABSENT]
        return (
            self.reads[linear.outputs[0]] == 1
            and linear.outputs[0] not in self.asked
            and linear.epoch == normalize.epoch
            and all(value in self.steady for value in parameters)
            and result.dtype.name in ("float32", "float64")
            and all(specs[value].dtype == result.dtype for value in parameters)
            and specs[normalize.outputs[0]] == result
            and (axes.takes_bias or linear.attributes["group"] == 1)
            and weight.shape[axes.weight :][:1] == (_channels(result, axes),)
            and (linear.operator.name != "nnl::affine" or weight.ndim == 2)
            and all(_is_of_channels(specs[value], result, axes) for value in statistics)
        )

    def _fold(self, linear: Instruction, normalize: Instruction) -> None:
        """Append the new weight and bias, and the operator with these."""
        assert linear.operator is not None
        axes = LINEAR[linear.operator.name]
        specs = self.graph.specs
        result = specs[linear.outputs[0]]
        channels = _channels(result, axes)
        along = [1] * result.ndim
        along[axes.output] = channels
        x, weight, *others = linear.inputs
        mean, variance, gamma, beta = normalize.inputs[1:]
        zero = self.graph.add_constant(np.zeros((), result.dtype))
        self.steady.add(zero)
        shape = [1] * specs[weight].ndim
        shape[axes.weight] = channels
        spread, gain = (self._shaped(normalize, value, shape) for value in (variance, gamma))
        scaled = self._apply(normalize, (weight, zero, spread, gain, zero), specs[weight])
        given = [value for value in others if value != ABSENT]
        if given:
            bias = self._shaped(normalize, given[0], along)
        else:
            bias = self.graph.add_constant(np.zeros(along, result.dtype))
        shifted = self._apply(normalize, (bias, mean, variance, gamma, beta), specs[bias])
        (output,) = normalize.outputs
        if axes.takes_bias:
            inputs = (x, scaled, self._shaped(normalize, shifted, [channels]))
            self._append(linear, linear.operator, inputs, output, linear.attributes)
        else:
            product = self.graph.new_value(result)
            self._append(linear, linear.operator, (x, scaled), product, linear.attributes)
            self._append(normalize, lookup("nnl::add"), (product, shifted), output, {})

    def _shaped(self, like: Instruction, value: int, shape: list[int]) -> int:
        """Return a value in another shape, or as a single number where it is one."""
        spec = self.graph.specs[value]
        wanted = () if spec.size == 1 and spec.size < np.prod(shape) else tuple(shape)
        if spec.shape == wanted:
            return value
        result = self.graph.new_value(spec.with_shape(wanted))
        self._append(like, lookup("nnl::reshape"), (value,), result, {"shape": wanted})
        return result

    def _apply(self, normalize: Instruction, inputs: tuple[int, ...], spec: Spec) -> int:
        assert normalize.operator is not None
        result = self.graph.new_value(spec)
        self._append(normalize, normalize.operator, inputs, result, normalize.attributes)
        return result

    def _append(
        self,
        like: Instruction,
        operator: Operator,
        inputs: tuple[int, ...],
        output: int,
        attributes: dict[str, Any],
    ) -> None:
        self.kept.append(
            Instruction(operator, inputs, (output,), attributes, like.source, like.epoch)
        )


def _channels(result: Spec, axes: _Linear) -> int:
    return result.shape[axes.output]


def _is_of_channels(spec: Spec, result: Spec, axes: _Linear) -> bool:
    """Whether a statistic is one number, or one for each channel."""
    if spec.size == 1:
        return True
    shape = (1,) * (result.ndim - spec.ndim) + spec.shape
    channels = _channels(result, axes)
    return spec.size == channels == shape[axes.output]
