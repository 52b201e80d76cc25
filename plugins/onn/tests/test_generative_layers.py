"""Generative and super neurons as layers: in ``PF``, as modules, in a project file."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import nnl_core as nnl
from nnl_core import PF, F, Sequential, Variable
from nnl_core.cli import main
from nnl_onn import (
    SelfOperational,
    SuperOperational,
    TransposedSelfOperational,
    self_operational,
    super_operational,
    transposed_self_operational,
)

LAYERS = (self_operational, transposed_self_operational, super_operational)

SETTINGS = """
[model]
loss = "squared_error"
layers = [
    { layer = "onn.super_operational", outmaps = 3, kernel = [3], order = 2, limit = 1, pad = 1 },
    { layer = "onn.self_operational", outmaps = 3, kernel = [4], order = 2, stride = 2, pad = 1 },
    { layer = "onn.transposed_self_operational", outmaps = 1, kernel = [2], stride = 2 },
]

[data.train]
source = "signals.npz"

[solver]
name = "Adam"

[train]
epochs = 2
batch_size = 8
folder = "runs"
"""


@pytest.mark.parametrize("layer", LAYERS, ids=lambda one: one.__name__)
def test_pf_has_the_layers(layer):
    assert getattr(PF, layer.__name__) is layer


@pytest.mark.parametrize(
    ("module", "layer"),
    [
        (SelfOperational, self_operational),
        (TransposedSelfOperational, transposed_self_operational),
        (SuperOperational, super_operational),
    ],
)
def test_a_module_is_the_layer_with_parameters_of_its_own(module, layer):
    made = module(4, (3, 3), 2, rng=np.random.default_rng(0))
    x = Variable.from_numpy_array(np.random.default_rng(1).normal(size=(2, 3, 6, 5)))
    y = made(x)
    np.testing.assert_array_equal(y.d, layer(x, 4, (3, 3), 2, rng=np.random.default_rng(0)).d)
    names = {f"{layer.__name__}/{name}" for name in ("W", "b", "shift")}
    assert set(made.get_parameters()) == names & set(nnl.get_parameters())


def test_modules_make_an_autoencoder():
    model = Sequential(
        SuperOperational(4, (3, 3), limit=1, pad="same"),
        SelfOperational(6, (3, 3), 3, stride=2, pad=1),
        TransposedSelfOperational(1, (2, 2), 3, stride=2),
    )
    y = model(Variable((2, 1, 8, 6)))
    F.mean(y).backward()
    assert y.shape == (2, 1, 8, 6)
    assert len(model.get_parameters()) == 7


def test_a_project_file_names_the_layers(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).uniform(-1, 1, (16, 1, 12)).astype(np.float32)
    np.savez(tmp_path / "signals.npz", x=x, y=x**2)
    (tmp_path / "nnl.toml").write_text(SETTINGS, "utf-8")
    assert main(["train", str(tmp_path), "--out", "run"]) == 0
    found = load_file(tmp_path / "run" / "parameters.safetensors")
    assert found["super_operational/super_operational/shift"].shape == (3, 1, 1)
    assert found["self_operational/self_operational/W"].shape == (3, 3, 2, 4)
