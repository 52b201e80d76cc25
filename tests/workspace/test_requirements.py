"""The lists of dependencies agree, and continuous integration runs what the README says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
DEV_GROUP = PYPROJECT["dependency-groups"]["dev"]
MEMBERS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))


def lines(name: str) -> list[str]:
    """The lines of a file that say something."""
    texts = (line.strip() for line in (ROOT / name).read_text("utf-8").splitlines())
    return [line for line in texts if line and not line.startswith("#")]


def member_names() -> list[str]:
    projects = [tomllib.loads((path / "pyproject.toml").read_text("utf-8")) for path in MEMBERS]
    return [project["project"]["name"] for project in projects]


def pins() -> dict[str, str]:
    requirements = [Requirement(line) for line in lines("constraints.txt")]
    return {
        canonicalize_name(item.name): str(item.specifier).removeprefix("==")
        for item in requirements
    }


def test_pip_and_uv_install_the_same_tools():
    own = {PROJECT["name"], *member_names()}
    tools = [line for line in DEV_GROUP if Requirement(line).name not in own]
    assert [line for line in lines("requirements-dev.txt") if not line.startswith("-")] == tools


def test_pip_installs_the_core_with_what_the_command_line_shows_and_every_member():
    editable = [line for line in lines("requirements-dev.txt") if line.startswith("-e")]
    assert editable == ["-e .[standard]", *(f"-e ./plugins/{path.name}" for path in MEMBERS)]


def test_uv_installs_the_core_with_what_the_command_line_shows_and_every_member():
    assert {"nnl-core[standard]", *member_names()} <= set(DEV_GROUP)
    assert set(PYPROJECT["tool"]["uv"]["sources"]) == {"nnl-core", *member_names()}


def test_pip_keeps_to_the_pinned_versions():
    assert "-c constraints.txt" in lines("requirements-dev.txt")


@pytest.mark.parametrize(
    "line", [*PROJECT["dependencies"], *EXTRAS["standard"], *lines("requirements-dev.txt")]
)
def test_every_dependency_is_bounded_and_pinned_within_its_bounds(line):
    if line.startswith("-"):
        return
    requirement = Requirement(line)
    assert {item.operator for item in requirement.specifier} == {">=", "<"}
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


def test_every_dependency_has_its_reason():
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    explained = re.findall(
        r"^\|(?: `(?:standard|hdf5|tensorboard|cublas|cuda)` \|)? `([\w-]+)` \| \S",
        page,
        re.MULTILINE,
    )
    groups = [PROJECT["dependencies"], *EXTRAS.values(), DEV_GROUP]
    own = {PROJECT["name"], *member_names()}
    declared = {Requirement(line).name for group in groups for line in group} - own
    assert set(explained) == declared


def test_pycuda_is_in_no_default_install():
    default = (
        PROJECT["dependencies"] + EXTRAS["standard"] + DEV_GROUP + lines("requirements-dev.txt")
    )
    assert not [line for line in default if "cuda" in line.lower()]


def test_continuous_integration_runs_the_commands_of_the_readme(tmp_path):
    """`.ci/run` runs README's test command, the GPU's tests, every check, and fails if one does."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    command = (
        "python3 -m venv .venv && .venv/bin/pip install -r requirements-dev.txt && .venv/bin/pytest"
    )
    (readme,) = (line for line in lines("README.md") if line == command)
    (tmp_path / "README.md").write_text(f"# x\n\n```sh\n{readme}\n```\n")
    log = tmp_path / "log"
    tools = tmp_path / "bin"
    binaries = ("pip", "python", "pytest", "ruff", "mypy", "mkdocs")
    stand_ins = [tmp_path / ".venv" / "bin" / name for name in binaries]
    for path in (tools / "python3", *stand_ins):
        path.parent.mkdir(parents=True, exist_ok=True)
        failure = path.name == "ruff"
        path.write_text(f'#!/bin/sh\necho "{path.name} $*" >>"{log}"\nexit {int(failure)}\n')
        path.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", ".ci/run"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert log.read_text().splitlines() == [
        "python3 -m venv .venv",
        "pip install -r requirements-dev.txt",
        "pytest -n auto",
        "python -m tools.cuemu.build_pycuda",
        "pytest -q -n auto tests/gpu tools/cuemu/tests --ignore=tests/gpu/test_every_operator.py",
        "ruff check",
        "ruff format --check",
        "mypy ",
        "mkdocs build --quiet",
    ]
    assert done.returncode == 1


def test_the_workflow_runs_the_same_script_on_every_supported_python():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    prefix = "Programming Language :: Python :: 3."
    versions = [
        name.removeprefix(prefix[:-2]) for name in PROJECT["classifiers"] if name.startswith(prefix)
    ]
    quoted = ", ".join(f'"{version}"' for version in versions)
    assert f"python: [{quoted}]" in workflow
    assert "run: bash .ci/run" in workflow
    assert PROJECT["requires-python"] == f">={versions[0]}"
