"""A distribution of somebody else adds nodal operators, a pool and an activation by records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file

NNL = "from nnl_core.cli import main; raise SystemExit(main())"

FILES = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "nnl-ripples"
version = "2.0"
dependencies = ["nnl-onn"]

[project.entry-points."nnl.plugins"]
ripples = "nnl_ripples.plugin:RipplesPlugin"

[tool.hatch.build.targets.wheel]
packages = ["nnl_ripples"]
""",
    "nnl_ripples/__init__.py": "",
    "nnl_ripples/plugin.py": """
from nnl_core.hooks import Plugin
from nnl_onn.hooks import ActivationSpec, NodalSpec, PoolSpec


class RipplesPlugin(Plugin):
    name = "ripples"
    requires = ("onn",)

    def nnl_onn_nodal_operators(self):
        home = "nnl_ripples.operators"
        return [
            NodalSpec("ripples.swirl", f"{home}:swirl", "a sine with growing height"),
            NodalSpec("ripples.spike", f"{home}:spike", "a step with a smooth surrogate gradient"),
        ]

    def nnl_onn_pools(self):
        return [PoolSpec("ripples.min", "nnl_ripples.operators:min_pool", "the smallest tap")]

    def nnl_onn_activations(self):
        return [ActivationSpec("ripples.half", "nnl_ripples.operators:half", "half of it")]
""",
    "nnl_ripples/operators.py": """
from nnl_onn import Nodal, Pool

swirl = Nodal("w * x * sin(3 * w + x)")
spike = Nodal(
    "heaviside(w * x)",
    gx="w / (1 + (5 * w * x)**2)",
    gw="x / (1 + (5 * w * x)**2)",
)
min_pool = Pool(lambda values: values.argmin(-1))


def half(x):
    return x * 0.5
""",
}

PROJECT = """
[model]
loss = "squared_error"
layers = [
    { layer = "onn.operational", outmaps = 4, kernel = [3, 3], pad = "same", operators = [
        { nodal = "ripples.swirl", activation = "tanh" },
        { nodal = "ripples.spike", activation = "identity" },
        { nodal = "ripples.swirl", pool = "ripples.min", activation = "ripples.half" },
        { nodal = "ripples.spike", activation = "identity" },
    ] },
    { layer = "onn.operational", outmaps = 1, kernel = [1, 1], name = "last", operators = {
        indices = 3, nodal = ["mul", "ripples.swirl"], pool = ["sum"],
        activation = ["tanh", "identity"] } },
]

[data.train]
source = "data.npz"

[solver]
alpha = 0.05

[train]
epochs = 80
batch_size = 8
"""
# In a file a table stands in one line.
PROJECT = PROJECT.replace(
    """{
        indices = 3, nodal = ["mul", "ripples.swirl"], pool = ["sum"],
        activation = ["tanh", "identity"] } }""",
    '{ indices = 3, nodal = ["mul", "ripples.swirl"], pool = ["sum"], '
    'activation = ["tanh", "identity"] } }',
)

CHECK = """
import sys
from nnl_core.testing import check_plugin
from nnl_onn.testing import check_nodal
from nnl_ripples.plugin import RipplesPlugin

check_plugin(RipplesPlugin)
check_nodal("ripples.swirl")
check_nodal("ripples.swirl", pool="ripples.min")
check_nodal("ripples.spike", pool="sum")
print("checked")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of an import path that holds the distribution as its wheel installs it."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text, "utf-8")
    run(["-m", "hatchling", "build", "-t", "wheel"], source)
    (wheel,) = source.glob("dist/*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture
def project(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (16, 1, 6, 7)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=np.sign(x) * x**2)
    (tmp_path / "nnl.toml").write_text(PROJECT, "utf-8")
    return tmp_path


def run(command, folder, *paths, code=0):
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_project_file_names_its_operators_and_learns_with_them(site, project):
    run(["-c", NNL, "train", "--out", "run"], project, site)
    result = json.loads((project / "run" / "result.json").read_text("utf-8"))
    assert result["metrics"]["train/loss"] < 0.4 * np.load(project / "data.npz")["y"].var()
    parameters = load_file(project / "run" / "parameters.safetensors")
    assert parameters["operational/operational/W"].shape == (4, 1, 3, 3)
    # A step has no slope: what its neurons have learnt came through the surrogate.
    beyond = np.abs(parameters["operational/operational/W"][[1, 3]]) > 1 / 9
    assert beyond.any()


def test_its_operators_pass_the_kit(site, tmp_path):
    assert run(["-c", CHECK], tmp_path, site) == "checked\n"


def test_without_it_the_error_is_one_line(project):
    text = run(["-c", NNL, "train", "--out", "run"], project, code=1)
    assert "ripples.swirl" in text and "Traceback" not in text
