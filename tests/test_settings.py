from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from nnl_core.errors import ConfigurationError
from nnl_core.graph.spec import Spec
from nnl_core.session import Session
from nnl_core.settings import FieldSettings, check, open_project, override
from nnl_core.training.project import Workbench

MINIMAL = {"model": {"function": "model:net"}}


def test_a_file_that_names_only_the_model_gets_the_documented_defaults():
    settings = check(MINIMAL, "nnl.toml")
    assert settings.train.batch_size == 64
    assert settings.solver.name == "Adam"
    assert settings.model.target == "y"


def test_a_field_may_be_the_name_of_its_array():
    table = {**MINIMAL, "data": {"train": {"source": "a.npz", "fields": {"x": "images"}}}}
    assert check(table, "nnl.toml").data["train"].fields["x"] == FieldSettings(array="images")


def test_a_schedule_without_arguments_may_be_its_name():
    settings = check({**MINIMAL, "solver": {"schedule": "cosine"}}, "nnl.toml")
    assert settings.solver.schedule.name == "cosine"
    assert settings.solver.schedule.warmup == 0


def test_further_keys_of_the_solver_are_its_arguments():
    settings = check({**MINIMAL, "solver": {"name": "Adam", "alpha": 0.5}}, "nnl.toml")
    assert settings.solver.arguments == {"alpha": 0.5}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "nnl.toml: model is missing"),
        (
            {"model": {}},
            "nnl.toml: model: give function = 'module:function', or else layers = [...]",
        ),
        ({**MINIMAL, "trian": {}}, "nnl.toml: trian: unknown key; did you mean 'train'?"),
        (
            {**MINIMAL, "train": {"epohcs": 3}},
            "nnl.toml: train.epohcs: unknown key; did you mean 'epochs'?",
        ),
        (
            {**MINIMAL, "data": {"train": {"source": "a", "fields": {"x": {"arry": "b"}}}}},
            "nnl.toml: data.train.fields.x.arry: unknown key; did you mean 'array'?",
        ),
        (
            {**MINIMAL, "train": {"epochs": 0}},
            "nnl.toml: train.epochs = 0: input should be greater than 0",
        ),
        (
            {**MINIMAL, "train": {"batch_size": "many"}},
            "nnl.toml: train.batch_size = 'many': input should be a valid integer",
        ),
        (
            {
                **MINIMAL,
                "data": {"a": {"source": "s", "fields": {"x": {"array": "b", "divide": 0}}}},
            },
            "divide must not be 0",
        ),
        (
            {**MINIMAL, "solver": {"loss_scale": "large"}},
            "nnl.toml: solver.loss_scale = 'large': write a table, such as { scale = ... }",
        ),
        (
            {**MINIMAL, "checkpoints": {"keep_best": 3}},
            "nnl.toml: checkpoints: keep_best needs best = a metric, such as 'validation/loss'",
        ),
        (
            {**MINIMAL, "checkpoints": {"mode": "max"}},
            "nnl.toml: checkpoints: mode needs best = a metric, such as 'validation/loss'",
        ),
        (
            {**MINIMAL, "train": {"last_batch": "cut"}},
            "nnl.toml: train.last_batch = 'cut': input should be 'keep', 'drop' or 'pad'",
        ),
    ],
)
def test_a_wrong_setting_is_one_line_with_file_key_and_value(table, message):
    with pytest.raises(ConfigurationError) as caught:
        check(table, "nnl.toml")
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_overrides_are_read_as_toml_and_else_as_text():
    table = {"train": {"epochs": 8}}
    result = override(
        table,
        ["train.epochs=3", "train.folder=out", "model.metrics=['accuracy']", "data.a.source=b=c"],
    )
    assert result == {
        "train": {"epochs": 3, "folder": "out"},
        "model": {"metrics": ["accuracy"]},
        "data": {"a": {"source": "b=c"}},
    }
    assert table == {"train": {"epochs": 8}}


def test_an_override_without_a_value_takes_the_key_out():
    table = {"train": {"epochs": 8, "seed": 1}}
    assert override(table, ["train.epochs=", "train.unknown="]) == {"train": {"seed": 1}}


@pytest.mark.parametrize("text", ["train.epochs", "=3", "train.=3", "train.epochs.x=1"])
def test_an_override_that_cannot_be_applied_is_refused(text):
    with pytest.raises(ConfigurationError, match="--set"):
        override({"train": {"epochs": 8}}, [text])


def test_a_project_is_a_folder_or_any_toml_file(tmp_path):
    (tmp_path / "nnl.toml").write_text("backend = 'numpy'", "utf-8")
    (tmp_path / "big.toml").write_text("backend = 'other'", "utf-8")
    assert open_project(tmp_path).table == {"backend": "numpy"}
    assert open_project(tmp_path / "big.toml").table == {"backend": "other"}


def test_a_project_may_be_a_table_of_pyproject_toml(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool.nnl]\nbackend = 'numpy'", "utf-8")
    assert open_project(tmp_path).table == open_project(path).table == {"backend": "numpy"}


def test_a_file_that_is_no_toml_is_named(tmp_path):
    (tmp_path / "big.toml").write_text("= 3", "utf-8")
    with pytest.raises(ConfigurationError, match=r"cannot read .*big\.toml"):
        open_project(tmp_path / "big.toml")


def test_a_project_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="nowhere is neither a folder nor"):
        open_project(tmp_path / "nowhere")


def test_a_file_of_another_kind_is_no_project_file(tmp_path):
    (tmp_path / "model.py").write_text("import os")
    with pytest.raises(ConfigurationError, match=r"model.py is neither a folder nor .*\(.toml\)"):
        open_project(tmp_path / "model.py")


def test_the_page_on_training_shows_layers_that_there_are():
    page = (Path(__file__).parents[1] / "docs" / "training.md").read_text("utf-8")
    (block,) = (
        block
        for block in re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        if "layers = [" in block
    )
    settings = check(tomllib.loads(block), "page")
    with Session(discover=False, environment={}) as session:
        model = Workbench(settings, Path(), session).model()
        image = Spec((1, 28, 28), np.dtype(np.float32))
        output = model.build({"x": image}, 2, training=True).outputs["output"]
    assert output.shape == (2, 10)
    assert "classes/affine/W" in model.parameters
