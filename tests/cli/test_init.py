from __future__ import annotations

import json
import re
import sys
import tomllib

import numpy as np
import pytest

from nnl_core.cli import main
from nnl_core.scaffold.new_project import spirals
from nnl_core.settings import check


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine"


def test_a_new_project_trains_at_once_and_learns(folder, capsys):
    assert main(["init", "mine"]) == 0
    assert "Next: nnl train mine" in capsys.readouterr().out
    assert main(["train", "mine"]) == 0
    (run,) = (folder / "runs").iterdir()
    metrics = json.loads((run / "result.json").read_text("utf-8"))["metrics"]
    assert metrics["validation/accuracy"] > 0.9


def test_without_a_folder_it_is_made_in_this_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {".gitignore", "nnl.toml", "model.py", "spirals.npz"}


@pytest.mark.parametrize("name", ["nnl.toml", "model.py", "spirals.npz"])
def test_nothing_that_exists_is_overwritten(folder, capsys, name):
    folder.mkdir()
    (folder / name).write_text("mine", "utf-8")
    assert main(["init", "mine"]) == 1
    assert f"{name} exists already" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == [name]


def test_what_is_commented_out_is_right_as_well(folder):
    main(["init", "mine"])
    text = (folder / "nnl.toml").read_text("utf-8")
    text = re.sub(r"^# (?=(precision|layers|    |\]|\[plugin|patience))", "", text, flags=re.M)
    table = tomllib.loads(text)
    assert table["precision"] == "mixed_bfloat16" and table["model"]["layers"][1] == "relu"
    del table["model"]["function"], table["model"]["arguments"]
    check(table, "nnl.toml")


def test_arms_of_the_spiral_differ_by_a_third_of_a_turn():
    arrays = spirals()
    x, y = arrays["train_x"].astype(np.float64), arrays["train_y"]
    radius, angle = np.hypot(x[:, 0], x[:, 1]), np.arctan2(x[:, 1], x[:, 0])
    turn = (angle - 4 * radius - 2 * np.pi * y / 3 + np.pi) % (2 * np.pi) - np.pi
    assert np.mean(np.abs(turn[radius > 0.3]) < 0.5) > 0.95
