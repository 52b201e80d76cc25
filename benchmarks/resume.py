"""Whether a run that is killed again and again ends with the bits of one that never was."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.report import Report
from nnl_core.io import load

ROOT = Path(__file__).parents[1]
KILLS = 20
# A process that kills itself at a moment of its work: a step, or a call on the file system.
CHILD = """
import builtins, os, signal, sys

left = int(sys.argv[1])

def moment():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def watched(function):
    def call(*arguments, **keywords):
        moment()
        return function(*arguments, **keywords)
    return call

builtins.moment = moment
for name in ("fsync", "mkdir", "open", "rename", "replace", "unlink"):
    setattr(os, name, watched(getattr(os, name)))

from nnl_core.cli import main

sys.exit(main(sys.argv[2:]))
"""
NNLFILE = """
import builtins

def nnl_on_step_end(event):
    builtins.moment()

def nnl_on_update_end(event):
    builtins.moment()
"""


def run(rounds: int) -> Report:
    """Kill the MNIST example, cut to 64 steps, at 20 moments; the number of rounds is no matter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_project(folder)
        whole, cut = folder / "whole", folder / "cut"
        nnl(0, "train", folder, "--out", whole)
        rows = killed(folder, cut, KILLS, 150)
        problems = differences(whole, cut)
    return Report(
        f"A run killed {len(rows)} times by SIGKILL, and gone on with each time",
        ("kill", "newest checkpoint", "steps in the log"),
        rows,
        [
            "Parameters, checkpoints, history and log: "
            + ("; ".join(problems) or "as those of the run that was never killed, bit for bit.")
        ],
    )


def make_project(folder: Path) -> None:
    """Copy the MNIST example with 256 images, and a checkpoint after every second step."""
    example = ROOT / "examples" / "mnist"
    shutil.copy(example / "model.py", folder)
    with np.load(example / "mnist5k.npz") as arrays:
        np.savez(folder / "mnist5k.npz", **{name: arrays[name][:256] for name in arrays})
    text = (example / "nnl.toml").read_text("utf-8")
    for old, new in (
        ('plugins = ["progress", "metrics_log", "learning_curve"]', 'plugins = ["metrics_log"]'),
        ("epochs = 12", "epochs = 4"),
        ("batch_size = 64", "batch_size = 16"),
    ):
        assert old in text
        text = text.replace(old, new)
    text += "\n[checkpoints]\nevery_steps = 2\nkeep = 2\n"
    (folder / "nnl.toml").write_text(text, "utf-8")
    (folder / "nnlfile.py").write_text(NNLFILE, "utf-8")


def nnl(moments: int, *arguments: object) -> int:
    """Run ``nnl`` in a process that kills itself after so many moments; return its exit status."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(moments), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"nnl {' '.join(map(str, arguments))}: {done.stderr}")
    return done.returncode


def killed(folder: Path, run: Path, kills: int, most: int) -> list[tuple[int, int, int]]:
    """Train, killed so many times after at most ``most`` moments each, and then to the end."""
    generator, rows = random.Random(0), list[tuple[int, int, int]]()
    while True:
        moments = generator.randint(1, most) if len(rows) < kills else 0
        known = steps(run)
        if known:
            arguments: list[object] = ["train", folder, "--resume", run]
        else:
            shutil.rmtree(run, ignore_errors=True)
            arguments = ["train", folder, "--out", run]
        if nnl(moments, *arguments) == 0:
            return rows
        log = run / "metrics.jsonl"
        logged = log.read_text("utf-8").count('"loss"') if log.is_file() else 0
        rows.append((len(rows) + 1, max(steps(run), default=0), logged))


def steps(run: Path) -> list[int]:
    """Return the steps of a run's checkpoints."""
    return [int(path.name) for path in run.glob("checkpoints/*") if path.name.isdecimal()]


def differences(one: Path, other: Path) -> list[str]:
    """Return in what two runs differ that began alike; times are not compared."""
    found = []
    for name in ("parameters.safetensors", *(f"checkpoints/{step}" for step in steps(one))):
        paths = [run / name for run in (one, other)]
        if paths[0].is_dir():
            paths = [path / "solver.safetensors" for path in paths]
        if not paths[1].is_file() or arrays_of(paths[0]) != arrays_of(paths[1]):
            found.append(f"{name} differs")
    histories = [json.loads((run / "result.json").read_text("utf-8")) for run in (one, other)]
    if histories[0]["history"] != histories[1]["history"]:
        found.append("the history differs")
    if log_of(one) != log_of(other):
        found.append("metrics.jsonl differs")
    return found


def arrays_of(path: Path) -> dict[str, bytes]:
    """Return the elements of a file's arrays; the order of its metadata is of no account."""
    return {name: entry.array.tobytes() for name, entry in load(path).parameters.items()}


def log_of(run: Path) -> list[dict[str, object]]:
    """Return a run's log without the times."""
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
