"""Which plugins are asked for: project file, environment and command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnl_core.errors import ConfigurationError
from nnl_core.hooks.selection import Project, find_project, select


def project(**table: object) -> Project:
    return Project(Path("nnl.toml"), table)


def test_nothing_is_named_by_default():
    selection = select(None, {})
    assert (selection.named, selection.blocked, selection.required) == ((), frozenset(), ())
    assert selection.autoload and not selection.strict


def test_the_file_names_in_its_order():
    selection = select(project(plugins=["b", "a"], required_plugins=["nnl-b>=1"]), {})
    assert selection.named == ("b", "a")
    assert selection.required == ("nnl-b>=1",)


def test_the_environment_adds_and_takes_away():
    environment = {"NNL_PLUGINS": "c, d", "NNL_DISABLED_PLUGINS": "a"}
    selection = select(project(plugins=["a", "b"]), environment)
    assert selection.named == ("b", "c", "d")
    assert selection.blocked == {"a"}
    assert selection.sources["a"] == "NNL_DISABLED_PLUGINS"


@pytest.mark.parametrize(
    ("file", "environment", "command_line", "wanted"),
    [
        ({"plugins": ["x"]}, {}, [], True),
        ({"disabled_plugins": ["x"]}, {}, [], False),
        ({"plugins": ["x"], "disabled_plugins": ["x"]}, {}, [], False),
        ({"plugins": ["x"]}, {"NNL_DISABLED_PLUGINS": "x"}, [], False),
        ({"disabled_plugins": ["x"]}, {"NNL_PLUGINS": "x"}, [], True),
        ({}, {"NNL_PLUGINS": "x", "NNL_DISABLED_PLUGINS": "x"}, [], False),
        ({"disabled_plugins": ["x"]}, {"NNL_DISABLED_PLUGINS": "x"}, ["x"], True),
        ({"plugins": ["x"]}, {"NNL_PLUGINS": "x"}, ["no:x"], False),
        ({}, {}, ["x", "no:x"], False),
        ({}, {}, ["no:x", "x"], True),
    ],
)
def test_command_line_beats_environment_beats_file(file, environment, command_line, wanted):
    selection = select(project(**file), environment, command_line)
    assert ("x" in selection.named) is wanted
    assert ("x" in selection.blocked) is not wanted


@pytest.mark.parametrize(("value", "on"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_switches_of_the_environment(value, on):
    environment = {"NNL_DISABLE_PLUGIN_AUTOLOAD": value, "NNL_STRICT_PLUGINS": value}
    selection = select(None, environment)
    assert selection.strict is on
    assert selection.autoload is not on


def test_a_switch_that_is_neither_on_nor_off_is_an_error():
    with pytest.raises(ConfigurationError, match="NNL_STRICT_PLUGINS is 'maybe'; write 1 or 0"):
        select(None, {"NNL_STRICT_PLUGINS": "maybe"})


@pytest.mark.parametrize("key", ["plugins", "disabled_plugins", "required_plugins"])
@pytest.mark.parametrize("value", ["onn", [1], {"onn": True}])
def test_lists_of_plugins_are_lists_of_strings(key, value):
    with pytest.raises(ConfigurationError, match=f"nnl.toml: {key} must be a list of strings"):
        select(project(**{key: value}), {})


@pytest.mark.parametrize(
    ("file", "environment", "command_line", "source"),
    [
        ({"disabled_plugins": ["core"]}, {}, [], "nnl.toml"),
        ({}, {"NNL_DISABLED_PLUGINS": "core"}, [], "NNL_DISABLED_PLUGINS"),
        ({}, {}, ["no:core"], "-p no:core"),
    ],
)
def test_the_core_cannot_be_disabled(file, environment, command_line, source):
    with pytest.raises(ConfigurationError, match=f"{source}: the core cannot be disabled"):
        select(project(**file), environment, command_line)


# -------------------------------------------------------------------- project files


def test_a_file_may_begin_with_the_mark_of_windows_editors(tmp_path):
    (tmp_path / "nnl.toml").write_bytes(b'\xef\xbb\xbfplugins = ["onn"]')
    assert find_project(tmp_path).strings("plugins") == ["onn"]


def test_the_nearest_file_upwards_is_taken(tmp_path):
    (tmp_path / "nnl.toml").write_text('plugins = ["far"]')
    near = tmp_path / "a" / "b"
    near.mkdir(parents=True)
    assert find_project(near).table == {"plugins": ["far"]}
    (tmp_path / "a" / "pyproject.toml").write_text('[tool.nnl]\nplugins = ["near"]')
    found = find_project(near)
    assert found.table == {"plugins": ["near"]}
    assert found.where == "pyproject.toml [tool.nnl]"


def test_a_pyproject_without_our_table_is_passed_by(tmp_path):
    (tmp_path / "nnl.toml").write_text("")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text('[project]\ndependencies = ["nnl-core"]')
    assert find_project(inner).path == tmp_path / "nnl.toml"


def test_our_own_file_is_preferred_to_pyproject(tmp_path):
    (tmp_path / "nnl.toml").write_text("")
    (tmp_path / "pyproject.toml").write_text("[tool.nnl]")
    assert find_project(tmp_path).path.name == "nnl.toml"


@pytest.mark.parametrize("name", ["nnl.toml", "pyproject.toml"])
@pytest.mark.parametrize("content", [b"nnl = [", b"nnl = '\xff'"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"cannot read .*{name}"):
        find_project(tmp_path)


def test_plugin_tables_are_tables():
    with pytest.raises(ConfigurationError, match=r"plugin.onn must be a table, not 3"):
        project(plugin={"onn": 3}).plugin_tables()
    with pytest.raises(ConfigurationError, match=r"plugin holds tables, \[plugin.NAME\]"):
        project(plugin=["onn"]).plugin_tables()
