"""Which part of the core may import which: one arrow of dependence, and no plugin in sight."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
CORE = sorted((ROOT / "nnl_core").rglob("*.py"))
PLUGIN_SOURCES = sorted(ROOT.glob("plugins/*/src/**/*.py"))

# package -> what it must not know of. `hooks` knows no graphs, `graph` knows no backend, and so on.
FORBIDDEN = {
    "hooks": (
        "graph operators functions parametric_functions parameters solvers initializers"
        " cpu gpu data training io cli"
    ),
    "graph": "operators solvers cpu gpu data training io cli",
    "operators": "hooks parametric_functions parameters solvers cpu gpu data training io cli",
    "cpu": "gpu data training io cli",
    "gpu": "cpu data training io cli",
    "data": "training cli",
    "training": "cli",
    "io": "training cli",
}


class Import(NamedTuple):
    """One imported module, and where."""

    module: str
    line: int
    in_function: bool


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """All that a file imports when it runs: what stands under TYPE_CHECKING does not count."""
    return tuple(_walk(ast.parse(path.read_text("utf-8")), path, in_function=False))


def _walk(node: ast.AST, path: Path, *, in_function: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for statement in child.orelse:
                yield from _walk(statement, path, in_function=in_function)
        elif isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, in_function)
        elif isinstance(child, ast.ImportFrom):
            module = child.module or ""
            if child.level:
                package = path.relative_to(ROOT).parts[: -child.level]
                module = ".".join((*package, module)).rstrip(".")
            # `from nnl_core import gpu` imports nnl_core.gpu.
            for alias in child.names:
                yield Import(f"{module}.{alias.name}", child.lineno, in_function)
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _walk(child, path, in_function=in_function or function)


def top_level(module: str) -> str:
    return module.partition(".")[0]


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def found(paths: list[Path], wrong) -> list[str]:
    """Every import that `wrong(path, import)` objects to, as lines for an assertion's message."""
    return [
        f"{path.relative_to(ROOT)}:{item.line} imports {item.module}"
        for path in paths
        for item in imports(path)
        if wrong(path, item)
    ]


@pytest.mark.parametrize("package", FORBIDDEN)
def test_package_imports_nothing_above_it(package):
    forbidden = [f"nnl_core.{name}" for name in FORBIDDEN[package].split()]
    paths = [path for path in CORE if path.relative_to(ROOT / "nnl_core").parts[0] == package]
    assert not found(paths, lambda _, item: any(is_in(item.module, name) for name in forbidden))


def test_core_imports_no_plugin():
    def is_plugin(_, item):
        name = top_level(item.module)
        return name.startswith("nnl_") and name != "nnl_core"

    assert not found(CORE, is_plugin)


def test_core_names_no_plugin():
    names = []
    for path in sorted(ROOT.glob("plugins/*/pyproject.toml")):
        distribution = tomllib.loads(path.read_text("utf-8"))["project"]["name"]
        names += [distribution, *(folder.name for folder in path.parent.glob("src/*"))]
    texts = {path: path.read_text("utf-8") for path in CORE}
    assert not [
        f"{path.relative_to(ROOT)} names {name}"
        for name in names
        for path, text in texts.items()
        if re.search(rf"\b{re.escape(name)}\b", text)
    ]


def test_core_imports_only_what_it_declares():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    requirements = chain(project["dependencies"], *project["optional-dependencies"].values())
    declared = {re.split(r"[^\w-]", line)[0].replace("-", "_") for line in requirements}
    imported_as = {"pillow": "PIL"}  # where that is not the distribution's name
    declared = {imported_as.get(name, name) for name in declared}
    # The test kit is imported by those who have pytest.
    allowed = declared | set(sys.stdlib_module_names) | {"nnl_core", "__future__"}
    kit = ROOT / "nnl_core" / "testing"

    def undeclared(path, item):
        extra = {"pytest", "hypothesis"} if path.is_relative_to(kit) else set()
        return top_level(item.module) not in allowed | extra

    assert not found(CORE, undeclared)


def test_entry_points_are_read_in_one_module_only():
    paths = [path for path in CORE if path != ROOT / "nnl_core" / "hooks" / "manager.py"]
    assert not found(
        paths,
        lambda _, item: any(
            is_in(item.module, name) for name in ("importlib_metadata", "importlib.metadata")
        ),
    )


def test_pycuda_is_imported_inside_functions_of_the_gpu_package_only():
    gpu = ROOT / "nnl_core" / "gpu"
    assert not found(
        CORE + PLUGIN_SOURCES,
        lambda path, item: (
            top_level(item.module) == "pycuda"
            and not (item.in_function and path.is_relative_to(gpu))
        ),
    )


def test_nobody_lets_pycuda_choose_the_device():
    assert not found(CORE + PLUGIN_SOURCES, lambda _, item: is_in(item.module, "pycuda.autoinit"))


def test_nothing_imports_the_repository_folders():
    folders = ("plugins", "tests", "benchmarks", "examples", "docs")
    everything = CORE + PLUGIN_SOURCES + sorted(ROOT.glob("plugins/*/tests/**/*.py"))
    everything += sorted((ROOT / "examples").rglob("*.py"))
    assert not found(everything, lambda _, item: top_level(item.module) in folders)


def test_a_plugin_imports_no_other_plugin():
    def is_other(path, item):
        name = top_level(item.module)
        own = path.relative_to(ROOT).parts[3]
        return name.startswith("nnl_") and name not in ("nnl_core", own)

    assert not found(PLUGIN_SOURCES, is_other)
