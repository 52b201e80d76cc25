"""Repeated runs: one folder for each seed, and how much their results differ."""

from __future__ import annotations

import json
import re
import signal
import statistics

import pytest

from benchmarks import resume
from nnl_core.cli import main

STOPPING = """
import signal

def nnl_on_step_end(event):
    if (event.trainer.seed, event.step) == (1, 4):
        signal.raise_signal(signal.SIGTERM)
"""


def read(path):
    return json.loads(path.read_text("utf-8"))


def train(project, *arguments, status=0):
    assert main(["train", str(project), *map(str, arguments)]) == status


def test_each_seed_has_a_run_and_the_summary_their_mean_and_deviation(project, tmp_path, capsys):
    group = tmp_path / "group"
    train(project, "--runs", 3, "--out", group, "--set", "train.seed=4")
    assert {path.name for path in group.iterdir()} == {
        "group.json", "seed-4", "seed-5", "seed-6", "summary.json",
    }  # fmt: skip
    results = [read(group / f"seed-{seed}" / "result.json")["metrics"] for seed in (4, 5, 6)]
    summary = read(group / "summary.json")
    assert summary["seeds"] == [4, 5, 6]
    assert summary["metrics"].keys() == results[0].keys()
    for name, entry in summary["metrics"].items():
        values = [result[name] for result in results]
        assert len(set(values)) == 3
        assert entry["values"] == values
        assert entry["mean"] == pytest.approx(statistics.fmean(values))
        assert entry["deviation"] == pytest.approx(statistics.stdev(values))
    printed = capsys.readouterr().out
    entry = summary["metrics"]["test/loss"]
    row = rf"^test/loss +{entry['mean']:.4f} +{entry['deviation']:.4f}$"
    assert re.search(row, printed, re.MULTILINE)
    assert printed.splitlines()[-1] == f"saved in {group}"


def test_a_run_among_others_is_the_run_that_its_seed_makes_alone(project, tmp_path):
    train(project, "--runs", 2, "--out", tmp_path / "group")
    train(project, "--set", "train.seed=1", "--out", tmp_path / "alone")
    assert resume.differences(tmp_path / "alone", tmp_path / "group" / "seed-1") == []


def test_one_run_has_no_deviation(project, tmp_path):
    train(project, "--runs", 1, "--out", tmp_path / "group")
    assert read(tmp_path / "group" / "summary.json")["metrics"]["test/loss"]["deviation"] is None


def test_what_is_wrong_is_said_before_anything_is_made(project, tmp_path, capsys):
    train(project, "--runs", 2, "--out", tmp_path / "group", "--set", "solver.lr=-1", status=1)
    assert "learning rate=-1" in capsys.readouterr().err
    assert not (tmp_path / "group").exists()


def test_repeated_runs_go_on_where_they_were_ended(project, tmp_path, capsys):
    train(project, "--runs", 3, "--out", tmp_path / "whole")
    (project / "nnlfile.py").write_text(STOPPING, "utf-8")
    group = tmp_path / "group"
    train(project, "--runs", 3, "--out", group, status=128 + signal.SIGTERM)
    assert "1 of 3 runs are finished" in capsys.readouterr().out
    assert not (group / "seed-2").exists()
    assert not (group / "summary.json").exists()
    (project / "nnlfile.py").unlink()
    train(project, "--resume", group)
    for seed in range(3):
        name = f"seed-{seed}"
        assert resume.differences(tmp_path / "whole" / name, group / name) == []
    assert read(tmp_path / "whole" / "summary.json") == read(group / "summary.json")


def test_the_newest_group_goes_on_by_default(project, capsys):
    (project / "nnlfile.py").write_text(STOPPING, "utf-8")
    train(project, "--runs", 2, status=128 + signal.SIGTERM)
    (project / "nnlfile.py").unlink()
    train(project, "--resume")
    (group,) = (project / "runs").iterdir()
    assert read(group / "summary.json")["seeds"] == [0, 1]
