"""What every file of the repository keeps to."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = sorted((ROOT / "nnl_core").rglob("*.py"))
LONGEST_MODULE = 600

NOT_PORTABLE = re.compile(
    r"(?<![\w.:/-])/(?:home|root|work|Users)/\w"
    r"|[A-Z]:\\\\?Users"
    r"|pypi\.org|pythonhosted\.org|registry\.npmjs|deb\.debian\.org"
)


def tracked() -> list[Path]:
    """Every text file of the repository, whether or not it has been added yet."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_holds_a_machine_path_or_a_registry_host():
    guilty = []
    for path in tracked():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:  # a picture, an archive
            continue
        guilty += [
            f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1} {match.group()}"
            for match in NOT_PORTABLE.finditer(text)
        ]
    assert not guilty


# "|" stands for what makes them accusable, so that this file passes its own test.
@pytest.mark.parametrize("text", ["/home|/me", 'cd "/work|/x"', "https://pypi.|org/simple"])
def test_what_is_not_portable_is_recognised(text):
    assert NOT_PORTABLE.search(text.replace("|", ""))


@pytest.mark.parametrize("text", ["examples/homework", "tests/workspace/x", "~/.cache", "./work/x"])
def test_what_is_portable_is_not_accused(text):
    assert not NOT_PORTABLE.search(text)


def test_no_lock_file_is_committed():
    assert not [path for path in tracked() if path.name == "uv.lock"]


def test_every_public_module_says_what_it_is_for():
    modules = (
        CORE + sorted(ROOT.glob("plugins/*/src/**/*.py")) + sorted(ROOT.glob("benchmarks/*.py"))
    )
    assert not [
        str(path.relative_to(ROOT))
        for path in modules
        if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]


def length_without_docstrings(path: Path) -> int:
    """Pages of the reference stand in docstrings, which nobody reads to follow the code."""
    text = path.read_text("utf-8")
    documented = (ast.FunctionDef, ast.ClassDef, ast.Module)
    strings = [
        node.body[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, documented) and ast.get_docstring(node) is not None
    ]
    within = sum((string.end_lineno or 0) - string.lineno + 1 for string in strings)
    return len(text.splitlines()) - within


def test_no_module_of_the_core_is_too_long_to_read():
    lengths = {path: length_without_docstrings(path) for path in CORE}
    assert not [
        f"{path.relative_to(ROOT)}: {length} lines"
        for path, length in lengths.items()
        if length > LONGEST_MODULE
    ]


def test_the_core_tells_type_checkers_that_it_is_typed():
    assert (ROOT / "nnl_core" / "py.typed").is_file()


def test_test_folders_are_no_packages():
    folders = [ROOT / "tests", *ROOT.glob("plugins/*/tests"), *ROOT.glob("examples/*/tests")]
    assert not [path for folder in folders for path in folder.rglob("__init__.py")]
