"""Runs that go on: as if they had never stopped, or with a word on why they cannot."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import resume
from nnl_core.cli import main
from nnl_core.io import load
from nnl_core.training.run_lock import is_locked, locked

ROOT = Path(__file__).parents[2]
# Everything at once: batches in parts, averages, a loss scale, a plateau, noise, plugins.
MODEL = """
from nnl_core import F, PF

def line(x, training):
    h = F.relu(PF.affine(x, 8, name="hidden"))
    return PF.affine(F.dropout(h, 0.2) if training else h, 1, name="line")
"""
SETTINGS = """
plugins = ["metrics_log"]

[model]
function = "model:line"
loss = "squared_error"
metrics = ["absolute_error"]

[data.train]
source = "points.npz"
fields.x = { array = "train_x", shape = [1], divide = 10 }
fields.y = { array = "train_y", shape = [1] }

[data.validation]
source = "points.npz"
fields.x = { array = "test_x", shape = [1], divide = 10 }
fields.y = { array = "test_y", shape = [1] }

[solver]
name = "Adam"
alpha = 0.01
average = 0.9
loss_scale = { scale = 1024, interval = 5 }
schedule.name = "plateau"
schedule.metric = "validation/loss"
schedule.factor = 0.5
schedule.patience = 0
schedule.threshold = 0.3

[train]
epochs = 4
batch_size = 8
accumulate = 2

[checkpoints]
every_steps = 3
best = "validation/loss"
"""
STOPPING = """
import signal

STEPS = {steps}

def nnl_on_step_end(event):
    if event.step in STEPS:
        signal.raise_signal({signal})

class State:
    count = 0

def nnl_on_update_end(event):
    State.count += 1
    event.trainer.report("count", State.count)

def nnl_on_checkpoint_save(event):
    event.checkpoint.plugins["nnlfile"] = {{"count": State.count}}

def nnl_on_checkpoint_load(event):
    State.count = event.checkpoint.plugins["nnlfile"]["count"]
