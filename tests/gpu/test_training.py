"""Training on a GPU comes to what it comes to on NumPy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, S
from nnl_core.cli import main
from nnl_core.data import ArraySource
from nnl_core.session import current_session
from nnl_core.training import CheckpointPolicy, Checkpoints, Model, Trainer
from tools import cuemu

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "mnist"

# -------------------------------------------------------------------- the example


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The MNIST example with 24 digits to learn from and 10 to be asked."""
    folder = tmp_path_factory.mktemp("digits")
    for name in ("nnl.toml", "model.py"):
        shutil.copy(EXAMPLE / name, folder)
    with np.load(EXAMPLE / "mnist5k.npz") as arrays:
        chosen = {"train": 24, "test": 10}
        np.savez(
            folder / "mnist5k.npz",
            **{name: array[: chosen[name.split("_")[0]]] for name, array in arrays.items()},
        )
    return folder


COMMAND = """
import sys
from tools import cuemu
from nnl_core.cli import main
if sys.argv[1] == "emulated":
    cuemu.activate(check=False)
sys.exit(main(sys.argv[2:]))
"""


def _is_emulated():
    try:
        cuemu.stats()
    except RuntimeError:
        return False
    return True


@pytest.fixture
def nnl_alone(digits):
    """Runs a command in a process of its own, where an emulated GPU is faster for not checking."""

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, "emulated" if _is_emulated() else "real", *arguments],
            cwd=digits,
            env={**os.environ, "PYTHONPATH": str(ROOT), "CUEMU_INITCHECK": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_example_learns_on_a_gpu_what_it_learns_on_numpy(digits, nnl_alone):
    options = ("--set", "train.epochs=1", "--set", "train.batch_size=6")
    histories = []
    for device in ("cuda", "numpy"):
        nnl_alone("train", ".", "--out", device, "--device", device, *options)
        result = json.loads((digits / device / "result.json").read_text("utf-8"))
        lines = (digits / device / "metrics.jsonl").read_text("utf-8").splitlines()
        steps = [json.loads(line) for line in lines]
        losses = [step["value"] for step in steps if step["name"] == "loss"]
        histories.append((result["history"][-1], losses))
    (found, losses), (expected, wanted) = histories
    assert len(losses) == 4
    np.testing.assert_allclose(losses, wanted, rtol=1e-3)
    assert found == pytest.approx(expected, rel=1e-3)  # accuracies among them


# -------------------------------------------------------------------- what a trainer can do


@pytest.fixture(scope="module")
def rings():
    """Points on three rings, to be told apart."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 96)
    angles = rng.uniform(0, 2 * np.pi, 96)
    radii = labels + 1 + rng.normal(scale=0.1, size=96)
    x = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1).astype(np.float32)
    return ArraySource({"x": x, "y": labels}, "rings")


def network(x, training):
    h = F.tanh(PF.affine(x, 32, name="first"))
    h = PF.batch_normalization(
        PF.affine(h, 16, with_bias=False, name="second"), batch_stat=training, name="norm"
    )
    h = F.dropout(F.relu(h), 0.1) if training else F.relu(h)
    return PF.affine(h, 3, name="scores")


def trainer_on(rings, **options):
    model = Model(network, loss="softmax_cross_entropy", metrics=["accuracy"])
    options = {"epochs": 2, "batch_size": 16, "evaluate": {"test": rings}, **options}
    return Trainer(model, rings, options.pop("solver", None) or S.Adam(0.01), **options)


def trained(backend, rings, precision=None, listeners=(), **options):
    """Train on a backend; return the trainer and its parameters."""
    with (
        nnl.backend_scope(backend),
        nnl.parameter_scope("", {}),
        nnl.mixed_precision(precision),
    ):
        trainer = trainer_on(rings, **options)
        for listener in listeners:
            with current_session().listen(listener):
                trainer.run()
        if not listeners:
            trainer.run()
        return trainer, {k: np.array(p.d) for k, p in trainer.model.parameters.items()}


def agree(found, expected, tolerance):
    (trainer, parameters), (reference, wanted) = found, expected
    for ours, theirs in zip(trainer.history, reference.history, strict=True):
        assert ours["train/loss"] == pytest.approx(theirs["train/loss"], rel=tolerance)
        assert ours["test/loss"] == pytest.approx(theirs["test/loss"], rel=tolerance)
    for name, array in wanted.items():
        np.testing.assert_allclose(parameters[name], array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "options",
    [
        {"accumulate": 3},
        {"clip_grad_norm": 0.5, "weight_decay": 1e-3},
        {"solver": "Lamb"},
        {"last_batch": "pad", "batch_size": 20},
    ],
    ids=lambda options: "-".join(options),
)
def test_options_do_as_on_numpy(rings, options):
    def solver():
        return {"solver": getattr(S, options["solver"])(0.01)} if "solver" in options else {}

    found = trained("cuda", rings, **{**options, **solver()})
    agree(found, trained("numpy", rings, **{**options, **solver()}), 1e-3)


def test_averages_of_parameters_do_as_on_numpy(rings):
    runs = []
    for backend in ("cuda", "numpy"):
        solver = S.Adam(0.01)
        solver.keep_average(0.9)
        runs.append(trained(backend, rings, solver=solver))
    agree(*runs, 1e-3)


def test_bfloat16_does_as_on_numpy(rings):
    agree(trained("cuda", rings, "bfloat16"), trained("numpy", rings, "bfloat16"), 3e-2)


def test_float16_with_a_loss_scale_does_as_on_numpy(rings):
    runs = []
    scales = []
    for backend in ("cuda", "numpy"):
        scale = S.DynamicLossScale(scale=2.0**20, interval=4)
        runs.append(trained(backend, rings, "float16", loss_scale=scale))
        scales.append((scale.scale, scale.skipped))
    assert scales[0] == scales[1]
    assert scales[0][1] > 0  # the first scale is too large, on purpose
    agree(*runs, 1e-2)


def test_nothing_of_a_step_is_left_to_the_host(rings):
    with nnl.backend_scope("cuda"), nnl.parameter_scope("", {}):
        rows = trainer_on(rings).profile(1)
    assert {row.computed_by for row in rows} == {"cuda"}


class BetweenGradientsAndUpdate:
    """Halves the gradients, as what comes between the two programs of a step may."""

    def nnl_on_update_start(self, event):
        for gradient in event.gradients.buffers:
            gradient *= 0.5


def test_a_plugin_may_change_gradients(rings):
    runs = [
        trained(backend, rings, listeners=[BetweenGradientsAndUpdate()], solver=S.Sgd(0.1))
        for backend in ("cuda", "numpy")
    ]
    agree(*runs, 1e-3)


# -------------------------------------------------------------------- checkpoints


def test_a_run_that_goes_on_from_a_checkpoint_comes_to_the_same_bits(rings):
    kept = []

    class Keeper:
        def nnl_on_safe_point(self, event):
            if event.trainer.state.step == 8 and not kept:
                kept.append(event.trainer.checkpoint())

    _, expected = trained("cuda", rings, listeners=[Keeper()])
    with nnl.backend_scope("cuda"), nnl.parameter_scope("", {}):
        trainer = trainer_on(rings)
        trainer.restore(kept[0])
        trainer.run()
        for name, parameter in trainer.model.parameters.items():
            np.testing.assert_array_equal(parameter.d, expected[name])


def test_a_checkpoint_of_a_gpu_goes_on_on_numpy(rings, tmp_path):
    policy = CheckpointPolicy(every_epochs=1, keep=3)
    _, expected = trained("numpy", rings)
    trained("cuda", rings, folder=tmp_path, checkpoints=policy, epochs=1)
    checkpoint = Checkpoints(tmp_path / "checkpoints").newest(print)
    with nnl.backend_scope("numpy"), nnl.parameter_scope("", {}):
        trainer = trainer_on(rings)
        trainer.restore(checkpoint)
        trainer.run()
        for name, parameter in trainer.model.parameters.items():
            np.testing.assert_allclose(parameter.d, expected[name], rtol=1e-3, atol=1e-4)


PROJECT = """
[model]
layers = [{ layer = "affine", n_outmaps = 8 }, "tanh", { layer = "affine", n_outmaps = 1 }]
loss = "squared_error"

[data.train]
source = "points.npz"

[train]
epochs = 2
batch_size = 8
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of 40 points, 5 steps an epoch."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nnl.toml").write_text(PROJECT, "utf-8")
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    np.savez(tmp_path / "points.npz", x=x, y=x.sum(axis=1, keepdims=True))
    return tmp_path


