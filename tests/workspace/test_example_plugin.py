"""A distribution that NNL knows nothing of: built, installed beside it, found, checked and used."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "powers_project"
EXAMPLE = ROOT / "examples" / "nnl-powers"
MOST_LINES = 40
NNL = "from nnl_core.cli import main; raise SystemExit(main())"


def run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of an import path that holds the example as its wheel installs it."""
    source = tmp_path_factory.mktemp("source") / "nnl-powers"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    run(["-m", "hatchling", "build", "-t", "wheel"], source)
    (wheel,) = source.glob("dist/*.whl")
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture
def python(installed, tmp_path):
    """Run Python where the example is installed, in a folder that holds nothing."""
    paths = os.pathsep.join((str(installed), str(ROOT)))
    return lambda *command, folder=tmp_path: run(list(command), folder, PYTHONPATH=paths)


def test_the_example_is_short():
    sources = [path.read_text("utf-8") for path in EXAMPLE.glob("src/**/*.py")]
    assert sum(bool(line.strip()) for text in sources for line in text.splitlines()) <= MOST_LINES


def test_the_wheel_holds_the_package_and_its_entry_point_only(installed):
    top = {path.parts[0] for path in (p.relative_to(installed) for p in installed.rglob("*"))}
    assert top == {"nnl_powers", "nnl_powers-0.1.0.dist-info"}
    entry_points = installed / "nnl_powers-0.1.0.dist-info" / "entry_points.txt"
    assert entry_points.read_text("utf-8").split() == [
        "[nnl.plugins]",
        "powers",
        "=",
        "nnl_powers.plugin:PowersPlugin",
    ]


def test_its_own_tests_pass(python, tmp_path):
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    assert "2 passed" in python("-m", "pytest", "-q", "tests")


def test_what_its_readme_says_is_so(python, tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    (tmp_path / "block.py").write_text(block, "utf-8")
    assert python("-W", "error", "block.py") == "[ 3. 12. 27.] [ 6. 12. 18.]\n"


def test_it_is_available_where_it_is_installed_and_active_where_it_is_named(python):
    ask = (
        "from nnl_core import Session\n"
        "for names in ([], ['powers']):\n"
        "    manager = Session(names).manager\n"
        "    manager.collect('operators')\n"
        "    print({entry.name: entry.state for entry in manager.entries}['powers'])\n"
    )
    assert python("-c", ask).split() == ["available", "active"]


def test_a_project_file_names_it_and_a_model_learns_with_it(python, tmp_path):
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    python("-W", "error", "-c", NNL, "train", "project")
    (run,) = (project / "runs").iterdir()
    parameters = load_file(run / "parameters.safetensors")
    # cubic.npz holds y = 0.5 x^3 - x^2 + 2 x - 1
    np.testing.assert_allclose(parameters["affine/W"].ravel(), [2, -1, 0.5], atol=0.01)
    np.testing.assert_allclose(parameters["affine/b"], [-1], atol=0.01)


def test_without_it_the_project_file_says_what_is_missing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", NNL, "train", str(PROJECT), "--out", str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert re.fullmatch(r"nnl: error: .*'powers'.*not installed.*\n", done.stderr)
    assert not (tmp_path / "out").exists()
