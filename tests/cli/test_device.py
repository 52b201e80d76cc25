"""``--device``: where commands that run a model compute."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nnl_core.cli import main


def trained_on(folder, *options):
    assert main(["train", str(folder), *options]) == 0
    run = sorted((folder / "runs").iterdir())[-1]
    return run, json.loads((run / "run.json").read_text("utf-8"))


def test_a_run_is_on_the_device_that_is_named(project, capsys):
    text = (project / "nnl.toml").read_text("utf-8")
    (project / "nnl.toml").write_text('backend = "elsewhere"\n' + text, "utf-8")
    _, described = trained_on(project, "--device", "numpy")
    assert described["backend"] == "numpy"
    assert described["overrides"] == ['backend="numpy"']


@pytest.mark.parametrize("command", ["eval", "infer", "profile", "bench"])
def test_whatever_runs_a_model_takes_a_device(project, capsys, command):
    run, _ = trained_on(project)
    capsys.readouterr()
    np.save("inputs.npy", np.ones((2, 1)))
    place = {"profile": project}.get(command, run)
    more = {"infer": ["--input", "inputs.npy"], "bench": ["--runs", "1", "--warm-up", "0"]}
    for device, status in (("numpy", 0), ("abacus", 1)):
        arguments = [command, str(place), *more.get(command, []), "--device", device]
        assert main(arguments) == status
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("nnl: error: ")
    assert "backend = 'abacus': unknown backend 'abacus'" in last


def test_a_device_of_a_backend_without_any_is_one_line(project, capsys):
    assert main(["train", str(project), "--device", "numpy:1"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "there is no backend 'numpy:1': 'numpy' has no devices to choose from" in line


def test_the_last_of_device_and_set_counts(project, capsys):
    trained_on(project, "--device", "abacus", "--set", "backend=numpy")


def test_a_run_that_goes_on_keeps_its_device(project, capsys):
    run, _ = trained_on(project, "--set", "backend=numpy")
    capsys.readouterr()
    assert main(["train", "--resume", str(run), "--device", "native"]) == 1
    assert "backend is 'native', and was 'numpy' when the run began" in capsys.readouterr().err
