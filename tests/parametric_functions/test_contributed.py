"""Layers of plugins are found in ``PF`` by their own name."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from nnl_core import PF, Session
from nnl_core.hooks import LayerSpec, Plugin


def doubled(x):
    return x * 2


def plugin(name, *layers):
    def nnl_layers(self):
        return [LayerSpec(f"{name}.{layer}", "layers_of_a_test:doubled", "") for layer in layers]

    return type("LayerPlugin", (Plugin,), {"name": name, "nnl_layers": nnl_layers})


@pytest.fixture(autouse=True)
def module(monkeypatch):
    home = ModuleType("layers_of_a_test")
    home.doubled = doubled
    monkeypatch.setitem(sys.modules, home.__name__, home)


def test_a_layer_is_found_without_the_name_of_its_plugin():
    with Session([plugin("one", "doubled")], discover=False):
        assert PF.doubled is doubled


def test_the_cores_own_come_first():
    with Session([plugin("one", "affine")], discover=False):
        assert PF.affine.__module__ == "nnl_core.parametric_functions.linear"


def test_a_name_that_two_plugins_have_names_both():
    plugins = [plugin("one", "doubled"), plugin("two", "doubled")]
    with (
        Session(plugins, discover=False),
        pytest.raises(AttributeError, match=r"one\.doubled or two\.doubled"),
    ):
        _ = PF.doubled


def test_a_misspelt_name_is_corrected():
    with Session(discover=False), pytest.raises(AttributeError, match="affine"):
        _ = PF.afine
