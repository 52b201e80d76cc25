"""Each function has a page: what it computes, its arguments, its gradient, an example that runs,
and what it is called elsewhere."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F
from nnl_core.testing.docstrings import read_page

LIBRARIES = {"nnabla", "PyTorch", "ONNX"}
NAMES = {"np": np, "nnl": nnl, "F": F, "PF": PF, "S": nnl.S, "Variable": nnl.Variable}
"""What an example need not import."""


def home(function: Callable[..., Any]) -> str:
    """The module that defines a function or an operator."""
    return getattr(function, "module", function.__module__)


def public(namespace: Any) -> dict[str, Callable[..., Any]]:
    """The functions of ``F`` or ``PF`` that have to have pages: not what handles parameters."""
    found = {name: getattr(namespace, name) for name in vars(namespace) if name[0] != "_"}
    return {
        name: function
        for name, function in sorted(found.items())
        if callable(function) and home(function) != "nnl_core.parameters"
    }


FUNCTIONS = [
    pytest.param(function, id=f"{home(function).removeprefix('nnl_core.')}:{prefix}.{name}")
    for prefix, namespace in (("F", F), ("PF", PF))
    for name, function in public(namespace).items()
]
each_function = pytest.mark.parametrize("function", FUNCTIONS)


@each_function
def test_every_argument_is_described(function):
    signature = inspect.signature(getattr(function, "reference", function))
    assert read_page(function).arguments == list(signature.parameters)


@each_function
def test_the_gradient_is_spoken_of(function):
    assert read_page(function).sections.get("Gradient", "").strip()


@each_function
def test_the_counterparts_are_named_or_their_absence_is_explained(function):
    elsewhere = read_page(function).elsewhere
    assert elsewhere.keys() == LIBRARIES
    assert [library for library, found in elsewhere.items() if not (found.name or found.note)] == []


@each_function
def test_the_example_runs_and_shows_what_it_says(function):
    page = read_page(function)
    assert ">>> " in page.sections.get("Examples", ""), "there is no example"
    shown = page.sections["Examples"]
    test = doctest.DocTestParser().get_doctest(
        shown, dict(NAMES), function.__name__, home(function), 0
    )
    report: list[str] = []
    nnl.clear_parameters()
    nnl.seed(0)
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=report.append)
    assert not report, "".join(report)
