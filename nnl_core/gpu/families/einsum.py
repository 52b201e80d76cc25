"""Einstein sums: two operands at a time, by products of matrices where there are any."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nnl_core.gpu.families.movement import copy_strided
from nnl_core.gpu.families.products import Matrices, Multiplication, Plan, multiply
from nnl_core.gpu.kernel import (
    HALF_TYPES,
    Address,
    Argument,
    Call,
    Emission,
    Launch,
    c_type,
    emitter,
    given,
    kernel,
    over,
    result,
)
from nnl_core.gpu.strides import columns_of, numbers, over_rows, room_for, strides_of
from nnl_core.operators.einsum import Contraction, letter_sizes, plan_products

FILE = "einsum.cu"
SMALL = 64  # multiply-adds of a member of a stack that are not worth a product of matrices
MOST_BLOCKS = (1 << 31) - 1


class Value(NamedTuple):
    """An operand or a result between: where it is, and the stride of each letter."""

    address: Address
    strides: dict[str, int]


class Sums:
    """Puts the steps of one equation together."""

    def __init__(self, call: Call, sizes: dict[str, int], dtype: np.dtype) -> None:
        self.call, self.sizes, self.dtype = call, sizes, dtype
        self.plan = Plan()

    def count(self, letters: str) -> int:
        """Return how many indices some letters have."""
        return math.prod(self.sizes[letter] for letter in letters)

    def contiguous(self, letters: str) -> dict[str, int]:
        """Return the strides of an array without gaps."""
        lengths = [self.sizes[letter] for letter in letters]
        return dict(zip(letters, strides_of(lengths), strict=True))

    def room(self, letters: str) -> Address:
        """Return memory for an array of some letters."""
        return self.plan.scratch(self.count(letters) * self.dtype.itemsize)

    def convert(self, source: Address, count: int, before: np.dtype, after: np.dtype) -> Address:
        """Copy to another dtype."""
        target = self.plan.scratch(count * after.itemsize)
        self.plan.add(converted(source, target, count, before, after))
        return target

    def arranged(self, value: Value, letters: str, target: Address | None = None) -> Address:
        """Return where a value lies without gaps, its letters in this order."""
        if target is None:
            if is_same(value.strides, self.contiguous(letters), letters, self.sizes):
                return value.address
            target = self.room(letters)
        shape = [self.sizes[letter] for letter in letters]
        strides = [value.strides[letter] for letter in letters]
        source = value.address
        self.plan.add(copy_strided(self.dtype.itemsize, shape, strides, 0, source, target))
        return target

    def summed(self, value: Value, kept: str) -> Value:
        """Sum over the letters that nobody else has."""
        others = "".join(letter for letter in value.strides if letter not in kept)
        target = self.room(kept)
        room = room_for(max(len(kept), len(others)))
        text = kernel(FILE, "sum_elements", T=c_type(self.dtype), AXES=room)
        where = [one for letters in (kept, others) for one in self._letters(letters, room, value)]
        terms = self.count(others)
        threads = 32 if terms <= 64 else 256
        where = [value.address, target, *where, *numbers(terms)]
        self.plan.add(Launch(text, (self.count(kept), 1, 1), (threads, 1, 1), tuple(where)))
        return Value(target, self.contiguous(kept))

    def _letters(
        self, letters: str, room: int, left: Value, right: Value | None = None
    ) -> list[Argument]:
        """Return what a kernel sees as its ``Letters``."""
        first, second = left.strides, (right or left).strides
        axes = [(self.sizes[one], first.get(one, 0), second.get(one, 0)) for one in letters]
        columns = columns_of(axes, room) if axes else numbers(*[0] * 3 * room)
        return [*numbers(len(letters)), *columns]

    def product(self, left: Value, right: Value, letters: str, target: Address) -> Value:
        """Multiply two values; the result has the letters shared, of the left, of the right."""
        both = [one for one in left.strides if one in right.strides]
        shared = "".join(one for one in letters if one in both)
        inner = "".join(one for one in both if one not in letters)
        rows = "".join(one for one in letters if one not in right.strides)
        columns = "".join(one for one in letters if one not in left.strides)
        lengths = [self.count(one) for one in (shared, rows, columns, inner)]
        stack, m, n, k = lengths
        small = k <= 1 or (stack > 1 and m * n * k <= SMALL)
        if small or not self._by_matrices(left, right, (shared, rows, columns, inner), target):
            room = room_for(max(len(letters), len(inner), 1))
            text = kernel(FILE, "sum_products", T=c_type(self.dtype), AXES=room)
            kept = self._letters(letters, room, left, right)
            where = (left.address, right.address, target, *kept)
            where += (*self._letters(inner, room, left, right), *numbers(k))
            self.plan.add(over(text, self.count(letters), where))
        return Value(target, self.contiguous(letters))

    def _by_matrices(
        self, left: Value, right: Value, parts: tuple[str, str, str, str], target: Address
    ) -> bool:
        shared, rows, columns, inner = parts
        stack, m, n, k = (self.count(letters) for letters in parts)
        product = Multiplication(
            self.dtype.name,
            m,
            n,
            k,
            self._matrices(left, shared, rows, inner),
            self._matrices(right, shared, inner, columns),
            target,
            (stack,) if shared else (),
            result_dtype=self.dtype.name,
        )
        return multiply(self.call.device, self.plan, product)

    def _matrices(self, value: Value, shared: str, rows: str, columns: str) -> Matrices:
        strides = (self.count(rows + columns),) if shared else ()
        swapped = shared + columns + rows
        if is_same(value.strides, self.contiguous(swapped), swapped, self.sizes):
            return Matrices(value.address, True, strides)
        return Matrices(self.arranged(value, shared + rows + columns), False, strides)


def is_same(
    strides: dict[str, int], others: dict[str, int], letters: str, sizes: dict[str, int]
) -> bool:
    """Whether letters that have more than one index have equal strides."""
    return all(strides[one] == others[one] for one in letters if sizes[one] != 1)


def converted(
    source: Address, target: Address, count: int, before: np.dtype, after: np.dtype
) -> Launch:
    """Copy to another dtype."""
    text = kernel("movement.cu", "converted", S=c_type(before), T=c_type(after))
    return over_rows(text, 1, count, (source, target, *numbers(count, 0)))


@emitter("nnl::einsum")
def einsum(call: Call) -> Emission | None:
    """Take diagonals by strides, sum what one operand has alone, and multiply in pairs.

    Half precision is computed in ``float32`` where results between would be rounded.
    """
    xs = [x for x in call.inputs if x is not None]
    y = call.outputs[0]
    shapes = tuple(x.shape for x in xs)
    plan = plan_products(call.attributes["equation"], shapes)
    sizes = letter_sizes(plan.terms, shapes)
    alone = [
        {one for one, n in zip(term, shape, strict=True) if n == sizes[one]} - set(kept)
        for term, shape, kept in zip(plan.terms.operands, shapes, plan.reduced, strict=True)
    ]
    dtype = y.dtype
    if dtype.name in HALF_TYPES and (len(plan.contractions) > 1 or any(alone)):
        dtype = np.dtype(np.float32)
    sums = Sums(call, sizes, dtype)
    if not y.size:
        return sums.plan.emission()
    if any(alone) and max(map(sums.count, plan.reduced)) > MOST_BLOCKS:
        return None
    values: list[Value] = []
    for number, (x, term, kept) in enumerate(
        zip(xs, plan.terms.operands, plan.reduced, strict=True)
    ):
        address = given(number)
        if x.dtype != dtype:
            address = sums.convert(address, x.size, x.dtype, dtype)
        strides: dict[str, int] = {}
        for letter, length, stride in zip(term, x.shape, strides_of(x.shape), strict=True):
            if length == sizes[letter]:
                strides[letter] = strides.get(letter, 0) + stride
        value = Value(address, strides)
        values.append(sums.summed(value, kept) if alone[number] else value)
    last = len(plan.contractions) - 1
    step: Contraction
    for number, step in enumerate(plan.contractions):
        final = number == last and step.result == plan.terms.output and dtype == y.dtype
        target = result() if final else sums.room(step.result)
        values.append(sums.product(values[step.left], values[step.right], step.result, target))
    output, found = plan.terms.output, values[-1]
    if dtype == y.dtype:
        if found.address != result():
            sums.arranged(found, output, result())
    else:
        source = sums.arranged(found, output)
        sums.plan.add(converted(source, result(), y.size, dtype, y.dtype))
    return sums.plan.emission()
