"""Data of a project file: folders of images with transforms, streamed into training."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from nnl_core import PF, F, S
from nnl_core.data import (
    ArraySource,
    DataIterator,
    ImageFolder,
    TransformedSource,
    make_transforms,
)
from nnl_core.data.source import take_at
from nnl_core.errors import ConfigurationError
from nnl_core.session import Session
from nnl_core.settings import check
from nnl_core.training import Model, Trainer
from nnl_core.training.project import Workbench

AUGMENT = """
def darken(sample, generator, most):
    return {**sample, "x": sample["x"] * (1 - most * generator.random(dtype="f4"))}
"""


@pytest.fixture
def folder(tmp_path, picture, monkeypatch):
    """Some classes of small images, and a module beside them."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for number in range(60):
        picture(tmp_path / "photos" / f"class{number % 3}" / f"{number:02}.png", (8, 8, 3))
    (tmp_path / "augment.py").write_text(AUGMENT, "utf-8")
    return tmp_path


def open_project(folder, transforms):
    settings = check(
        {
            "model": {"function": "model:any"},
            "data": {"train": {"source": "photos", "transforms": transforms}},
        },
        "nnl.toml",
    )
    with Session(discover=False) as session:
        return Workbench(settings, folder, session).data("train")


def test_a_project_names_a_folder_of_images_and_what_becomes_of_them(folder):
    source = open_project(
        folder,
        [
            {"name": "random_crop", "padding": 1},
            "to_float",
            {"name": "augment:darken", "most": 0.5},
        ],
    )
    assert source.fields == {"x": ((3, 8, 8), np.float32), "y": ((), np.int64)}
    ids = np.arange(60)
    first, second = (take_at(source, ids, 0, epoch)["x"] for epoch in range(2))
    assert (first != second).any((1, 2, 3)).all()
    assert 0 <= first.min() and first.max() <= 1


def test_a_transform_that_is_not_known_is_an_error_with_its_key(folder):
    with pytest.raises(ConfigurationError, match=r"data\.train\.transforms\[0\]: no transform"):
        open_project(folder, ["flop"])


def small(x):
    h = F.relu(PF.convolution(x, 4, (3, 3), name="conv"))
    return PF.affine(h, 3, name="out")


def train(source, make_iterator):
    with Session(discover=False, environment={}) as session:
        model = Model(small, loss="softmax_cross_entropy", session=session)
        trainer = Trainer(model, source, S.Adam(0.01), epochs=2, batch_size=16, session=session)
        trainer.iterator = make_iterator(trainer.iterator)
        result = trainer.run()
        trainer.iterator.close()
        return result.history, {name: p.d.copy() for name, p in model.parameters.items()}


def test_images_streamed_by_processes_train_a_model_to_the_same_bits_as_images_in_memory(folder):
    transforms = make_transforms(["random_flip", "to_float"])
    images = ImageFolder(folder / "photos")
    memory = ArraySource(images.take(np.arange(len(images))), images.name)

    def streamed(plain):
        return DataIterator(plain.source, plain.batch_size, seed=plain.seed, workers=2)

    expected = train(TransformedSource(memory, transforms), lambda plain: plain)
    found = train(TransformedSource(images, transforms), streamed)
    assert found[0] == expected[0]
    for name, parameter in expected[1].items():
        np.testing.assert_array_equal(found[1][name], parameter)
