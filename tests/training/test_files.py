from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

import numpy as np
import pytest

from nnl_core.errors import DataError, TrainingError
from nnl_core.training.files import replacing, write_json
from nnl_core.training.project import import_from, modules_in
from nnl_core.training.run_folder import file_name, given_folder, new_folder, read_run


def test_a_file_that_could_not_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old", "utf-8")
    with pytest.raises(RuntimeError), replacing(path) as draft:
        draft.write_text("half of the n", "utf-8")
        raise RuntimeError
    assert path.read_text("utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_draft_has_the_suffix_of_the_file(tmp_path):
    with replacing(tmp_path / "a.npz") as draft:
        np.savez(draft, x=1)
    assert np.load(tmp_path / "a.npz").files == ["x"]


def test_what_is_not_json_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_runs_are_called_like_their_time_and_name(tmp_path):
    before = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = new_folder(tmp_path / "runs", "digits").name
    after = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    assert before <= name.removesuffix("-digits") <= after


def test_runs_of_one_second_get_folders_of_their_own_in_order(tmp_path):
    names = [new_folder(tmp_path, "a").name for _ in range(3)]
    assert len(set(names)) == 3
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a b/c", "a-b-c"),
        ("../..", "run"),
        ("", "run"),
        ("Größe_1.5", "Größe_1.5"),
        ("\U00020000" * 99, "\U00020000" * 48),
    ],
)
def test_a_name_becomes_part_of_a_file_s(name, expected):
    assert file_name(name) == expected


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "runs").write_text("a file", "utf-8")
    with pytest.raises(TrainingError, match="cannot make a folder"):
        new_folder(tmp_path / "runs", "a")


def test_a_chosen_folder_must_be_empty(tmp_path):
    assert given_folder(tmp_path / "a").is_dir()
    (tmp_path / "a" / "b").touch()
    with pytest.raises(TrainingError, match="is not empty"):
        given_folder(tmp_path / "a")


DESCRIPTION = {"format": 1, "settings": {}, "project": "p/nnl.toml", "project_from_here": "x"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not the folder of a run"),
        ("{", "cannot read"),
        ("{}", "cannot read"),
        ("[]", "cannot read"),
        (json.dumps({**DESCRIPTION, "format": 9}), "has format 9; this nnl-core reads 1"),
        (json.dumps(DESCRIPTION), "has no parameters: the run has not finished"),
    ],
)
def test_what_is_no_finished_run_is_refused(tmp_path, text, message):
    if text is not None:
        (tmp_path / "run.json").write_text(text, "utf-8")
    with pytest.raises(DataError, match=message):
        read_run(tmp_path)


@pytest.fixture
def two_projects(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [*sys.path])
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tiny_model.py").write_text("from tiny_helper import who", "utf-8")
        (tmp_path / name / "tiny_helper.py").write_text(f"who = '{name}'", "utf-8")
    yield tmp_path / "first", tmp_path / "second"
    for name in ("tiny_model", "tiny_helper"):
        sys.modules.pop(name, None)


def test_two_projects_may_have_modules_of_the_same_name(two_projects):
    found = [import_from(folder, "tiny_model:who", "test") for folder in two_projects]
    assert found == ["first", "second"]


def test_the_modules_of_a_project_are_those_loaded_from_its_folder(two_projects):
    import_from(two_projects[0], "tiny_model:who", "test")
    assert modules_in(two_projects[0]).keys() == {"tiny_model", "tiny_helper"}
