"""Settings of the project file that change how a run is made."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nnl_core.cli import main
from nnl_core.graph.variable import Variable
from nnl_core.session import Session
from nnl_core.settings import check, open_project
from nnl_core.training.project import Workbench


@pytest.fixture
def train(project):
    """Train the project with further lines on top and overrides; return the run's result."""

    def train(top="", *overrides):
        text = (project / "nnl.toml").read_text("utf-8")
        (project / "nnl.toml").write_text(f"{top}\n{text}", "utf-8")
        changes = [part for override in overrides for part in ("--set", override)]
        folder = project / "run"
        assert main(["train", str(project), "--out", str(folder), *changes]) == 0
        return json.loads((folder / "result.json").read_text("utf-8"))

    return train


def workbench(project: Path, *overrides):
    opened = open_project(project, overrides)
    session = Session(discover=False, environment={})
    return Workbench(check(opened.table, opened.where), project, session)


# -------------------------------------------------------------------- precision


def affine_dtype(project, precision):
    bench = workbench(project, f"precision={precision}", "plugins=[]")
    with bench.session, bench.scope():
        trainer = bench.trainer()
        ((_, network),) = trainer.parts(next(trainer.iterator.epoch()))
        output: Variable = network.outputs["output"]
        return str(output.dtype), trainer.loss_scale


def test_precision_is_that_of_the_products_of_matrices(project):
    assert affine_dtype(project, "float32") == ("float32", None)
    assert affine_dtype(project, "mixed_bfloat16") == ("bfloat16", None)


def test_with_float16_the_loss_is_scaled(project):
    dtype, scale = affine_dtype(project, "mixed_float16")
    assert dtype == "float16" and scale is not None


@pytest.mark.parametrize("precision", ["mixed_float16", "mixed_bfloat16"])
def test_a_line_is_found_in_half_precision_as_well(train, precision):
    result = train(f'precision = "{precision}"', "train.epochs=60")
    assert result["metrics"]["test/loss"] < 1e-3


# -------------------------------------------------------------------- callbacks

CALLBACK = """
class Stop:
    def __init__(self, after=1):
        self.after = after

    def nnl_on_step_end(self, event):
        if event.step + 1 == self.after:
            event.trainer.request_stop("called back")
"""


def add_callback(project):
    (project / "calls.py").write_text(CALLBACK, "utf-8")


def test_a_callback_is_a_class_of_the_project(project, train):
    add_callback(project)
    result = train('callbacks = ["calls:Stop"]')
    assert (result["steps"], result["stopped"]) == (1, "called back")


def test_a_callback_takes_arguments(project, train):
    add_callback(project)
    assert train('callbacks = [{ callback = "calls:Stop", after = 4 }]')["steps"] == 4


def test_the_sources_of_callbacks_are_kept_with_the_run(project, train):
    add_callback(project)
    train('callbacks = ["calls:Stop"]')
    assert (project / "run" / "source" / "calls.py").is_file()


def test_a_callback_without_hooks_is_refused(project, capsys):
    add_callback(project)
    (project / "calls.py").write_text("class Idle: pass", "utf-8")
    assert main(["train", str(project), "--set", "callbacks=['calls:Idle']"]) == 1
    assert "no method named nnl_on_" in capsys.readouterr().err


# -------------------------------------------------------------------- length


def test_a_run_is_as_many_steps_as_the_file_says(project):
    text = (project / "nnl.toml").read_text("utf-8").replace("epochs = 3", "steps = 10")
    (project / "nnl.toml").write_text(text, "utf-8")
    assert main(["train", str(project), "--out", str(project / "run")]) == 0
    result = json.loads((project / "run" / "result.json").read_text("utf-8"))
    assert (result["steps"], result["stopped"]) == (10, None)


def test_a_schedule_is_as_long_as_the_steps(project):
    text = (project / "nnl.toml").read_text("utf-8").replace("epochs = 3", "steps = 10")
    (project / "nnl.toml").write_text(text, "utf-8")
    bench = workbench(project, "plugins=[]", "solver.schedule={ name = 'polynomial', power = 1 }")
    with bench.session, bench.scope():
        schedule = bench.trainer().schedule
        assert schedule is not None
        assert schedule.get_learning_rate(5) == pytest.approx(0.1 * (1 - 5 / 10))


# -------------------------------------------------------------------- data


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_background_workers_change_no_bit(project, train, kind):
    plain = workbench(project, "plugins=[]", "checkpoints.keep=0")
    with plain.session, plain.scope():
        expected = plain.trainer().run().history[-1]["train/loss"]
    result = train("", "train.workers=2", f"train.worker_kind={kind}", "train.prefetch=3")
    assert result["metrics"]["train/loss"] == expected


def test_a_cache_is_a_folder_beside_the_project(project, train):
    train("", "data.train.cache=cache")
    assert any((project / "cache").iterdir())


def test_from_a_cache_comes_what_the_source_gave(project):
    bench = workbench(project, "data.train.cache=cache")
    direct = workbench(project).data("train").take(np.arange(5))
    for _ in range(2):  # written, and read
        cached = bench.data("train").take(np.arange(5))
        np.testing.assert_array_equal(cached["x"], direct["x"])


def test_transforms_come_after_the_fields(project):
    (project / "twice.py").write_text(
        "def twice(arrays, generators):\n    return {**arrays, 'x': arrays['x'] * 2}\n", "utf-8"
    )
    direct = workbench(project).data("train").take(np.arange(5))
    bench = workbench(project, "data.train.transforms=['twice:twice']")
    np.testing.assert_array_equal(bench.data("train").take(np.arange(5))["x"], 2 * direct["x"])
