"""The example that the README begins with, from end to end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("nnl.toml", "model.py", "mnist5k.npz")
# Two threads of BLAS that wait for each other on a busy machine take ten times as long as one.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}


def nnl(*arguments, cwd):
    code = "import sys; from nnl_core.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The example, trained as it stands: its folder, and what was printed."""
    folder = tmp_path_factory.mktemp("mnist")
    for name in SOURCES:
        shutil.copy(ROOT / "examples" / "mnist" / name, folder)
    return folder, nnl("train", folder, cwd=folder)


def test_the_example_learns_to_read_digits(trained):
    _, printed = trained
    accuracy = next(line for line in printed.splitlines() if line.startswith("test accuracy: "))
    assert float(accuracy.rpartition(" ")[2]) >= 0.97


def test_the_run_has_parameters_metrics_and_a_picture(trained):
    (run,) = (trained[0] / "runs").iterdir()
    names = {path.name for path in run.iterdir()}
    assert {"result.json", "metrics.jsonl", "learning_curve.png"} <= names
    assert len(json.loads((run / "result.json").read_text("utf-8"))["history"]) == 12


def test_predictions_agree_with_the_reported_accuracy(trained, tmp_path):
    folder, _ = trained
    (run,) = (folder / "runs").iterdir()
    out = tmp_path / "digits.npz"
    images = folder / "mnist5k.npz"
    nnl("infer", run, "--input", images, "--data", "test", "--output", out, cwd=folder)
    with np.load(out) as found, np.load(folder / "mnist5k.npz") as digits:
        right = np.mean(found["output"].argmax(axis=1) == digits["test_labels"])
    reported = json.loads(nnl("eval", run, "--json", cwd=folder))
    assert right == pytest.approx(reported["accuracy"], abs=1e-6)
