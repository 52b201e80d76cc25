"""Statements in C from the expressions of elementwise operators."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.ir import ABSENT, Instruction
from nnl_core.graph.operator import Operator

FLOAT_NUMBER = re.compile(r"(?<![\w.])((?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?)f\b")
CALL = re.compile(r"\b([a-z]\w*)(?=\s*\()")
DOUBLE_FUNCTIONS = frozenset(
    "acosf acoshf asinf asinhf atan2f atanf atanhf cbrtf ceilf copysignf cosf coshf erfcf erff "
    "exp2f expf expm1f fabsf fdimf floorf fmaxf fminf fmodf hypotf ilogbf ldexpf lgammaf log10f "
    "log1pf log2f logf nearbyintf powf remainderf rintf roundf sinf sinhf sqrtf tanf tanhf tgammaf "
    "truncf".split()
)

ON_INTEGERS = frozenset(
    f"nnl::{name}"
    for name in (
        "identity cast add sub mul square where equal not_equal greater greater_equal less "
        "less_equal logical_and logical_or logical_xor logical_not unlink equal_scalar "
        "not_equal_scalar greater_scalar greater_equal_scalar less_scalar less_equal_scalar "
        "logical_and_scalar logical_or_scalar logical_xor_scalar"
    ).split()
)
"""Operators whose expression means the same when its inputs are integers of C."""

OF_INTEGERS = {
    "nnl::abs": "x < 0 ? -x : x",
    "nnl::add_scalar": "x + val",
    "nnl::ceil": "x",
    "nnl::floor": "x",
    "nnl::fmod": "y == 0 || (y < 0 && y == -1) ? 0 : x % y",
    "nnl::isinf": "0",
    "nnl::isnan": "0",
    "nnl::maximum2": "x0 > x1 ? x0 : x1",
    "nnl::maximum_scalar": "x > val ? x : val",
    "nnl::minimum2": "x0 < x1 ? x0 : x1",
    "nnl::minimum_scalar": "x < val ? x : val",
    "nnl::mod": "y == 0 || (y < 0 && y == -1) ? 0 : x % y == 0 || (x < 0) == (y < 0) ? x % y "
    ": x % y + y",
    "nnl::mul_scalar": "x * val",
    "nnl::r_sub_scalar": "val - x",
    "nnl::round": "x",
    "nnl::sign": "x > 0 ? 1 : (x < 0 ? -1 : alpha)",
}
"""Expressions that operators have in place of their own when their inputs are integers of C."""


class Typed(Protocol):
    """Whatever has an element type."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""


Value = Callable[[int], Typed]


def _convert(dtype: np.dtype[Any], c_type: str, text: str) -> str:
    return f"({c_type})({text})"


def _accept(operator: Operator, statement: str, types: Mapping[int, str]) -> bool:
    return True


class Dialect(NamedTuple):
    """What tells one compiler's C from another's.

    Attributes
    ----------
    types
        name of a dtype -> type of a variable that holds its elements; other dtypes have none
    functions
        what is called in place of a function of C in single precision
    convert
        (dtype, type, text) -> the text, rounded or cut to the dtype, of that type
    accept
        (operator, statement, types of the values it reads) -> whether a stranger's expression
        compiles
    to_integers
        whether a floating number may be converted to an integer as C does it
    """

    types: Mapping[str, str]
    functions: Mapping[str, str]
    convert: Callable[[np.dtype[Any], str, str], str] = _convert
    accept: Callable[[Operator, str, Mapping[int, str]], bool] = _accept
    to_integers: bool = False


def expressions(members: Sequence[Instruction], value: Value, dialect: Dialect) -> str | None:
    """Return C statements that compute ``v<number>`` for each member's result, in order.

    They read ``v<number>`` of their inputs. ``None`` where a member has no expression in C.
    """
    lines = []
    for member in members:
        operator = member.operator
        assert operator is not None
        text = expression_of(operator, member, value, dialect)
        if text is None:
            return None
        lines.append(text)
    return "\n".join(lines)


