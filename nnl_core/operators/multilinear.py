"""Operators that are the derivatives of one multilinear form, and so each other's gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnl_core.graph.operator import Operator


def differentiate_each_other(form: Mapping[str, Operator]) -> None:
    """Attach the gradients of operators that belong to one form.

    A form is a number, linear in each of its factors. Under a factor's name stands the form's
    derivative by it: an operator whose inputs are the other factors, named so. It must save
    them all. Attributes are those of the form.
    """
    for factor, operator in form.items():
        operator.vjp(_rule(form, factor, operator.parameters.inputs))


def _rule(form: Mapping[str, Operator], factor: str, names: tuple[str, ...]) -> Any:
    def gradients(g: Any, y: Any, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        """By an input: the form's derivative by it, with ``g`` in place of the result."""
        values = dict(zip((factor, *names), (g, *inputs), strict=True))
        return tuple(
            form[name](*(values[other] for other in form[name].parameters.inputs), **attributes)
            for name in names
        )

    return gradients
