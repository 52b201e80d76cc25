"""The example of denoising, on a slice of its pictures."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "onn_denoise"
SOURCES = ("compare.py", "model.py", "nnl.toml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The example with fewer pictures: seven to train on, two for the test."""
    copy = tmp_path_factory.mktemp("onn_denoise")
    for name in SOURCES:
        shutil.copy(EXAMPLE / name, copy)
    with np.load(EXAMPLE / "pictures.npz") as stored:
        np.savez(copy / "pictures.npz", train=stored["train"][::10], test=stored["test"][5:7])
    return copy


def python(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**environment, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def compared(folder):
    """What compare.py left, and what it printed."""
    settings = ["--set", "train.epochs=2", "--set", "train.batch_size=4"]
    return folder / "runs" / "compare", python(folder, "compare.py", *settings)


def rows(printed):
    lines = [line for line in printed.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_networks_have_about_as_many_parameters(compared):
    counts = {name: int(count.replace(",", "")) for name, count, *_ in rows(compared[1])[1:]}
    # Nine taps and a bias: of 1 to 12, 12 to 32 and 32 to 1 maps; or 27 taps of 7 and 17.
    assert counts == {
        "CNN, tanh": 9 * (12 + 12 * 32 + 32) + 45,
        "CNN, relu": 9 * (12 + 12 * 32 + 32) + 45,
        "ONN, sum and max": 9 * (12 + 12 * 32 + 32) + 45,
        "Self-ONN, q = 3": 27 * (7 + 7 * 17 + 17) + 25,
    }


def test_the_table_begins_with_the_noise_that_was_added(compared):
    name, _, psnr, _ = rows(compared[1])[0]
    assert (name, float(psnr)) == ("noisy", pytest.approx(-20 * np.log10(0.2), abs=0.15))


def test_a_network_that_has_hardly_learnt_returns_about_the_noisy_picture(compared):
    ratios = [float(psnr) for _, _, psnr, _ in rows(compared[1])]
    assert ratios[1:] == [pytest.approx(ratios[0], abs=3.0)] * 4


def test_table_curves_and_pictures_are_files(compared):
    folder, printed = compared
    assert (folder / "table.md").read_text("utf-8") in printed
    for name in ("curves.png", "pictures.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_the_experiment_of_the_readme_keeps_the_best_of_each_run(folder):
    (block,) = re.findall(r"```python\n(.*?)```", (EXAMPLE / "README.md").read_text("utf-8"), re.S)
    lines = python(folder, "-c", block).splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1", "2"]
    for seed in range(3):
        (checkpoint,) = (folder / f"runs/experiment-{seed}/checkpoints").iterdir()
        assert f"step={checkpoint.name})" in lines[seed]
