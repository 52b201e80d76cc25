"""``nnl runs``: lists and comparisons."""

from __future__ import annotations

import json

import pytest

from nnl_core.cli import main


@pytest.fixture
def runs(write_run, tmp_path, monkeypatch):
    """Three runs, of which one failed, beside a folder that is none."""
    monkeypatch.chdir(tmp_path)
    best = {"test/accuracy": {"value": 0.75, "epoch": 1, "step": 10}}
    history = [{"test/accuracy": 0.75}, {"test/accuracy": 0.5}]
    for name, accuracy, seed in (("a", 0.5, 0), ("b", 0.625, 1)):
        history = [{"test/accuracy": 0.75}, {"test/accuracy": accuracy}]
        settings = {"train": {"epochs": 2, "seed": seed}}
        write_run(tmp_path / "runs" / name, history, settings=settings, best=best)
    write_run(tmp_path / "runs" / "c", name="lenet")
    (tmp_path / "runs" / "d").mkdir()
    return tmp_path / "runs"


def printed(capsys, *arguments):
    assert main(["runs", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def names(capsys, *arguments):
    entries = json.loads(printed(capsys, *arguments, "--json"))
    return "".join(entry["folder"][-1] for entry in entries)


def test_a_list_has_a_line_for_each_run_and_one_for_each_problem(runs, capsys):
    lines = [line.split() for line in printed(capsys, runs).splitlines()]
    assert lines[0] == ["began", "run", "state", "epochs", "test/accuracy"]
    start = ["2026-11-30", "15:56:18"]
    assert lines[1] == [*start, "a", "finished", "2/2", "0.5", "(best", "0.75)"]
    assert lines[3] == [*start, "c", "failed", "0/3", "-"]
    assert lines[4] == ["d", "broken", "0", "-"]
    assert lines[5][:1] == ["c:"]
    assert lines[6] == ["d:", "it", "has", "no", "run.json"]


def test_the_runs_of_the_folder_one_is_in_are_listed_by_default(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs)
    assert names(capsys) == "abcd"


def test_json_tells_all_of_a_run(runs, capsys):
    entry = json.loads(printed(capsys, runs, "--json"))[0]
    assert entry == {
        "folder": str(runs / "a"),
        "name": "digits",
        "began": "2026-11-30T15:56:18+00:00",
        "state": "finished",
        "problem": None,
        "epochs": 2,
        "planned_epochs": 2,
        "seconds": 61.5,
        "stopped": None,
        "metrics": {"test/accuracy": 0.5},
        "best": {"test/accuracy": {"value": 0.75, "epoch": 1}},
    }


def test_json_has_null_for_what_is_not_finite(write_run, tmp_path, capsys):
    write_run(tmp_path / "a", [{"train/loss": None}])
    assert json.loads(printed(capsys, tmp_path / "a", "--json"))[0]["metrics"] == {
        "train/loss": None
    }


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("state=finished", "ab"),
        ("run=le*", "c"),
        ("test/accuracy>0.5", "b"),
        ("test/accuracy>=0.5", "ab"),
        ("test/accuracy<0.6", "a"),
        ("epochs<=0", "cd"),
        ("train.seed=1", "b"),
        ("train.seed<1", "ac"),
    ],
)
def test_a_filter_keeps_the_runs_that_pass(runs, capsys, test, expected):
    assert names(capsys, runs, "--filter", test) == expected


def test_of_several_filters_all_must_be_passed(runs, capsys):
    assert names(capsys, runs, "--filter", "state=finished", "--filter", "train.seed=1") == "b"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--reverse"], "dcba"),
        (["--sort", "test/accuracy"], "abcd"),
        (["--sort", "test/accuracy", "--reverse"], "bacd"),
        (["--sort", "train.seed", "--reverse"], "bacd"),
        (["--sort", "state"], "dcab"),
    ],
)
def test_runs_are_sorted_and_those_without_a_value_come_last(runs, capsys, options, expected):
    assert names(capsys, runs, *options) == expected


def test_a_comparison_shows_what_differs_and_what_came_of_it(runs, capsys):
    lines = printed(capsys, "compare", runs / "a", runs / "b").splitlines()
    rows = {line.rsplit(maxsplit=2)[0]: line.split()[-2:] for line in lines[1:]}
    assert lines[0].split() == ["a", "b"]
    assert rows["train.seed"] == ["0", "1"]
    assert rows["test/accuracy"] == ["0.5", "0.625"]
    assert rows["best test/accuracy"] == ["0.75", "0.75"]
    assert "train.epochs" not in rows


def test_a_comparison_as_json_has_runs_and_settings(runs, capsys):
    found = json.loads(printed(capsys, "compare", runs / "a", runs / "b", "--json"))
    assert [entry["name"] for entry in found["runs"]] == ["digits", "digits"]
    assert found["settings"] == {"train.seed": [0, 1]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no folder nowhere"),
        (["compare", "runs/a"], "compare needs two runs or more, not 1"),
        (["runs", "--filter", "finished"], "write it like state=finished"),
        (["runs", "--filter", "epochs>many"], "'many' is no number"),
        (
            ["runs", "--filter", "seed=1"],
            "--filter seed: no run has that; did you mean 'train.seed'?",
        ),
        (["runs", "--sort", "test/acuracy"], "--sort test/acuracy: no run has that; did you mean"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(runs, capsys, arguments, message):
    assert main(["runs", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