def expression_of(
    operator: Operator, member: Instruction, value: Value, dialect: Dialect
) -> str | None:
    """Return the statements that compute one member."""
    expression = IN_PLACE_OF_EXPRESSIONS.get(operator.name, operator.expression)
    attributes, types = member.attributes, dialect.types
    given = [None if number == ABSENT else value(number) for number in member.inputs]
    result = value(member.outputs[0])
    involved = [one.dtype for one in (*given, result) if one is not None]
    if any(dtype.name not in types for dtype in involved):
        return None
    has_integers = any(dtype.kind in "iu" for dtype in involved)
    if has_integers:
        expression = OF_INTEGERS.get(operator.name, expression)
        if operator.name not in ON_INTEGERS and operator.name not in OF_INTEGERS:
            return None
        if not _keeps_integers(member, given, result, dialect):
            return None
    if expression is None:
        return None
    is_double = any(dtype == np.float64 for dtype in involved)
    if is_double and any(dtype == np.float32 for dtype in involved) and len(member.inputs) > 1:
        return None
    lines = []
    for name, number in zip(operator.parameters.inputs, member.inputs, strict=False):
        if number != ABSENT:
            lines.append(f"const {types[value(number).dtype.name]} {name} = v{number};")
    lines += [c_constant(name, one, is_double or has_integers) for name, one in attributes.items()]
    text = in_double(expression) if is_double else in_float(expression, dialect.functions)
    number = member.outputs[0]
    c_type = types[result.dtype.name]
    is_truth = result.dtype == np.bool_
    converted = dialect.convert(result.dtype, c_type, f"({text}) != 0" if is_truth else text)
    statement = f"{c_type} v{number}; {{ {' '.join(lines)} v{number} = {converted}; }}"
    if not operator.module.startswith("nnl_core."):
        reads = {one: types[value(one).dtype.name] for one in member.inputs if one != ABSENT}
        if not dialect.accept(operator, statement, reads):
            return None
    return statement


IN_PLACE_OF_EXPRESSIONS = {"nnl::broadcast_to": "x", "nnl::cast": "x"}
"""Operators that are elementwise here, though they are not to the core."""


def _keeps_integers(
    member: Instruction, given: Sequence[Typed | None], result: Typed, dialect: Dialect
) -> bool:
    """Whether no conversion on the way loses or rounds differently than NumPy's."""
    operator = member.operator
    assert operator is not None
    chooses = operator.name == "nnl::where"  # by its first input, whose own type does not matter
    compared = given[1:] if chooses else given
    dtypes = {one.dtype for one in compared if one is not None if one.dtype.kind != "b"}
    if result.dtype.kind in "iu" and any(map(is_floating, dtypes)) and not dialect.to_integers:
        return False
    if operator.name in OF_INTEGERS and is_floating(result.dtype):
        return False
    numbers = member.attributes.values()
    if any(isinstance(one, int | float) and one < 0 for one in numbers) and np.uint64 in dtypes:
        return False
    if result.dtype.kind in "iu":
        limits = np.iinfo(result.dtype)  # NumPy refuses numbers beyond them
        if any(isinstance(one, int) and not limits.min <= one <= limits.max for one in numbers):
            return False
    return len(dtypes) <= 1


def in_float(expression: str, functions: Mapping[str, str]) -> str:
    """Return an expression with other functions in place of the C library's."""
    return CALL.sub(lambda found: functions.get(found[1], found[1]), expression)


def in_double(expression: str) -> str:
    """Return an expression with double-precision numbers and functions."""
    plain = FLOAT_NUMBER.sub(
        lambda found: found[1] if {".", "e", "E"} & set(found[1]) else f"{found[1]}.", expression
    )
    return CALL.sub(
        lambda found: found[1][:-1] if found[1] in DOUBLE_FUNCTIONS else found[1], plain
    )


def c_constant(name: str, value: object, is_double: bool = False) -> str:
    """Return the declaration of an attribute; of one that is no number, nothing."""
    if isinstance(value, (bool, np.bool_)):
        return f"const int {name} = {int(value)};"
    if isinstance(value, (int, np.integer)):
        number = int(value)
        return f"const int64_t {name} = {number}LL;" if abs(number) < 1 << 63 else ""
    if isinstance(value, (float, np.floating)):
        kind, suffix = ("double", "") if is_double else ("float", "f")
        return f"const {kind} {name} = {c_number(float(value), suffix)};"
    return ""


def c_number(number: float, suffix: str = "f") -> str:
    """Return a floating number as C writes it."""
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "-INFINITY" if number < 0 else "INFINITY"
    return f"{number!r}{suffix}"
