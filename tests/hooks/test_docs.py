"""The page about plugins names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nnl_core import hooks, testing
from nnl_core.scaffold import KINDS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "plugins.md").read_text("utf-8")
VARIABLES = set(re.findall(r"NNL_\w+", (ROOT / "nnl_core/hooks/selection.py").read_text("utf-8")))


@pytest.mark.parametrize("variable", sorted(VARIABLES))
def test_environment_variables_are_documented(variable):
    assert variable in TEXT


@pytest.mark.parametrize("key", ["plugins", "disabled_plugins", "required_plugins"])
def test_keys_of_the_project_file_are_documented(key):
    assert f"`{key} = [" in TEXT


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_new_plugins_are_documented(kind):
    assert kind in TEXT.split("```")[1]


def test_the_kit_is_documented():
    functions = [name for name in testing.__all__ if name[0].islower() and name != "run_nnl"]
    assert [name for name in functions if f"`{name}(" not in TEXT] == []
    fixtures = re.findall(
        r"@pytest.fixture\ndef (\w+)",
        (ROOT / "nnl_core/testing/pytest_plugin.py").read_text("utf-8"),
    )
    assert [name for name in fixtures if f"| fixture `{name}` |" not in TEXT] == []


def test_its_class_is_a_plugin(nnl_manager):
    (block,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
        if "import" in block and "class" in block
    ]
    scope: dict[str, object] = {}
    exec(block, scope)
    entry = nnl_manager.register(scope["WavesPlugin"])
    assert entry.hooks == ("nnl_on_step_end", "nnl_solvers")


@pytest.mark.parametrize("page", ["plugins.md", "hooks.md"])
def test_names_from_the_hooks_package_exist(page):
    text = (ROOT / "docs" / page).read_text("utf-8")
    for names in re.findall(r"from nnl_core.hooks import ([\w, ]+)", text):
        assert set(names.split(", ")) <= set(hooks.__all__)
