"""``nnl onn search`` on a small project."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib

import numpy as np
import pytest

from nnl_core.cli import main

SETTINGS = """
[model]
loss = "squared_error"
layers = [
    { layer = "onn.operational", name = "hidden", outmaps = 4, kernel = [3], pad = "same" },
    { layer = "onn.operational", outmaps = 1, kernel = [3], operators.activation = "identity" },
]

[data.train]
source = "signals.npz"

[data.validation]
source = "signals.npz"

[solver]
name = "Adam"
alpha = 0.02

[train]
epochs = 2
batch_size = 8
"""
SETS = ["--nodal", "mul", "quadratic", "sine"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project that learns to square signals."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).uniform(-1, 1, (16, 1, 12)).astype(np.float32)
    np.savez(tmp_path / "signals.npz", x=x, y=x[..., 1:-1] ** 2)
    (tmp_path / "nnl.toml").write_text(SETTINGS, "utf-8")
    return tmp_path


def search(project, *options):
    return main(["onn", "search", str(project), *SETS, *options])


def trials(project):
    lines = (project / "search" / "trials.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines[1:]]


def test_the_best_sets_are_those_of_the_lowest_score(project, capsys):
    assert search(project, "--method", "exhaustive") == 0
    tried = trials(project)
    assert [trial["assignment"] for trial in tried] == [[a, b] for a in range(3) for b in range(3)]
    lowest = min(tried, key=lambda trial: trial["score"])
    best = json.loads((project / "search" / "best.json").read_text("utf-8"))
    nodal = [layer["nodal"] for layer in best["layers"].values()]
    assert nodal == [SETS[1 + n] for n in lowest["assignment"]]
    assert best["validation/loss"] == pytest.approx(lowest["score"])


def test_what_it_prints_fits_into_the_project_file(project, capsys):
    assert search(project, "--layers", "hidden") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("hidden:")]
    operators = tomllib.loads(line.removeprefix("hidden: "))["operators"]
    assert set(operators) == {"nodal", "pool", "activation"}


def test_a_search_gives_the_same_again_and_goes_on_where_it_ended(project, capsys):
    assert search(project) == 0
    log = project / "search" / "trials.jsonl"
    whole = log.read_bytes()
    log.write_bytes(b"".join(whole.splitlines(keepends=True)[:3]) + b'{"assi')
    capsys.readouterr()
    assert search(project) == 0
    assert log.read_bytes() == whole
    assert "trial 2:" not in capsys.readouterr().out


def test_a_search_that_is_killed_goes_on_to_the_same_log(project, capsys):
    device = ["--device", "numpy"]
    assert search(project, *device) == 0
    log = project / "search" / "trials.jsonl"
    whole = log.read_bytes()
    log.unlink()
    text = f"from nnl_core.cli import main; main(['onn', 'search', '.', *{SETS + device}])"
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith("trial 3:"))
        process.kill()
    begun = log.read_bytes()
    assert 3 <= begun.count(b"\n") < whole.count(b"\n")
    assert whole.startswith(begun[: begun.rfind(b"\n") + 1])
    assert search(project, *device) == 0
    assert log.read_bytes() == whole


def test_a_layer_is_found_by_its_place_and_once(project, capsys):
    assert search(project, "--layers", "0", "hidden") == 0
    assert [len(trial["assignment"]) for trial in trials(project)] == [1] * 3


def test_a_layer_keeps_what_is_not_searched(project, capsys):
    assert search(project, "--pool", "max") == 0
    best = json.loads((project / "search" / "best.json").read_text("utf-8"))
    output = best["layers"]["layer1"]
    assert (output["pool"], output["activation"]) == ("max", "identity")


def test_a_metric_that_rises_is_made_high(project, capsys):
    metric = ["--metric", "validation/psnr", "--set", 'model.metrics=["psnr"]']
    assert search(project, "--layers", "hidden", *metric) == 0
    highest = max(-trial["score"] for trial in trials(project))
    best = json.loads((project / "search" / "best.json").read_text("utf-8"))
    assert best["validation/psnr"] == highest > 0
    assert f"best validation/psnr of 3 trainings: {highest:.6g}" in capsys.readouterr().out


def test_a_metric_that_is_not_measured_is_named(project, capsys):
    assert search(project, "--metric", "validation/snr") == 1
    assert "did not measure 'validation/snr'" in capsys.readouterr().err


def test_plasticity_makes_an_elite_of_each_hidden_layer(project, capsys):
    assert search(project, "--method", "plasticity", "--runs", "2", "--elite", "2") == 0
    best = json.loads((project / "search" / "best.json").read_text("utf-8"))
    assert list(best["layers"]) == ["hidden"]
    assert len(best["layers"]["hidden"]) == 4
    health = best["health"]["hidden"]
    names = {one["nodal"] for one in best["layers"]["hidden"]}
    assert names <= set(sorted(health, key=health.get)[-2:])


def test_an_elite_can_be_trained(project, capsys):
    assert search(project, "--method", "plasticity") == 0
    best = json.loads((project / "search" / "best.json").read_text("utf-8"))
    text = ", ".join(f'{{ nodal = "{one["nodal"]}" }}' for one in best["layers"]["hidden"])
    settings = SETTINGS.replace('name = "hidden"', f'name = "hidden", operators = [{text}]')
    (project / "nnl.toml").write_text(settings, "utf-8")
    assert main(["train", str(project)]) == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--layers", "hiden"], "there is no layer 'hiden'"),
        (["--nodal", "sine", "cosin"], "cosin"),
        (["--runs", "0"], "--runs 0: say 1 or more"),
        (["--method", "plasticity", "--layers", "1"], "has no outgoing weights"),
    ],
)
def test_what_cannot_be_is_one_line(project, capsys, options, complaint):
    assert search(project, *options) == 1
    assert complaint in capsys.readouterr().err
    assert not (project / "search").exists() or not trials(project)


def test_other_settings_are_another_search(project, capsys):
    assert search(project, "--layers", "hidden") == 0
    assert search(project, "--layers", "hidden", "--set", "train.epochs=1") == 1
    assert "settings.train.epochs" in capsys.readouterr().err
