"""Project files with one mistake each, and the one line that says what it is."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from nnl_core.cli import main

RIGHT = """
[model]
function = "model:line"
loss = "squared_error"

[data.train]
source = "points.npz"

[solver]
name = "Sgd"
lr = 0.1

[train]
epochs = 1
"""

MODEL = """
from nnl_core import PF

class Listener:
    def nnl_on_step_end(self, event): pass

def line(x, width=1):
    return PF.affine(x, width)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL, "utf-8")
    np.savez(folder / "points.npz", x=np.zeros((4, 1)), y=np.zeros((4, 1)))
    return folder


def error_of(folder, capsys):
    """Train, and return the error's line without what all of them begin with."""
    assert main(["train", "project"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and not (folder / "runs").exists()
    (line,) = err.replace(f"{folder}/", "").splitlines()
    assert line.startswith("nnl: error: ")
    return line.removeprefix("nnl: error: ")


def test_the_file_that_the_mistakes_are_made_in_is_right(folder):
    (folder / "nnl.toml").write_text(RIGHT, "utf-8")
    assert main(["train", "project"]) == 0


MISTAKES = {
    "a table that there is not": (
        ("[solver]", "[sovler]"),
        "nnl.toml: sovler: unknown key; did you mean 'solver'?",
    ),
    "a key that there is not": (
        ("epochs", "epohcs"),
        "nnl.toml: train.epohcs: unknown key; did you mean 'epochs'?",
    ),
    "a key of a table in a list": (
        ("[train]", '[[solver.groups]]\npatern = "fit"\n\n[train]'),
        "nnl.toml: solver.groups.0.patern: unknown key; did you mean 'pattern'?",
    ),
    "a value of another type": (
        ("epochs = 1", 'epochs = "many"'),
        "nnl.toml: train.epochs = 'many': input should be a valid integer, unable to parse string "
        "as an integer",
    ),
    "a string for a list": (
        ("[model]", 'plugins = "progress"\n[model]'),
        "nnl.toml: plugins = 'progress': write a list, such as ['progress']",
    ),
    "a string for a table": (
        ("lr = 0.1", 'lr = 0.1\nloss_scale = "large"'),
        "nnl.toml: solver.loss_scale = 'large': write a table, such as { scale = ... }",
    ),
    "a number for a table": (
        ("[train]\nepochs = 1", "[train.epochs]"),
        "nnl.toml: train.epochs = {}: input should be a valid integer",
    ),
    "a negative number": (
        ("epochs = 1", "epochs = -1"),
        "nnl.toml: train.epochs = -1: input should be greater than 0",
    ),
    "a negative argument": (
        ("lr = 0.1", "lr = -0.1"),
        "nnl.toml: solver Sgd: learning rate=-0.1 is outside [0, inf)",
    ),
    "a value that is none of a few": (
        ("[model]", 'precision = "float_32"\n[model]'),
        "nnl.toml: precision = 'float_32': input should be 'float32', 'tf32', 'mixed_float16' or "
        "'mixed_bfloat16'; did you mean 'float32'?",
    ),
    "two keys of which one is enough": (
        ("epochs = 1", "epochs = 1\nsteps = 3"),
        "nnl.toml: train: give epochs or steps, not both",
    ),
    "a table that is missing": (
        ("[data.train]", "[data.other]"),
        "nnl.toml: there is no [data.train]; it has other",
    ),
    "a key that is missing": (
        ('source = "points.npz"', ""),
        "nnl.toml: data.train.source is missing",
    ),
    "a key twice": (
        ("epochs = 1", "epochs = 1\nepochs = 2"),
        "cannot read nnl.toml: Cannot overwrite a value (at line 15, column 11)",
    ),
    "a plugin twice": (
        ("[model]", 'plugins = ["progress", "progress"]\n[model]'),
        "nnl.toml: plugins = ['progress', 'progress']: 'progress' is there twice",
    ),
    "no TOML": (
        ("epochs = 1", "epochs = "),
        "cannot read nnl.toml: Invalid value (at line 14, column 10)",
    ),
    "a module that there is not": (
        ("model:line", "modle:line"),
        "nnl.toml: model.function = 'modle:line': target 'modle:line': ModuleNotFoundError: No "
        "module named 'modle'",
    ),
    "a function that there is not": (
        ("model:line", "model:lin"),
        "nnl.toml: model.function = 'model:lin': target 'model:lin': 'model' has no attribute "
        "'lin'; did you mean 'line'?",
    ),
    "no import string": (
        ("model:line", "model line"),
        "nnl.toml: model.function = 'model line': target 'model line' is not an import string like "
        "'package.module:attribute'",
    ),
    "an argument that the model does not take": (
        ("loss =", "arguments = { widht = 3 }\nloss ="),
        "nnl.toml: model.arguments = {'widht': 3}: model 'line' takes no argument 'widht'; did you "
        "mean 'width'?",
    ),
    "a loss that there is not": (
        ("squared_error", "huber_los"),
        "nnl.toml: model.loss = 'huber_los': unknown loss; did you mean 'huber_loss'?",
    ),
    "a metric that there is not": (
        ("loss =", 'metrics = ["perplexty"]\nloss ='),
        "nnl.toml: model.metrics: unknown metric 'perplexty'; did you mean 'perplexity'?",
    ),
    "an argument that a metric does not take": (
        ("loss =", 'metrics = [{ name = "top_n_accuracy", m = 3 }]\nloss ='),
        "nnl.toml: model.metrics = 'top_n_accuracy': metric 'top_n_accuracy' takes no 'm'; it "
        "takes n",
    ),
    "two metrics of one name": (
        ("loss =", 'metrics = ["accuracy", "accuracy"]\nloss ='),
        "nnl.toml: model.metrics = ['accuracy', 'accuracy']: two metrics are reported as "
        "'accuracy'; name one with as = ...",
    ),
    "a layer that there is not": (
        ('function = "model:line"', 'layers = ["embd"]'),
        "nnl.toml: model.layers.0.layer = 'embd': there is no such layer; did you mean 'embed'?",
    ),
    "an argument that a layer does not take": (
        ('function = "model:line"', 'layers = [{ layer = "affine", n_outmap = 3 }]'),
        "nnl.toml: model.layers.0.n_outmap: affine takes no 'n_outmap'; did you mean 'n_outmaps'?",
    ),
    "a function and layers": (
        ("loss =", 'layers = ["relu"]\nloss ='),
        "nnl.toml: model: give function = 'module:function', or else layers = [...]",
    ),
    "a plugin that is not installed": (
        ("[model]", 'plugins = ["progres"]\n[model]'),
        "plugin 'progres' (named by nnl.toml) is not installed; did you mean 'progress'?",
    ),
    "a setting that a plugin does not have": (
        ("[model]", 'plugins = ["early_stopping"]\nplugin.early_stopping.patince = 3\n[model]'),
        "nnl.toml [plugin.early_stopping]: patince: unknown key; did you mean 'patience'?",
    ),
    "settings of a plugin that is not installed": (
        ("[train]", "[plugin.early_stoping]\n[train]"),
        "nnl.toml [plugin.early_stoping]: plugin 'early_stoping' is not installed; did you mean "
        "'early_stopping'?",
    ),
    "a table of a section that no plugin has": (
        ("[train]", "[explain.nothing]\n[train]"),
        "nnl.toml [explain.nothing]: no plugin here has such a table",
    ),
    "a solver that there is not": (
        ('"Sgd"', '"Sdg"'),
        "nnl.toml: solver.name = 'Sdg': unknown solver 'Sdg'; did you mean 'Sgd'?",
    ),
    "an argument that the solver does not take": (
        ("lr =", "lrr ="),
        "nnl.toml: solver.lrr: Sgd takes no 'lrr'; did you mean 'lr'?",
    ),
    "an argument that is nearly a key of every solver": (
        ("lr = 0.1", "lr = 0.1\nwieght_decay = 0.1"),
        "nnl.toml: solver.wieght_decay: Sgd takes no 'wieght_decay'; did you mean 'weight_decay'?",
    ),
    "a schedule that there is not": (
        ("lr = 0.1", 'lr = 0.1\nschedule = { name = "cosin" }'),
        "nnl.toml: solver.schedule.name = 'cosin': unknown schedule 'cosin'; did you mean "
        "'cosine'?",
    ),
    "an argument that the schedule does not take": (
        ("lr = 0.1", 'lr = 0.1\nschedule = { name = "step", gama = 2 }'),
        "nnl.toml: solver.schedule.gama: step takes no 'gama'; did you mean 'gamma'?",
    ),
    "an argument that is nearly a key of every schedule": (
        ("lr = 0.1", 'lr = 0.1\nschedule = { name = "cosine", warmpu = 2 }'),
        "nnl.toml: solver.schedule.warmpu: cosine takes no 'warmpu'; did you mean 'warmup'?",
    ),
    "a data file that there is not": (
        ("points.npz", "ponts.npz"),
        "nnl.toml: data.train.source = 'ponts.npz': no file ponts.npz",
    ),
    "an array that there is not": (
        ('"points.npz"', '"points.npz"\nfields.x = "xx"'),
        "nnl.toml: data.train.source = 'points.npz': points.npz has no array 'xx'; did you mean "
        "'x'?",
    ),
    "a shape that does not fit": (
        ('"points.npz"', '"points.npz"\nfields.x = { array = "x", shape = [2] }'),
        "nnl.toml: data.train, field 'x': shape [2] does not fit array 'x', whose samples have "
        "shape [1]",
    ),
    "a data set that there is not": (
        ("epochs = 1", 'epochs = 1\nevaluate = "trian"'),
        "nnl.toml: train.evaluate = 'trian': there is no [data.trian]; did you mean 'train'?",
    ),
    "a backend that there is not": (
        ("[model]", 'backend = "nunpy"\n[model]'),
        "nnl.toml: backend = 'nunpy': unknown backend 'nunpy'; did you mean 'numpy'?",
    ),
    "a callback that there is not": (
        ("[model]", 'callbacks = ["model:Lisener"]\n[model]'),
        "nnl.toml: callbacks.0 = 'model:Lisener': target 'model:Lisener': 'model' has no attribute "
        "'Lisener'; did you mean 'Listener' or 'line'?",
    ),
    "an argument that a callback does not take": (
        ("[model]", 'callbacks = [{ callback = "model:Listener", x = 1 }]\n[model]'),
        "nnl.toml: callbacks.0 = 'model:Listener': Listener() takes no arguments",
    ),
}


@pytest.mark.parametrize(("change", "line"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_with_file_key_value_and_what_was_meant(folder, capsys, change, line):
    before, after = change
    assert before in RIGHT
    (folder / "nnl.toml").write_text(RIGHT.replace(before, after), "utf-8")
    assert error_of(folder, capsys) == line


def test_a_file_that_is_not_utf_8_is_named(folder, capsys):
    (folder / "nnl.toml").write_bytes(RIGHT.encode() + b'folder = "\xff"')
    assert error_of(folder, capsys).startswith("cannot read nnl.toml: 'utf-8' codec can't decode")


def test_a_folder_without_a_project_file_names_the_command_that_makes_one(folder, capsys):
    expected = "project has no nnl.toml, and no folder above it; `nnl init` makes one"
    assert error_of(folder, capsys) == expected


def test_a_pyproject_file_whose_table_is_none_is_named(folder, capsys):
    (folder / "pyproject.toml").write_text("[tool]\nnnl = 3\n", "utf-8")
    assert error_of(folder, capsys) == "pyproject.toml: tool.nnl must be a table"
