"""The Python in the documentation runs as it stands, and its links lead somewhere.

The blocks of a page are one program, in order. One that is no part of it is marked as a fragment:
```` ```python fragment ````.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]


def blocks(page: Path, info: str) -> list[str]:
    """The code of a page after ```` ```info ````."""
    pattern = re.compile(rf"^```{info}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return pattern.findall(page.read_text("utf-8"))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


PROGRAMS = {name_of(page): "\n".join(found) for page in PAGES if (found := blocks(page, "python"))}


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_program_of_a_page_runs(page, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    script = tmp_path / "program.py"
    script.write_text(PROGRAMS[page], "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_fragments_of_a_page_are_python(page):
    for fragment in blocks(page, "python fragment"):
        ast.parse(dedent(fragment))


def test_there_is_python_to_run():
    assert {"README.md", "docs/architecture.md", "docs/training.md"} <= PROGRAMS.keys()


def test_python_is_marked_in_no_other_way():
    marked = [
        info for page in PAGES for info in re.findall(r"^```(py.*)$", page.read_text("utf-8"), re.M)
    ]
    assert set(marked) <= {"python", "python fragment"}


def test_links_lead_somewhere():
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{name_of(page)} -> {target}")
    assert not broken
