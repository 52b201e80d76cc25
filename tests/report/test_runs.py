"""Reading the folders of runs, in whatever state they are."""

from __future__ import annotations

import json
import math

import pytest

from nnl_core.errors import DataError, TrainingError
from nnl_core.training.run_folder import note_failure
from nnl_core.training.run_lock import locked
from nnl_core.training.runs import Best, compare_settings, list_runs, newest_run, summary_of


def test_a_finished_run_tells_what_came_of_it(write_run, tmp_path):
    best = {"test/loss": {"value": 0.25, "epoch": 1, "step": 10}}
    folder = write_run(tmp_path / "a", [{"test/loss": 0.25}, {"test/loss": 0.5}], best=best)
    run = summary_of(folder)
    assert (run.state, run.name, run.epochs, run.planned_epochs) == ("finished", "digits", 2, 3)
    assert run.metrics == {"test/loss": 0.5}
    assert run.best == {"test/loss": Best(0.25, 1)}
    assert run.history == ({"test/loss": 0.25}, {"test/loss": 0.5})


@pytest.mark.parametrize("reason", ["interrupted", "terminated", "the terminal has gone"])
def test_a_run_that_somebody_ended_is_interrupted(write_run, tmp_path, reason):
    assert summary_of(write_run(tmp_path / "a", [{}], stopped=reason)).state == "interrupted"


def test_a_run_that_ended_itself_early_is_finished(write_run, tmp_path):
    run = summary_of(write_run(tmp_path / "a", [{}], stopped="no better for 5 epochs"))
    assert (run.state, run.stopped) == ("finished", "no better for 5 epochs")


@pytest.mark.parametrize("history", [None, [{"train/loss": 1.0}]])
def test_a_run_whose_folder_somebody_writes_is_running(write_run, tmp_path, history):
    folder = write_run(tmp_path / "a", history)
    with locked(folder):
        assert summary_of(folder).state == "running"


def test_a_run_that_nobody_writes_and_that_has_no_result_has_failed(write_run, tmp_path):
    folder = write_run(tmp_path / "a")
    with locked(folder):
        pass
    run = summary_of(folder)
    assert run.state == "failed"
    assert "ended without a result" in run.problem


def test_a_run_that_could_say_why_it_failed_is_quoted(write_run, tmp_path):
    folder = write_run(tmp_path / "a")
    note_failure(folder, TrainingError("the loss is nan at step 3"))
    assert summary_of(folder).problem == "the loss is nan at step 3"


def test_an_unfinished_run_has_the_numbers_of_its_log_up_to_the_torn_line(write_run, tmp_path):
    folder = write_run(tmp_path / "a")
    lines = [
        {"step": 5, "name": "loss", "value": 9.0, "seconds": 0.5},
        {"step": 10, "name": "train/loss", "value": 2.0, "seconds": 1.0},
        {"step": 10, "name": "test/loss", "value": None, "seconds": 1.5},
        {"step": 20, "name": "train/loss", "value": 1.0, "seconds": 2.0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '{"step": 20, "na', "utf-8")
    run = summary_of(folder)
    assert run.epochs == 2
    assert run.history[0]["train/loss"] == 2.0
    assert math.isnan(run.history[0]["test/loss"])
    assert run.metrics == {"train/loss": 1.0}
    assert run.seconds == 2.0


def test_null_stands_for_what_was_not_finite(write_run, tmp_path):
    run = summary_of(write_run(tmp_path / "a", [{"train/loss": None}]))
    assert math.isnan(run.metrics["train/loss"])


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("run.json", None, "it has no run.json"),
        ("run.json", b"", "cannot read"),
        ("run.json", b"\xff\xfe\x00", "cannot read"),
        ("run.json", b"[1, 2]", "holds no table"),
        ("run.json", b'{"settings": 3}', "settings are no table"),
        ("result.json", b'{"epochs": 1', "cannot read"),
        ("result.json", b"{}", "KeyError: 'epochs'"),
        ("result.json", b'{"epochs": 1, "seconds": "x", "metrics": {}}', "ValueError"),
        ("result.json", b'{"epochs": 1, "seconds": 1, "metrics": [], "history": []}', "cannot"),
    ],
)
def test_a_folder_that_cannot_be_read_is_named_among_the_others(
    write_run, tmp_path, name, content, problem
):
    write_run(tmp_path / "a", [{}])
    broken = write_run(tmp_path / "b", [{}])
    write_run(tmp_path / "c", [{}])
    if content is None:
        (broken / name).unlink()
    else:
        (broken / name).write_bytes(content)
    runs = list_runs(tmp_path)
    assert [run.state for run in runs] == ["finished", "broken", "finished"]
    assert problem in runs[1].problem
    assert runs[1].folder == broken


def test_a_project_s_runs_are_where_it_puts_them(write_run, tmp_path):
    (tmp_path / "nnl.toml").write_text('[train]\nfolder = "elsewhere"\n', "utf-8")
    write_run(tmp_path / "elsewhere" / "a", [{}])
    (tmp_path / "data").mkdir()
    assert [run.folder.name for run in list_runs(tmp_path)] == ["a"]


def test_the_runs_of_a_project_with_a_broken_file_are_found(write_run, tmp_path):
    (tmp_path / "nnl.toml").write_text("what is this", "utf-8")
    write_run(tmp_path / "runs" / "a", [{}])
    assert [run.folder.name for run in list_runs(tmp_path)] == ["a"]


def test_a_project_without_runs_has_none(tmp_path):
    (tmp_path / "nnl.toml").write_text("", "utf-8")
    assert list_runs(tmp_path) == []


def test_repeated_runs_are_listed_one_by_one(write_run, tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / "20261130-digits" / f"seed-{seed}", [{}])
    (tmp_path / "20261130-digits" / "group.json").write_text("{}", "utf-8")
    titles = [run.title for run in list_runs(tmp_path)]
    assert titles == ["20261130-digits/seed-0", "20261130-digits/seed-1"]


def test_hidden_folders_and_files_are_no_runs(tmp_path):
    (tmp_path / ".drafts").mkdir()
    (tmp_path / "notes.txt").touch()
    assert list_runs(tmp_path) == []


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no folder"):
        list_runs(tmp_path / "nowhere")


def test_the_newest_run_is_the_one_that_began_last(write_run, tmp_path):
    write_run(tmp_path / "z", [{}])
    newer = write_run(tmp_path / "a", [{}])
    description = json.loads((newer / "run.json").read_text("utf-8"))
    description["started"] = "2026-12-01T00:00:00+00:00"
    (newer / "run.json").write_text(json.dumps(description), "utf-8")
    (tmp_path / "zz").mkdir()  # broken
    assert newest_run(tmp_path) == newer


def test_a_run_is_its_own_newest(write_run, tmp_path):
    folder = write_run(tmp_path / "a", [{}])
    write_run(tmp_path / "b", [{}])
    assert newest_run(folder) == folder


def test_where_there_is_no_run_there_is_no_newest(tmp_path):
    with pytest.raises(DataError, match="no run, nor has it any; `nnl train` makes one"):
        newest_run(tmp_path)


def test_only_settings_that_differ_are_compared(write_run, tmp_path):
    common = {"solver": {"name": "Adam"}}
    settings = [
        {**common, "train": {"epochs": 3, "seed": 0}},
        {**common, "train": {"epochs": 5, "seed": 0}, "backend": "numpy"},
    ]
    runs = [
        summary_of(write_run(tmp_path / name, [{}], settings=table))
        for name, table in zip("ab", settings, strict=True)
    ]
    assert compare_settings(runs) == {"train.epochs": [3, 5], "backend": [None, "numpy"]}
