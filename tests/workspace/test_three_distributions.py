"""One project of three distributions that know nothing of one another, each installed as its wheel.

``nnl-powers`` brings an operator, ``nnl-gates`` a layer, and ``nnl-enough``, whose source is all
here as a stranger would write it, ends a run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nnl_core.scaffold import create

ROOT = Path(__file__).parents[2]
NNL = "from nnl_core.cli import main; raise SystemExit(main())"

STRANGER = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "nnl-enough"
version = "3.1"
dependencies = ["nnl-core"]

[project.entry-points."nnl.plugins"]
enough = "enough_for_me:EnoughPlugin"
""",
    "enough_for_me.py": """
from nnl_core.hooks import Plugin, SettingsSpec


class EnoughPlugin(Plugin):
    name = "enough"

    def nnl_settings(self):
        return [SettingsSpec("enough", "enough_settings:Settings", "how many steps are enough")]

    def nnl_on_session_start(self, event):
        from enough_settings import Settings

        self.steps = event.session.plugin_settings("enough", Settings).steps

    def nnl_on_step_end(self, event):
        if event.step + 1 == self.steps:
            event.trainer.request_stop("it is enough")
""",
    "enough_settings.py": """
from pydantic import BaseModel


class Settings(BaseModel, extra="forbid"):
    steps: int = 5
""",
}

MODEL = """
import nnl_core as nnl
from nnl_core import PF, F

power = nnl.lookup("powers::power")


def gated(x):
    from nnl_gates.layers import gated_affine

    return PF.affine(gated_affine(F.concatenate(x, power(x, p=2), axis=1), 4), 1)
"""

PROJECT = """
plugins = [PLUGINS]

[model]
function = "model:gated"
loss = "squared_error"

[data.train]
source = "data.npz"

[plugin.enough]
steps = 7
"""


def run(command: list[str], folder: Path, *paths: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT)))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder on the import path that holds the three wheels."""
    sources = tmp_path_factory.mktemp("sources")
    shutil.copytree(
        ROOT / "examples" / "nnl-powers",
        sources / "nnl-powers",
        ignore=shutil.ignore_patterns("__pycache__", "dist"),
    )
    create("gates", "layers", sources)
    for name, text in STRANGER.items():
        path = sources / "nnl-enough" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    files = '["enough_for_me.py", "enough_settings.py"]'
    options = f"[tool.hatch.build.targets.wheel]\nonly-include = {files}\n"
    with (sources / "nnl-enough" / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(options)
    site = tmp_path_factory.mktemp("site")
    for source in sources.iterdir():
        run(["-m", "hatchling", "build", "-t", "wheel"], source)
        (wheel,) = source.glob("dist/*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    return site


@pytest.fixture
def train(site, tmp_path):
    """Train the project with these plugins named, and return what the run's folder says."""
    (tmp_path / "model.py").write_text(MODEL, "utf-8")
    x = np.linspace(-1, 1, 64, dtype=np.float32)[:, np.newaxis]
    np.savez(tmp_path / "data.npz", x=x, y=x**2)

    def train(*plugins):
        text = PROJECT.replace("PLUGINS", ", ".join(map(repr, plugins)))
        (tmp_path / "nnl.toml").write_text(text, "utf-8")
        run(["-W", "error", "-c", NNL, "train", "--out", "run"], tmp_path, site)
        files = {name: tmp_path / "run" / f"{name}.json" for name in ("run", "result")}
        return {name: json.loads(path.read_text("utf-8")) for name, path in files.items()}

    return train


def test_three_distributions_act_in_one_project(train):
    found = train("powers", "gates", "enough")
    assert found["result"]["stopped"] == "it is enough"
    assert found["result"]["steps"] == 7  # as the project's table for the stranger says
    plugins = found["run"]["plugins"]
    assert plugins["powers"] == "0.1.0" and plugins["enough"] == "3.1" and "gates" in plugins


def test_what_the_project_does_not_name_does_not_act(train):
    found = train("powers", "gates")
    assert found["result"]["stopped"] is None
    assert found["result"]["steps"] == 10  # one batch in each epoch


def test_the_layer_of_one_of_them_is_named_in_a_list(site, tmp_path):
    x = np.linspace(-1, 1, 64, dtype=np.float32)[:, np.newaxis]
    np.savez(tmp_path / "data.npz", x=x, y=x**2)
    layers = '[{ layer = "gates.gated_affine", outputs = 8 }, { layer = "affine", n_outmaps = 1 }]'
    (tmp_path / "nnl.toml").write_text(
        f'model = {{ layers = {layers}, loss = "squared_error" }}\n'
        'data.train.source = "data.npz"\nsolver.alpha = 0.05\ntrain.epochs = 200\n',
        "utf-8",
    )
    run(["-W", "error", "-c", NNL, "train", "--out", "run"], tmp_path, site)
    result = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert result["metrics"]["train/loss"] < 1e-2
