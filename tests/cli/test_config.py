from __future__ import annotations

import json
import tomllib

import pytest

from nnl_core.cli import main
from nnl_core.settings import check


def shown(capsys, *arguments):
    capsys.readouterr()
    assert main(["config", "show", *arguments]) == 0
    return capsys.readouterr().out


def test_the_settings_of_a_project_are_shown_with_their_defaults(project, capsys):
    table = tomllib.loads(shown(capsys, str(project)))
    assert table["train"]["epochs"] == 3  # of the file
    assert table["train"]["accumulate"] == 1  # a default
    assert table["data"]["train"]["fields"]["y"]["array"] == "train_y"


def test_overrides_count(project, capsys):
    text = shown(capsys, str(project), "--set", "train.seed=7")
    assert tomllib.loads(text)["train"]["seed"] == 7


@pytest.mark.parametrize("change", ["train.seed=1", "backend=numpy"])
def test_what_is_shown_is_a_project_file_with_the_same_settings(project, capsys, change):
    given = check(tomllib.loads((project / "nnl.toml").read_text("utf-8")), "given")
    table = tomllib.loads(shown(capsys, str(project)))
    assert check(table, "shown") == given


def test_of_epochs_and_steps_the_one_that_counts_is_shown(project, capsys):
    text = (project / "nnl.toml").read_text("utf-8").replace("epochs = 3", "steps = 3")
    (project / "nnl.toml").write_text(text, "utf-8")
    train = tomllib.loads(shown(capsys, str(project)))["train"]
    assert train["steps"] == 3 and "epochs" not in train


def test_settings_of_active_plugins_are_shown_and_no_others(project, capsys):
    text = shown(capsys, str(project), "--set", "plugins=['early_stopping']")
    assert tomllib.loads(text)["plugin"] == {
        "early_stopping": {"metric": "validation/loss", "patience": 5, "min_delta": 0.0}
    }


def test_json_says_the_same(project, capsys):
    as_json = json.loads(shown(capsys, str(project), "--json"))
    assert as_json == tomllib.loads(shown(capsys, str(project)))


def test_settings_that_are_wrong_are_not_shown(project, capsys):
    assert main(["config", "show", str(project), "--set", "train.epochs=0"]) == 1
    assert "train.epochs = 0" in capsys.readouterr().err


@pytest.fixture
def schema(capsys):
    assert main(["config", "schema"]) == 0
    return json.loads(capsys.readouterr().out)


def resolved(schema, entry):
    return schema["$defs"][entry["$ref"].rpartition("/")[2]] if "$ref" in entry else entry


def test_the_schema_has_the_sections_of_a_project_file(schema):
    assert {"plugins", "model", "data", "solver", "train", "precision"} <= schema[
        "properties"
    ].keys()
    assert schema["required"] == ["model"]
    assert schema["additionalProperties"] is False


def test_the_schema_has_the_tables_of_plugins(schema):
    tables = resolved(schema, schema["properties"]["plugin"])
    assert tables["additionalProperties"] is False
    found = resolved(schema, tables["properties"]["early_stopping"])
    assert found["properties"]["patience"]["exclusiveMinimum"] == 0


def test_the_schema_allows_a_string_where_a_table_may_be_one(schema):
    kinds = schema["$defs"]["LayerSettings"]["anyOf"]
    assert kinds[0] == {"type": "string"}
    assert kinds[1]["required"] == ["layer"]
