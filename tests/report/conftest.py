"""Runs that were written by hand, and one that was trained."""

from __future__ import annotations

import json
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from nnl_core.cli import main

SETTINGS = {"train": {"epochs": 3, "seed": 0}, "solver": {"name": "Adam", "alpha": 0.1}}


def _write_run(
    folder: Path,
    history: list[dict[str, float | None]] | None = None,
    *,
    settings: dict[str, object] | None = None,
    name: str = "digits",
    stopped: str | None = None,
    best: dict[str, object] | None = None,
) -> Path:
    """Write the folder of a run; without a history it has no result."""
    folder.mkdir(parents=True)
    description = {
        "format": 1,
        "name": name,
        "started": "2026-11-30T15:56:18+00:00",
        "project": "digits/nnl.toml",
        "project_from_here": "../../nnl.toml",
        "settings": SETTINGS if settings is None else settings,
        "plugins": {"core": "0.1.0"},
        "versions": {"numpy": "2.2"},
    }
    (folder / "run.json").write_text(json.dumps(description), "utf-8")
    if history is not None:
        result = {
            "epochs": len(history),
            "steps": 10 * len(history),
            "seconds": 61.5,
            "stopped": stopped,
            "metrics": history[-1] if history else {},
            "best": best or {},
            "history": history,
        }
        (folder / "result.json").write_text(json.dumps(result), "utf-8")
    return folder


@pytest.fixture
def write_run():
    """The function that writes the folder of a run."""
    return _write_run


class Page(HTMLParser):
    """A page of HTML: its texts and tables by section, and all that it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: dict[str, str] = {}
        self.tables: dict[str, list[list[list[str]]]] = {}
        self.images: dict[str, list[str]] = {}
        self.references: list[str] = []
        self.tags: list[str] = []
        self.title = ""
        self._section = self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._open = tag
        found = dict(attributes)
        self.references += [
            found[name] for name in ("src", "href", "xlink:href", "action", "data") if name in found
        ]
        if tag == "table":
            self.tables.setdefault(self._section, []).append([])
        elif tag == "tr":
            self.tables[self._section][-1].append([])
        elif tag in ("td", "th"):
            self.tables[self._section][-1][-1].append("")
        elif tag == "img":
            self.images.setdefault(self._section, []).append(found["src"])

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open == "title":
            self.title += data
        elif self._open == "h2":
            self._section = data
            self.sections[data] = ""
        elif self._section:
            self.sections[self._section] += data
            if self._open in ("td", "th"):
                self.tables[self._section][-1][-1][-1] += data

    def rows(self, section: str, number: int = 0) -> dict[str, list[str]]:
        """The rows of a table by their first cells."""
        return {row[0]: row[1:] for row in self.tables[section][number][1:]}


@pytest.fixture
def read_page():
    """The class that reads a page of HTML."""
    return Page


MODEL = """
from nnl_core import F, PF

def small(x, y=None):
    h = F.relu(PF.convolution(x, 2, (3, 3), name="conv"))
    return PF.affine(h, 3, name="out")

def line(x):
    return PF.affine(x, 1, name="line")
"""

PROJECT = """
[model]
function = "model:small"
loss = "softmax_cross_entropy"
metrics = ["accuracy"]

[data.train]
source = "bars.npz"
fields.x = "x"
fields.y = "y"

[data.test]
source = "bars.npz"
fields.x = "test_x"
fields.y = "test_y"

[solver]
name = "Adam"
alpha = 0.05

[train]
epochs = 2
evaluate = "test"
"""


@pytest.fixture(scope="session")
def trained_project(tmp_path_factory):
    """A project that tells bars of three directions apart, and its one run."""
    path = list(sys.path)
    folder = tmp_path_factory.mktemp("bars") / "bars"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL, "utf-8")
    (folder / "nnl.toml").write_text(PROJECT, "utf-8")
    rng = np.random.default_rng(0)
    arrays = {}
    for prefix, count in (("", 60), ("test_", 21)):
        labels = rng.integers(0, 3, count)
        images = rng.normal(scale=0.5, size=(count, 1, 6, 6)).astype(np.float32)
        for image, label in zip(images, labels, strict=True):
            place = rng.integers(0, 6)
            image[0][[np.s_[place, :], np.s_[:, place], np.diag_indices(6)][label]] += 1
        arrays[f"{prefix}x"], arrays[f"{prefix}y"] = images, labels
    np.savez(folder / "bars.npz", **arrays)
    assert main(["train", str(folder)]) == 0
    yield folder
    sys.path[:] = path


@pytest.fixture
def trained(trained_project, tmp_path, monkeypatch):
    """A copy of that project's folder, and of its run in it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "bars"
    shutil.copytree(trained_project, project)
    (run,) = (project / "runs").iterdir()
    return project, run
