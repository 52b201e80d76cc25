"""Sums of products by Einstein's summation convention: einsum.

A letter names an axis. Letters that the result lacks are summed over, a letter twice in one operand
takes a diagonal, and ``...`` stands for axes that broadcast.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, promote
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import broadcast_to, cast
from nnl_core.operators.dtypes import sum_dtype, wide

__all__ = ["einsum"]

Shape = tuple[int, ...]


# Equations ---------------------------------------------------------------------------------------


class Terms(NamedTuple):
    """An equation with one letter per axis: ellipses spelled out, the result explicit."""

    operands: tuple[str, ...]
    output: str

    @property
    def equation(self) -> str:
        """What ``numpy.einsum`` takes."""
        return f"{','.join(self.operands)}->{self.output}"


@lru_cache(maxsize=512)
def parse_equation(equation: str, ranks: tuple[int, ...]) -> Terms:
    """Spell out an equation for operands of these ranks; raise `ShapeError` where it cannot be."""
    if not isinstance(equation, str):
        raise OperatorError(f'einsum: equation {equation!r} is no text; give one as "ij,jk->ik"')
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(
            f"equation {equation!r} has {len(terms)} operands and {len(ranks)} are given"
        )
    for term in (*terms, output):
        letters = term.replace("...", "", 1)
        if not all(letter in string.ascii_letters for letter in letters):
            raise ShapeError(
                f"term {term!r} of equation {equation!r} may hold letters and one ellipsis"
            )
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    for term, rank, extra in zip(terms, ranks, hidden, strict=True):
        if extra < 0 or (extra and "..." not in term):
            raise ShapeError(
                f"term {term!r} of equation {equation!r} does not fit an operand of {rank} axes"
            )
    named = set(inputs)
    ellipsis = _free_letters(named, max(hidden))
    spelled = tuple(
        term.replace("...", ellipsis[len(ellipsis) - extra :])
        for term, extra in zip(terms, hidden, strict=True)
    )
    if not arrow:
        once = (letter for letter in named & set(string.ascii_letters) if inputs.count(letter) == 1)
        return Terms(spelled, ellipsis + "".join(sorted(once)))
    for letter in set(output) - {"."}:
        if letter not in named:
            raise ShapeError(f"equation {equation!r}: {letter!r} of the result is in no operand")
        if output.count(letter) > 1:
            raise ShapeError(f"equation {equation!r}: {letter!r} is in the result twice")
    return Terms(spelled, output.replace("...", ellipsis))


def _free_letters(used: Iterable[str], count: int) -> str:
    free = [letter for letter in string.ascii_letters if letter not in set(used)]
    if count > len(free):
        raise ShapeError(f"an equation of more than {len(string.ascii_letters)} axes")
    return "".join(free[len(free) - count :])


def letter_sizes(terms: Terms, shapes: Iterable[Shape]) -> dict[str, int]:
    """Return the length that each letter stands for; a length of 1 broadcasts."""
    sizes: dict[str, int] = {}
    for position, (term, shape) in enumerate(zip(terms.operands, shapes, strict=True)):
        own: dict[str, int] = {}
        for letter, length in zip(term, shape, strict=True):
            if own.setdefault(letter, length) != length:
                raise ShapeError(
                    f"operand {position} has axes of lengths {own[letter]} and {length} under one "
                    f"letter, {letter!r}"
                )
        for letter, length in own.items():
            known = sizes.get(letter, 1)
            if known != 1 and length not in (1, known):
                raise ShapeError(
                    f"letter {letter!r} stands for {known} and, in operand {position}, for {length}"
                )
            sizes[letter] = length if known == 1 else known
    return sizes


# Order of products -------------------------------------------------------------------------------


class Contraction(NamedTuple):
    """Multiply two operands, numbered with intermediate results after the given ones."""

    left: int
    right: int
    result: str


class Plan(NamedTuple):
    """How a sum of several products is computed, two operands at a time.

    Attributes
    ----------
    terms
        the spelled out equation
    reduced
        letters of each operand after diagonals are taken, letters that occur nowhere else summed,
        and axes of length 1 that broadcast dropped
    contractions
        in order; the letters of a result are those shared and kept, of the left, of the right
    multiply_adds
        what it costs
    """

    terms: Terms
    reduced: tuple[str, ...]
    contractions: tuple[Contraction, ...]
    multiply_adds: int


@lru_cache(maxsize=512)
def plan_products(equation: str, shapes: tuple[Shape, ...]) -> Plan:
    """Order the products, the cheapest next one first."""
    terms = parse_equation(equation, tuple(len(shape) for shape in shapes))
    sizes = letter_sizes(terms, shapes)
    present: list[str] = []
    for term, shape in zip(terms.operands, shapes, strict=True):
        own = dict(zip(term, shape, strict=True))
        present.append("".join(letter for letter in own if own[letter] == sizes[letter]))
    counts = {letter: sum(letter in term for term in present) for letter in sizes}
    reduced = tuple(
        "".join(letter for letter in term if letter in terms.output or counts[letter] > 1)
        for term in present
    )
    cost = sum(
        math.prod(shape)
        for term, kept, shape in zip(terms.operands, reduced, shapes, strict=True)
        if len(term) > len(kept)
    )
    waiting = dict(enumerate(reduced))
    steps: list[Contraction] = []
    while len(waiting) > 1:
        found: tuple[int, Contraction] | None = None
        for left in waiting:
            for right in waiting:
                if left < right:
                    price = math.prod(sizes[x] for x in {*waiting[left], *waiting[right]})
                    if found is None or price < found[0]:
                        found = price, _contraction(left, right, waiting, terms.output)
        assert found is not None
        price, step = found
        del waiting[step.left], waiting[step.right]
        waiting[len(reduced) + len(steps)] = step.result
        steps.append(step)
        cost += price
    return Plan(terms, reduced, tuple(steps), cost)


def _contraction(left: int, right: int, waiting: dict[int, str], output: str) -> Contraction:
    others = (term for n, term in waiting.items() if n not in (left, right))
    needed = set(output).union(*others)
    result = _product_letters(waiting[left], waiting[right], needed)
    swapped = _product_letters(waiting[right], waiting[left], needed)
    if swapped == output:
        return Contraction(right, left, swapped)  # nothing to transpose afterwards
    return Contraction(left, right, result)


def _product_letters(first: str, second: str, needed: set[str]) -> str:
    shared = [letter for letter in first if letter in second and letter in needed]
    rows = [letter for letter in first if letter not in second]
    columns = [letter for letter in second if letter not in first]
    return "".join((*shared, *rows, *columns))


# The operator ------------------------------------------------------------------------------------


def _ranks(operands: Iterable[Any]) -> tuple[int, ...]:
    return tuple(len(x.shape) for x in operands)


@defop("nnl::einsum", save=("xs",), precision="half")
def einsum_operator(*xs: Array, equation: str) -> Array:
    """Sum of products of the operands' elements, as the equation says."""
    dtype = sum_dtype(xs[0].dtype)
    terms = parse_equation(equation, _ranks(xs))
    result = np.einsum(terms.equation, *(wide(x.astype(dtype, copy=False)) for x in xs))
    return np.array(result, dtype)


