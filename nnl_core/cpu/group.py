"""A fused group of elementwise instructions on NumPy: block by block, to stay in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnl_core.cpu.calls import select_call
from nnl_core.graph.ir import ABSENT, Instruction
from nnl_core.graph.spec import Spec

BLOCK = 1 << 15  # elements of a block: a few float32 operands fit a 2 MiB second-level cache

Slots = list[Any]


def compile_group(
    group: Instruction, specs: list[Spec]
) -> tuple[Callable[[Slots], None], dict[int, Spec]]:
    """Return a step that runs the members on one block of rows after another.

    Values that stay inside the group exist one block at a time. What is returned with the step says
    what scratch memory it must find in their slots.
    """
    shape = specs[group.members[0].outputs[0]].shape
    rows = shape[0] if shape else 1
    row_size = max(1, int(np.prod(shape[1:], dtype=np.int64)))
    block_rows = min(rows, max(1, BLOCK // row_size))
    inside = [v for m in group.members for v in m.outputs if v not in group.outputs]
    scratch = {value: _first_rows(specs[value], block_rows) for value in inside}
    calls = [_call(member, specs) for member in group.members]
    sliced = [
        value
        for value in (*group.inputs, *group.outputs)
        if specs[value].shape
        and len(specs[value].shape) == len(shape)
        and specs[value].shape[0] == rows
    ]
    if rows <= block_rows:

        def whole(slots: Slots) -> None:
            for call in calls:
                call(slots)

        return whole, scratch

    def blocks(slots: Slots) -> None:
        full = [slots[value] for value in sliced]
        memory = [(value, slots[value]) for value in scratch]
        for start in range(0, rows, block_rows):
            stop = min(rows, start + block_rows)
            for value, array in zip(sliced, full, strict=True):
                slots[value] = array[start:stop]
            for value, array in memory:
                slots[value] = array[: stop - start]
            for call in calls:
                call(slots)
        for value, array in zip(sliced, full, strict=True):
            slots[value] = array

    return blocks, scratch


def _first_rows(spec: Spec, rows: int) -> Spec:
    return spec.with_shape((rows, *spec.shape[1:]) if spec.shape else ())


def _call(member: Instruction, specs: list[Spec]) -> Callable[[Slots], None]:
    operator = member.operator
    assert operator is not None
    inputs, output, attributes = member.inputs, member.outputs[0], member.attributes
    given = [None if v == ABSENT else specs[v] for v in inputs]
    bound = select_call(operator, given, attributes)
    if len(inputs) == 2 and not attributes:
        left, right = inputs

        def binary(slots: Slots) -> None:
            bound(slots[left], slots[right], out=slots[output])

        return binary

    def general(slots: Slots) -> None:
        bound(*[slots[value] for value in inputs], out=slots[output], **attributes)

    return general
