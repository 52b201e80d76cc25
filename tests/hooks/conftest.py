"""Fake distributions, so that discovery meets real metadata files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import dedent, indent

import importlib_metadata
import pytest

Install = Callable[..., Path]


def write_distribution(
    site: Path,
    name: str,
    body: str = "",
    *,
    version: str = "1.0",
    distribution: str | None = None,
    source: str | None = None,
    target: str | None = None,
    requires: Sequence[str] = (),
    summary: str = "",
) -> Path:
    """Write a plugin and its metadata: `body` is inside the class, or `source` is the module."""
    distribution = distribution or f"nnl-{name}"
    module = f"{distribution.replace('-', '_')}_plugin"
    if source is None:
        members = indent(dedent(body), "    ")
        source = (
            "from nnl_core.hooks import *\n"
            "from nnl_core import hooks\n"
            f"class ThePlugin(Plugin):\n    name = {name!r}\n{members}\n"
        )
    (site / f"{module}.py").write_text(dedent(source), "utf-8")
    info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    lines = [f"Requires-Dist: {text}\n" for text in requires]
    lines += [f"Summary: {summary}\n"] if summary else []
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.3\nName: {distribution}\nVersion: {version}\n{''.join(lines)}",
        "utf-8",
    )
    info.joinpath("entry_points.txt").write_text(
        f"[nnl.plugins]\n{name} = {target or f'{module}:ThePlugin'}\n", "utf-8"
    )
    return info


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for distributions, the only one where plugins are looked for."""
    folder = tmp_path / "site"
    folder.mkdir()
    find = importlib_metadata.distributions
    monkeypatch.setattr(importlib_metadata, "distributions", lambda: find(path=[str(folder)]))
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def install(site: Path) -> Install:
    """Write a distribution with a plugin into the site folder."""

    def install(name: str, body: str = "", **options: object) -> Path:
        return write_distribution(site, name, body, **options)

    return install
