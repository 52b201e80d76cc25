"""A project that trains in a blink: points near a line."""

from __future__ import annotations

import sys

import numpy as np
import pytest

MODEL = """
from nnl_core import F, PF

def line(x):
    return PF.affine(x, 1, name="line")

def distance(output, target):
    return F.abs(output - F.reshape(target, output.shape))
"""

SETTINGS = """
plugins = ["metrics_log"]

[model]
function = "model:line"
loss = "squared_error"
metrics = ["model:distance"]

[data.train]
source = "points.npz"
fields.x = { array = "train_x", shape = [1], divide = 10 }
fields.y = "train_y"

[data.test]
source = "points.npz"
fields.x = { array = "test_x", shape = [1], divide = 10 }
fields.y = "test_y"

[solver]
name = "Sgd"
lr = 0.1

[train]
epochs = 3
batch_size = 8
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a project, beside the current one."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL, "utf-8")
    (folder / "nnl.toml").write_text(SETTINGS, "utf-8")
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 50), ("test", 13)):
        x = rng.normal(scale=10, size=count)
        arrays[f"{part}_x"], arrays[f"{part}_y"] = x, 2 * x / 10 + 1
    np.savez(folder / "points.npz", **arrays)
    return folder