@einsum_operator.infer
def einsum_infer(*xs: Spec, equation: str) -> Spec:
    """The lengths of the result's letters."""
    terms = parse_equation(equation, _ranks(xs))
    sizes = letter_sizes(terms, (x.shape for x in xs))
    return Spec(tuple(sizes[letter] for letter in terms.output), sum_dtype(xs[0].dtype))


@einsum_operator.vjp
def einsum_vjp(g: Any, y: Any, *xs: Any, equation: str) -> tuple[Any, ...]:
    """For each operand, the product of ``g`` and the others, on that operand's letters."""
    terms = parse_equation(equation, _ranks(xs))
    sizes = letter_sizes(terms, (x.shape for x in xs))
    return tuple(_gradient(g, xs, terms, sizes, position) for position in range(len(xs)))


def _gradient(
    g: Variable, xs: tuple[Variable, ...], terms: Terms, sizes: dict[str, int], position: int
) -> Variable:
    own, shape = terms.operands[position], xs[position].shape
    lengths = dict(zip(own, shape, strict=True))
    other_terms = [term for n, term in enumerate(terms.operands) if n != position]
    others = [x for n, x in enumerate(xs) if n != position]
    elsewhere = {*terms.output, *"".join(other_terms)}
    kept = [x for x in lengths if x in elsewhere and lengths[x] == sizes[x]]
    product = Terms((terms.output, *other_terms), "".join(kept))
    gradient: Variable = einsum_operator(g, *others, equation=product.equation)
    # What was summed over in this operand alone is repeated; what was broadcast is summed already.
    found = dict(zip(kept, gradient.shape, strict=True))
    gradient = F.reshape(gradient, tuple(found.get(letter, 1) for letter in lengths))
    gradient = broadcast_to(gradient, tuple(lengths.values()))
    if len(lengths) == len(own):
        return gradient
    return _on_diagonal(gradient, own, lengths)