"""


@pytest.fixture
def rich_project(project):
    (project / "model.py").write_text(MODEL, "utf-8")
    (project / "nnl.toml").write_text(SETTINGS, "utf-8")
    stop_after(project, [])
    return project


def stop_after(project, steps, number="signal.SIGINT"):
    text = STOPPING.format(steps=steps, signal=number)
    (project / "nnlfile.py").write_text(text, "utf-8")


def train(project, *arguments, status=0):
    assert main(["train", str(project), *map(str, arguments)]) == status


def result_of(run):
    return json.loads((run / "result.json").read_text("utf-8"))


def last_error(capsys):
    return capsys.readouterr().err.splitlines()[-1]


def assert_same(one, other):
    assert resume.differences(one, other) == []
    results = [result_of(run) for run in (one, other)]
    for result in results:
        del result["seconds"]
    assert results[0] == results[1]


def interrupted(project, out, steps):
    """Train until after some steps, in a folder whose copies of sources stop no more."""
    stop_after(project, steps)
    train(project, "--out", out, status=130)
    stop_after(project, [])
    shutil.copy(project / "nnlfile.py", out / "source")
    return out


def test_a_run_goes_on_bit_for_bit_wherever_it_was_interrupted(rich_project, tmp_path):
    train(rich_project, "--out", tmp_path / "whole")
    for step in (0, 4, 5, 6, 20):  # 7 steps an epoch: in the middle, near the end, at the end
        run = interrupted(rich_project, tmp_path / f"cut-{step}", [step])
        assert result_of(run)["steps"] == step + 1
        train(rich_project, "--resume", run)
        assert_same(tmp_path / "whole", run)


@pytest.mark.parametrize(
    "train_table",
    [
        'epochs = 4\nworkers = 2\nworker_kind = "thread"',
        "epochs = 4\nworkers = 1",
        'epochs = 4\nlast_batch = "pad"',
        "epochs = 4\nevaluate_every_steps = 4",
        "steps = 17\nevaluate_every = 2",
    ],
)
def test_all_ways_to_train_go_on_bit_for_bit(rich_project, tmp_path, train_table):
    text = (rich_project / "nnl.toml").read_text("utf-8")
    text = text.replace("epochs = 4", train_table)
    (rich_project / "nnl.toml").write_text(text, "utf-8")
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(rich_project, "--out", whole)
    interrupted(rich_project, run, [11])
    train(rich_project, "--resume", run)
    assert_same(whole, run)


@pytest.mark.parametrize("precision", ["mixed_float16", "mixed_bfloat16"])
def test_runs_in_mixed_precision_go_on_bit_for_bit(rich_project, tmp_path, precision):
    text = (rich_project / "nnl.toml").read_text("utf-8")
    (rich_project / "nnl.toml").write_text(f'precision = "{precision}"\n{text}', "utf-8")
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(rich_project, "--out", whole)
    interrupted(rich_project, run, [11])
    train(rich_project, "--resume", run)
    assert_same(whole, run)


def test_a_run_goes_on_from_an_older_checkpoint_too(rich_project, tmp_path):
    train(rich_project, "--out", tmp_path / "whole", "--set", "checkpoints.keep=9")
    run = tmp_path / "again"
    train(rich_project, "--out", run, "--set", "checkpoints.keep=9")
    assert (run / "checkpoints" / "24").is_dir()
    train(rich_project, "--resume", run, "--checkpoint", 9)
    assert_same(tmp_path / "whole", run)


def test_a_run_may_be_lengthened(rich_project, tmp_path, capsys):
    run, whole = tmp_path / "run", tmp_path / "whole"
    train(rich_project, "--out", whole)
    train(rich_project, "--out", run, "--set", "train.epochs=2")
    train(rich_project, "--resume", run, "--set", "train.epochs=4")
    assert_same(whole, run)
    train(rich_project, "--resume", run, "--set", "train.epochs=5")
    assert result_of(run)["epochs"] == 5
    assert main(["train", str(rich_project), "--resume", str(run)]) == 1
    error = last_error(capsys)
    assert f"{run} has finished, after 5 epochs; --set train.epochs=10 lets it go on" in error


def test_the_newest_run_of_the_project_is_the_default(rich_project, capsys):
    train(rich_project, "--set", "train.epochs=1")
    stop_after(rich_project, [3])
    train(rich_project, "--name", "second", status=130)
    shutil.rmtree(rich_project / "nnlfile.py", ignore_errors=True)
    second = next((rich_project / "runs").glob("*-second"))
    stop_after(rich_project, [])
    shutil.copy(rich_project / "nnlfile.py", second / "source")
    train(rich_project, "--resume")
    assert result_of(second)["epochs"] == 4
    assert f"going on with {second} after 4 steps" in capsys.readouterr().out


def test_a_project_in_place_of_a_run_stands_for_its_newest(rich_project, capsys):
    interrupted(rich_project, rich_project / "runs" / "one", [3])
    train(rich_project, "--resume", rich_project)
    assert "going on with" in capsys.readouterr().out
    assert result_of(rich_project / "runs" / "one")["stopped"] is None


def test_a_project_without_runs_is_told(project, capsys):
    assert main(["train", str(project), "--resume"]) == 1
    assert "nor has it any" in last_error(capsys)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("alpha = 0.01", "alpha = 0.02", "solver.alpha is 0.02, and was 0.01 when the run began"),
        ("batch_size = 8", "batch_size = 9", "train.batch_size is 9, and was 8"),
        (
            "epochs = 4",
            "epochs = 3",
            "train.epochs is 3, and was 4 when the run began; it may only",
        ),
        ("average = 0.9", "", "solver.average is None, and was 0.9"),
        ("schedule.factor = 0.5", "", "solver.schedule.factor is not there, and was 0.5"),
    ],
)
def test_what_differs_in_the_project_file_is_named(
    rich_project, tmp_path, capsys, old, new, message
):
    run = interrupted(rich_project, tmp_path / "run", [3])
    text = (rich_project / "nnl.toml").read_text("utf-8")
    assert old in text
    (rich_project / "nnl.toml").write_text(text.replace(old, new), "utf-8")
    before = (run / "run.json").read_bytes()
    assert main(["train", str(rich_project), "--resume", str(run)]) == 1
    assert message in last_error(capsys)
    assert (run / "run.json").read_bytes() == before
    assert (run / "result.json").is_file()


def test_settings_of_the_command_line_are_remembered(rich_project, tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(rich_project, "--out", whole, "--set", "solver.alpha=0.05")
    stop_after(rich_project, [8])
    train(rich_project, "--out", run, "--set", "solver.alpha=0.05", status=130)
    stop_after(rich_project, [])
    shutil.copy(rich_project / "nnlfile.py", run / "source")
    train(rich_project, "--resume", run)
    assert_same(whole, run)


def test_a_run_goes_on_with_its_own_sources_and_says_what_has_changed(
    rich_project, tmp_path, capsys
):
    train(rich_project, "--out", tmp_path / "whole")
    run = interrupted(rich_project, tmp_path / "run", [3])
    (rich_project / "model.py").write_text(MODEL.replace("8", "9"), "utf-8")
    capsys.readouterr()
    train(rich_project, "--resume", run)
    warnings = capsys.readouterr().err.splitlines()
    assert warnings == [
        "nnl: warning: model.py has changed since the run began, which goes on with what it was"
    ]
    assert_same(tmp_path / "whole", run)


def test_a_run_does_not_go_on_without_a_plugin_that_it_began_with(rich_project, tmp_path, capsys):
    stop_after(rich_project, [3])
    run = tmp_path / "run"
    assert main(["-p", "progress", "train", str(rich_project), "--out", str(run)]) == 130
    assert main(["train", str(rich_project), "--resume", str(run)]) == 1
    assert "began with plugin 'progress'" in (error := last_error(capsys))
    assert "-p progress" in error


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(rich_project, tmp_path, capsys):
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(rich_project, "--out", whole)
    text = (rich_project / "nnl.toml").read_text("utf-8")
    (rich_project / "nnl.toml").write_text(text.replace("[checkpoints]", "[checkpoints]\nkeep = 2"))
    interrupted(rich_project, run, [9])
    damaged = run / "checkpoints" / "10" / "parameters.safetensors"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 4
    damaged.write_bytes(content)
    capsys.readouterr()
    assert main(["train", str(rich_project), "--resume", str(run), "--checkpoint", "10"]) == 1
    error = last_error(capsys)
    assert f"{damaged}: damaged" in error and error.endswith("--checkpoint 9")
    train(rich_project, "--resume", run)
    assert f"{damaged}: damaged" in capsys.readouterr().err
    assert resume.log_of(whole) == resume.log_of(run)
    assert result_of(whole)["history"] == result_of(run)["history"]


def test_a_run_without_checkpoints_cannot_go_on(rich_project, tmp_path, capsys):
    stop_after(rich_project, [3])
    run = tmp_path / "run"
    train(rich_project, "--out", run, "--set", "checkpoints.keep=0", status=130)
    assert not (run / "checkpoints").exists()
    assert main(["train", str(rich_project), "--resume", str(run)]) == 1
    assert "there is no checkpoint to go on from" in last_error(capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--checkpoint", "3"], "--checkpoint goes with --resume"),
        (["--resume", "--name", "x"], "--resume goes on with a run as it is, without --name"),
        (["--resume", "--runs", "2"], "without --runs"),
        (["--runs", "0"], "--runs 0: say 1 or more"),
        (["--resume", "nowhere"], "no folder nowhere"),
    ],
)
def test_options_that_make_no_sense_are_refused(project, capsys, options, message):
    assert main(["train", str(project), *options]) == 1
    assert message in last_error(capsys)


# -------------------------------------------------------------------- one process at a time


def test_a_folder_is_written_by_one_process(rich_project, tmp_path, capsys):
    run = interrupted(rich_project, tmp_path / "run", [3])
    assert not is_locked(run)
    with locked(run):
        assert is_locked(run)
        assert main(["train", str(rich_project), "--resume", str(run)]) == 1
    error = last_error(capsys)
    assert f"{run} is being written by process {os.getpid()} on " in error
    train(rich_project, "--resume", run)


# -------------------------------------------------------------------- ends of all kinds


def start(project, *arguments, **keywords):
    code = "import sys; from nnl_core.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, "train", str(project), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        **keywords,
    )


@pytest.mark.parametrize(
    ("number", "status", "reason"),
    [
        ("SIGINT", 130, "interrupted"),
        ("SIGTERM", 143, "terminated"),
        ("SIGHUP", 129, "the terminal has gone"),
    ],
)
def test_a_signal_ends_a_run_with_its_step_and_a_checkpoint(
    rich_project, tmp_path, number, status, reason
):
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(rich_project, "--out", whole)
    stop_after(rich_project, [7], f"signal.{number}")
    train(rich_project, "--out", run, status=status)
    assert (result_of(run)["steps"], result_of(run)["stopped"]) == (8, reason)
    assert (run / "checkpoints" / "8").is_dir()
    stop_after(rich_project, [])
    shutil.copy(rich_project / "nnlfile.py", run / "source")
    train(rich_project, "--resume", run)
    assert_same(whole, run)


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_second_signal_ends_it_at_once(rich_project, tmp_path, number, status):
    twice = f"[signal.raise_signal(signal.{number}) for _ in range(2)]"
    text = STOPPING.format(steps=[4], signal="0").replace("signal.raise_signal(0)", twice)
    (rich_project / "nnlfile.py").write_text(text, "utf-8")
    run = tmp_path / "run"
    train(rich_project, "--out", run, status=status)
    assert not (run / "result.json").exists()
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["3"]


def test_signals_that_the_process_ignores_stay_ignored(rich_project, tmp_path):
    stop_after(rich_project, [4], "signal.SIGHUP")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        train(rich_project, "--out", tmp_path / "run")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert result_of(tmp_path / "run")["epochs"] == 4


def test_a_run_whose_output_nobody_reads_any_more_goes_on(rich_project, tmp_path):
    text = (rich_project / "nnl.toml").read_text("utf-8")
    text = text.replace('["metrics_log"]', '["metrics_log", "progress"]')
    (rich_project / "nnl.toml").write_text(text, "utf-8")
    reader, writer = os.pipe()
    os.close(reader)
    run = tmp_path / "run"
    process = start(rich_project, "--out", run, stdout=writer, stderr=writer)
    os.close(writer)
    assert process.wait(timeout=300) == 0
    assert result_of(run)["epochs"] == 4
    assert len(resume.log_of(run)) == 4 * (2 * 7 + 4)


def test_a_run_without_any_output_goes_on(rich_project, tmp_path):
    closed = f"""
