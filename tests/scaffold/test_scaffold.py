"""`nnl plugin new`: what it writes works, passes its own tests and keeps to the house style."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nnl_core.errors import ConfigurationError
from nnl_core.scaffold import KINDS, TEMPLATES, create

ROOT = Path(__file__).parents[2]


def run(folder: Path, *command: str) -> str:
    paths = [str(ROOT), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=sorted(KINDS))
def plugin(request, tmp_path_factory) -> Path:
    """A new plugin of each kind."""
    return create("sample-one", request.param, tmp_path_factory.mktemp(request.param))


def test_its_own_tests_pass(plugin):
    output = run(plugin, "pytest", "-q", "-p", "nnl_core.testing.pytest_plugin")
    assert " passed" in output


@pytest.mark.parametrize("name", ["x", "a-b", "w" * 28])
def test_they_keep_to_the_house_style(tmp_path, name):
    for kind in KINDS:
        create(name, kind, tmp_path / kind)
    run(tmp_path, "ruff", "check", "--no-cache", ".")
    run(tmp_path, "ruff", "format", "--no-cache", "--check", ".")


def test_its_house_style_is_ours(plugin):
    own, ours = (
        tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]
        for folder in (plugin, ROOT)
    )
    assert own["line-length"] == ours["line-length"]
    assert own["lint"]["select"] == ours["lint"]["select"]
    assert own["lint"]["ignore"] == ours["lint"]["ignore"]


def test_its_readme_says_how_to_install_it_and_what_it_cannot(plugin):
    text = (plugin / "README.md").read_text("utf-8")
    assert "pip install nnl-sample-one" in text
    assert "\nLimits: " in text


def test_the_python_in_its_readme_runs(plugin):
    text = (plugin / "README.md").read_text("utf-8")
    for block in text.split("```python\n")[1:]:
        code = block.split("```")[0]
        load = "import nnl_core; " if "lookup" not in code else ""
        if "lookup" in code:  # where the plugin is installed, naming the operator finds it
            load = "import nnl_sample_one.operators; "
        script = f"import sys; sys.path.insert(0, 'src'); {load}exec({code!r})"
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=plugin,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
        )


def test_names_follow_from_the_plugins_name(plugin):
    project = tomllib.loads((plugin / "pyproject.toml").read_text("utf-8"))["project"]
    assert plugin.name == project["name"] == "nnl-sample-one"
    assert project["entry-points"] == {
        "nnl.plugins": {"sample_one": "nnl_sample_one.plugin:SampleOnePlugin"}
    }
    assert (plugin / "src" / "nnl_sample_one" / "py.typed").is_file()


def test_nothing_is_left_unfilled(plugin):
    for path in plugin.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and ".pytest_cache" not in path.parts:
            assert "$" not in path.read_text("utf-8")
            assert "PACKAGE" not in str(path)
            assert path.suffix != ".template"


def test_the_command_says_what_comes_next(nnl_run, tmp_path):
    outcome = nnl_run(
        "plugin", "new", "two-waves", "--kind", "operators", "--directory", str(tmp_path / "new")
    )
    folder = tmp_path / "new" / "nnl-two-waves"
    assert outcome.status == 0
    assert outcome.stdout.startswith(f"{folder} is ready.")
    assert "nnl -p two_waves plugins" in outcome.stdout
    assert (folder / "src" / "nnl_two_waves" / "plugin.py").is_file()


def test_an_existing_folder_is_left_alone(nnl_run, tmp_path):
    (tmp_path / "nnl-waves").mkdir()
    outcome = nnl_run("plugin", "new", "waves", "--kind", "command", "--directory", str(tmp_path))
    assert outcome.status == 1
    assert "exists already" in outcome.stderr and outcome.stderr.count("\n") == 1
    assert list(tmp_path.rglob("*")) == [tmp_path / "nnl-waves"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Waves",
        "2waves",
        "my waves",
        "waves-",
        "wa--ves",
        "../waves",
        "nnl-waves",
        "wäve",
        "w" * 29,
    ],
)
def test_an_invalid_name_is_an_error_and_writes_nothing(nnl_run, tmp_path, name):
    outcome = nnl_run("plugin", "new", name, "--kind", "layers", "--directory", str(tmp_path))
    assert outcome.status == 1
    assert "will not do as the name of a plugin" in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["core", "nnl", "plugins", "train", "metrics-log"])
def test_a_name_that_the_core_has_is_an_error(nnl_run, tmp_path, name):
    outcome = nnl_run("plugin", "new", name, "--kind", "command", "--directory", str(tmp_path))
    assert outcome.status == 1
    assert f"{name!r} is the name of something in nnl-core" in outcome.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_is_wrong_usage(nnl_run, tmp_path):
    outcome = nnl_run("plugin", "new", "waves", "--kind", "wavelets", "--directory", str(tmp_path))
    assert outcome.status == 2
    with pytest.raises(ConfigurationError, match="no kind 'wavelets'"):
        create("waves", "wavelets", tmp_path)


def test_a_directory_that_is_a_file_is_an_error(nnl_run, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = nnl_run(
        "plugin", "new", "waves", "--kind", "layers", "--directory", str(tmp_path / "file")
    )
    assert outcome.status == 1
    assert "cannot write into" in outcome.stderr


def test_what_goes_wrong_half_way_leaves_nothing(monkeypatch, tmp_path):
    def fail(self, *arguments):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="disk full"):
        create("waves", "layers", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_there_is_a_template_for_each_kind():
    folders = {path.name for path in TEMPLATES.iterdir()}
    assert folders == {"common", *KINDS}