def test_a_run_that_was_killed_goes_on_to_the_same_bits(project, capsys):
    every = ("--device", "cuda", "--set", "checkpoints.every_steps=1")
    assert main(["train", "--out", "whole", *every]) == 0
    assert main(["train", "--out", "broken", *every, "--set", "train.epochs=1"]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", "broken", "--set", "train.epochs=2"]) == 0
    assert "after 5 steps" in capsys.readouterr().out
    whole, broken = (
        json.loads((project / name / "result.json").read_text("utf-8"))["history"]
        for name in ("whole", "broken")
    )
    assert broken == whole


def test_a_run_of_a_gpu_is_evaluated_and_used_anywhere(project, capsys):
    assert main(["train", "--out", "run", "--device", "cuda"]) == 0
    losses, outputs = [], []
    for device in ("cuda", "numpy"):
        capsys.readouterr()
        assert main(["eval", "run", "--data", "train", "--json", "--device", device]) == 0
        losses.append(json.loads(capsys.readouterr().out)["loss"])
        into = ("--output", f"{device}.npz", "--device", device)
        assert main(["infer", "run", "--input", "points.npz", *into]) == 0
        with np.load(f"{device}.npz") as found:
            outputs.append(found["output"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)


def test_a_project_is_measured_on_a_gpu(project, capsys):
    assert main(["bench", ".", "--json", "--device", "cuda", "--runs", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["backend"] == "cuda"
    assert main(["profile", ".", "--json", "--device", "cuda", "--repeats", "1"]) == 0
    assert "cuda" in {row["computed_by"] for row in json.loads(capsys.readouterr().out)}