import os, sys
os.close(1); os.close(2)
os.execv(sys.executable, [sys.executable, "-c", "import sys; from nnl_core.cli import main; "
    "sys.exit(main())", "-p", "progress", "train", {str(rich_project)!r}, "--out", "run"])
"""
    process = subprocess.run(
        [sys.executable, "-c", closed],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=300,
    )
    assert process.returncode == 0
    assert result_of(tmp_path / "run")["epochs"] == 4


def test_a_full_disk_ends_a_run_with_one_line_and_leaves_the_checkpoint_before(
    rich_project, tmp_path, capsys, monkeypatch
):
    import nnl_core.training.checkpoint_files as files

    real = files.synchronise

    def full(folder):
        if folder.name == ".draft-6":
            raise OSError(28, "No space left on device")
        real(folder)

    monkeypatch.setattr(files, "synchronise", full)
    run = tmp_path / "run"
    train(rich_project, "--out", run, status=1)
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 1
    assert f"{run / 'checkpoints' / '6'}: the checkpoint cannot be written: No space" in printed[0]
    monkeypatch.setattr(files, "synchronise", real)
    train(rich_project, "--resume", run)
    train(rich_project, "--out", tmp_path / "whole")
    assert_same(tmp_path / "whole", run)


def test_a_run_that_is_killed_three_times_ends_like_one_that_is_not(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    resume.make_project(folder)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert resume.nnl(0, "train", folder, "--out", whole) == 0
    kills = resume.killed(folder, cut, 3, 500)
    assert len(kills) == 3
    assert resume.differences(whole, cut) == []


def test_a_run_of_npz_files_goes_on_too(rich_project, tmp_path, monkeypatch):
    for name in ("checkpoint_files", "run_folder"):
        monkeypatch.setattr(f"nnl_core.training.{name}.find_spec", lambda name: None)
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(rich_project, "--out", whole)
    interrupted(rich_project, run, [8])
    train(rich_project, "--resume", run)
    one, other = (load(folder / "parameters.npz").parameters for folder in (whole, run))
    for name, entry in one.items():
        np.testing.assert_array_equal(entry.array, other[name].array)


def test_a_run_whose_terminal_is_closed_saves_and_stops(rich_project, tmp_path):
    run = tmp_path / "run"
    code = """
import fcntl, os, sys, termios
from nnl_core.cli import main
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.exit(main())
"""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", code, "-p", "progress", "train", rich_project),
            *("--out", run, "--set", "train.epochs=1000000"),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    while b"epoch 1/" not in shown:
        shown += os.read(ours, 10_000)
    os.close(ours)
    assert process.wait(timeout=300) == 129
    result = result_of(run)
    assert result["stopped"] == "the terminal has gone"
    assert (run / "checkpoints" / str(result["steps"])).is_dir()