def _on_diagonal(x: Variable, own: str, lengths: dict[str, int]) -> Variable:
    """Put elements where the axes that share a letter have equal indices, zero elsewhere."""
    fresh = iter(_free_letters(own, len(own) - len(lengths)))
    inputs, output, identities = ["".join(lengths)], "", []
    for letter in own:
        if letter in output:
            other = next(fresh)
            inputs.append(letter + other)
            identities.append(Variable.constant(np.eye(lengths[letter], dtype=x.dtype)))
            letter = other
        output += letter
    result: Variable = einsum_operator(
        x, *identities, equation=Terms(tuple(inputs), output).equation
    )
    return result


@einsum_operator.multiply_adds
def einsum_multiply_adds(*xs: Spec, equation: str) -> int:
    """What the products cost when taken two operands at a time."""
    return plan_products(equation, tuple(x.shape for x in xs)).multiply_adds


SAMPLES: tuple[tuple[str, tuple[Shape, ...]], ...] = (
    ("ii->i", ((4, 4),)),
    ("...ii", ((2, 3, 3),)),
    ("iji->j", ((3, 2, 3),)),
    ("iiij->ij", ((2, 2, 2, 3),)),
    ("bji", ((2, 3, 4),)),
    ("ij->", ((3, 5),)),
    ("->", ((),)),
    (",i->i", ((), (3,))),
    ("i,i", ((5,), (5,))),
    ("i,j->ij", ((2,), (3,))),
    ("i,i->i", ((4,), (4,))),
    ("ij,jk->ki", ((2, 3), (3, 4))),
    ("...ij,...jk->...ik", ((1, 3, 4, 5), (2, 1, 5, 6))),
    ("i...j,...jk", ((4, 2, 3, 5), (2, 3, 5, 2))),
    ("ij,ij->", ((1, 3), (2, 1))),
    ("ij,ji->ij", ((1, 2), (2, 1))),
    ("bjibw,zkjb->ikb", ((2, 3, 4, 2, 5), (2, 4, 3, 2))),
    ("zabc,aycd,daxe->be", ((1, 2, 3, 4), (2, 1, 4, 2), (2, 2, 1, 3))),
    ("ij,jk->ik", ((0, 3), (3, 2))),
    ("ij,jk->ik", ((2, 0), (0, 3))),
)
"""Equations that between them take every path."""


@einsum_operator.samples
def einsum_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Diagonals, traces, sums, outer and matrix products, broadcasting, several operands, empty."""
    for equation, shapes in SAMPLES:
        yield Sample(*(rng.normal(size=shape) for shape in shapes), equation=equation)


def einsum(*operands: Operand, equation: str = "") -> Variable:
    """Sum products of elements as an equation such as ``"bij,bjk->bik"`` says.

    Without ``->`` the result has the ellipsis' axes, then the letters that occur once, in
    alphabetical order. An ellipsis that the result leaves out is summed over. The equation may also
    come first, as in `numpy.einsum`.

    Args:
        *operands: an array for each term of the equation.
        equation: letters for the axes of each operand, and of the result.

    Raises:
        ShapeError: equation and shapes differ.

    Gradient:
        Of each operand the product of ``dy`` and the others, by an equation of its own.

    Examples:
        >>> F.einsum(np.array([1.0, 2.0]), np.array([[1.0], [10.0]]), equation="i,ij->j").d
        array([21.])

    Elsewhere:
        - nnabla: `einsum`
        - PyTorch: `torch.einsum`, equation first
        - ONNX: `Einsum`
    """
    if operands and isinstance(operands[0], str):
        equation, *rest = operands
        operands = tuple(rest)
    if not operands:
        raise ShapeError(f"einsum {equation!r} needs an operand at least")
    variables = [x if isinstance(x, Variable) else Variable.constant(x) for x in operands]
    dtype = promote(*(x.dtype for x in variables))
    same = (x if x.dtype == dtype else cast(x, dtype) for x in variables)
    result: Variable = einsum_operator(*same, equation=equation)
    return result
