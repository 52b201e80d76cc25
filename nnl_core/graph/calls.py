"""What calls of an operator have in common, found once for input specs and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.backend import Backend, BoundCall, bind
from nnl_core.graph.spec import Spec

if TYPE_CHECKING:
    from nnl_core.graph.operator import Operator

Specs: TypeAlias = tuple[Spec | None, ...]

KEPT = 256  # calls of one operator
_PLAIN = (bool, int, float, str, bytes, type(None), np.generic, np.dtype)


class Call:
    """An operator on inputs of certain specs (``None``: absent), with certain attributes.

    Nodes of such calls share it, and nobody changes it. ``attributes`` are complete, ``outputs``
    what was inferred. ``is_kept`` where the next such call will find it.
    """

    __slots__ = ("_bound", "attributes", "inputs", "is_kept", "operator", "outputs")

    def __init__(
        self,
        operator: Operator,
        inputs: Specs,
        attributes: dict[str, Any],
        outputs: tuple[Spec, ...],
        is_kept: bool,
    ) -> None:
        self.operator = operator
        self.inputs = inputs
        self.attributes = attributes
        self.outputs = outputs
        self.is_kept = is_kept
        self._bound: tuple[Backend, int, BoundCall] | None = None

    def bound_to(self, backend: Backend, version: int) -> BoundCall:
        """Return what runs it on a backend.

        ``version`` is the session's ``graph_version``: plugins select kernels.
        """
        bound = self._bound
        if bound is None or bound[0] is not backend or bound[1] != version:
            run = bind(backend, self.operator, self.inputs, self.attributes, self.outputs)
            self._bound = bound = backend, version, run
        return bound[2]


def find_call(operator: Operator, inputs: Specs, given: dict[str, Any], name: str) -> Call:
    """Return the call of these specs and attributes, checked when it is made.

    ``name`` is for errors. Raises `OperatorError` for attributes that the operator does not take,
    and `ShapeError` for inputs that do not fit.
    """
    key: tuple[object, ...] = inputs
    if given:
        # Equal numbers differ: 1, 1.0 and True give other dtypes, -0.0 and 0.0 other results.
        values = tuple(given.values())
        key = inputs, repr(values), *given, *values
    try:
        return operator.calls[key]
    except KeyError:
        is_kept = _is_plain(tuple(given.values()))
    except TypeError:  # a list, say
        is_kept = False
    attributes = operator.bind_attributes(given)
    _check_numbers(operator, attributes)
    outputs = infer(operator, inputs, attributes, name)
    call = Call(operator, inputs, attributes, outputs, is_kept)
    if is_kept:
        if len(operator.calls) >= KEPT:
            operator.calls.clear()
        operator.calls[key] = call
    return call


def _is_plain(value: object) -> bool:
    """Whether an attribute holds nothing (a function's variables, say) that it would keep alive."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _check_numbers(operator: Operator, attributes: dict[str, Any]) -> None:
    """Raise `OperatorError` where an attribute in the C expression is no number."""
    if operator.expression is None:
        return
    for key, value in attributes.items():
        number = isinstance(value, (int, float, np.number, np.bool_))
        if not number and key in operator.expression:
            raise OperatorError(
                f"operator {operator.name!r}: {key}={value!r} is not a number; give a Python number"
            )


def infer(
    operator: Operator, specs: Sequence[Spec | None], attributes: dict[str, Any], name: str
) -> tuple[Spec, ...]:
    """Infer output specs, naming operator and node in the error."""
    try:
        return operator.infer_specs(specs, attributes)
    except ShapeError as error:
        label = operator.__name__ if name == operator.__name__ else f"{operator.__name__} {name!r}"
        raise ShapeError(f"{label}: {error}") from None
