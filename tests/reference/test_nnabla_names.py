"""Scripts written for nnabla find every function, with the same arguments and defaults."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from nnl_core import PF, F, S
from nnl_core.testing.docstrings import read_page

SIGNATURES = json.loads((Path(__file__).parent / "nnabla_signatures.json").read_text("utf-8"))
"""The arguments of each function of nnabla 1.39, without those that say where to put results; "..."
stands for arguments that nnabla passes on."""

NAMESPACES = {"F": F, "PF": PF, "S": S}
each_name = pytest.mark.parametrize(
    ("space", "name"), [(space, name) for space, names in SIGNATURES.items() for name in names]
)


def arguments(space: str, name: str) -> str:
    found = getattr(NAMESPACES[space], name)
    parameters = inspect.signature(getattr(found, "reference", found)).parameters.values()
    return ", ".join(
        parameter.name + ("" if parameter.default is parameter.empty else f"={parameter.default!r}")
        for parameter in parameters
    )


def test_these_are_all_functions_and_solvers_of_nnabla():
    assert {space: len(names) for space, names in SIGNATURES.items()} == {
        "F": 233,
        "PF": 44,  # with the class LSTMCell
        "S": 18,
    }


@each_name
def test_the_function_is_there_with_the_arguments_and_defaults_of_nnabla(space, name):
    known, *passed_on = SIGNATURES[space][name].split("...")
    if not passed_on:
        assert f"{arguments(space, name)}, ".startswith(f"{known}, ")


@each_name
def test_its_page_says_that_it_is_nnablas(space, name):
    assert read_page(getattr(NAMESPACES[space], name)).elsewhere["nnabla"].name == name
