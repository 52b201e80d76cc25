"""Metrics in a project file, and what becomes of them in a run and in `nnl eval`."""

from __future__ import annotations

import json

import pytest

from nnl_core.cli import main

METRICS = """metrics = [
    "absolute_error",
    { name = "model:distance", as = "far", higher_is_better = false },
    { name = "recall", average = "each" },
]
"""

VALIDATION = """
[data.validation]
source = "points.npz"
fields.x = { array = "test_x", shape = [1], divide = 10 }
fields.y = "test_y"
"""


@pytest.fixture
def measured(project):
    text = (project / "nnl.toml").read_text("utf-8")
    text = text.replace('metrics = ["model:distance"]\n', METRICS)
    text += 'evaluate = ["validation", "test"]\nevaluate_every = 2\n'
    text += VALIDATION
    (project / "nnl.toml").write_text(text, "utf-8")
    return project


def trained(project, *options):
    assert main(["train", str(project), "--out", "run", *options]) == 0
    with open("run/result.json", encoding="utf-8") as file:
        return json.load(file)


def test_a_run_evaluates_the_data_sets_that_the_project_names(measured):
    history = trained(measured)["history"]
    assert ["validation/far" in m and "test/far" in m for m in history] == [False, True, True]
    assert all(m["test/far"] == pytest.approx(m["test/absolute_error"]) for m in history[1:])


def test_a_run_keeps_the_best_of_each_metric(measured):
    result = trained(measured)
    points = [(m["test/far"], epoch) for epoch, m in enumerate(result["history"], 1) if epoch > 1]
    best = result["best"]["test/far"]
    assert (best["value"], best["epoch"]) == min(points)


def test_a_run_keeps_tables_apart_from_numbers(measured, capsys):
    result = trained(measured)
    assert len(result["tables"]["test/recall"]) == 1
    assert "test/recall" not in result["metrics"]
    assert "recall" not in capsys.readouterr().out


def test_evaluating_prints_tables_after_the_numbers(measured, capsys):
    recall = trained(measured)["tables"]["test/recall"]
    capsys.readouterr()
    assert main(["eval", "run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "test recall:"
    assert float(lines[-1].strip("[ ]")) == pytest.approx(recall[0], abs=1e-3)
    assert main(["eval", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recall"] == recall


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ('{ name = "acuracy" }', "did you mean 'accuracy'"),
        ('{ name = "top_n_accuracy", m = 3 }', "metric 'top_n_accuracy' takes no 'm'"),
        ('{ name = "model:distance", scale = 3 }', "metric 'distance' takes no 'scale'"),
        ('"model:distence"', "did you mean 'distance'"),
        ("{ n = 3 }", "model.metrics.0.name is missing"),
        ('"snr", "snr"', "two metrics are reported as 'snr'"),
        ('"ssim"', "metric 'ssim': output has shape (8, 1); images are its last two axes"),
    ],
)
def test_a_metric_that_does_not_work_is_one_line(project, capsys, metric, message):
    assert main(["train", str(project), "--set", f"model.metrics=[{metric}]"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("nnl: error: ")
    assert message in error
