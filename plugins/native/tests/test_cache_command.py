"""``nnl cache``."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nnl_core import F, Variable
from nnl_core.cli import main
from nnl_native import compiler
from nnl_native.compiler import kernel_name, load_functions

KERNEL = "double NAME(double x) { return x * 1.0625; }"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of its own, in which one kernel is."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("NNL_CACHE_DIR", str(folder))
    monkeypatch.setattr(compiler, "_functions", {})
    name = kernel_name(KERNEL)
    load_functions({name: KERNEL})
    return folder


def cache(capsys, action):
    assert main(["cache", action, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_shows_where_kernels_are_and_how_large(folder, capsys):
    found = cache(capsys, "show")
    (library,) = folder.glob("*/*.so")
    assert found["folder"] == str(folder)
    assert found["kernels"] == 1
    assert found["files"] == len(
        [f for f in folder.rglob("*") if f.is_file() and not f.is_symlink()]
    )
    assert found["bytes"] >= library.stat().st_size


def test_it_says_so_in_words(folder, capsys):
    assert main(["cache", "show"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("1 kernels, ")
    assert first.endswith(" MB")
    assert second == f"in {folder}"


def test_clearing_deletes_all_of_it(folder, capsys):
    assert cache(capsys, "clear")["kernels"] == 1
    assert list(folder.iterdir()) == []
    assert cache(capsys, "show") == {"folder": str(folder), "kernels": 0, "files": 0, "bytes": 0}


def test_clearing_deletes_nothing_else(folder, capsys):
    (folder / "thesis.txt").write_text("years of work", "utf-8")
    (folder / "photographs").mkdir()
    cache(capsys, "clear")
    assert sorted(path.name for path in folder.iterdir()) == ["photographs", "thesis.txt"]


def test_what_was_loaded_runs_on_after_clearing(folder, capsys):
    x = Variable.from_numpy_array(np.arange(100.0))
    y = F.sum(x * 3 + 1)
    y.forward(clear_buffer=True)
    cache(capsys, "clear")
    y.forward(clear_buffer=True)
    assert y.d == 3 * 4950 + 100


def test_kernels_are_compiled_again_after_clearing(folder, capsys, monkeypatch):
    cache(capsys, "clear")
    monkeypatch.setattr(compiler, "_functions", {})
    name = kernel_name(KERNEL)
    assert load_functions({name: KERNEL})[name]
    assert cache(capsys, "show")["kernels"] == 1


def test_a_cache_that_was_never_used_is_empty(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NNL_CACHE_DIR", str(tmp_path / "none"))
    assert cache(capsys, "clear")["files"] == 0
    assert not (tmp_path / "none").exists()


def test_an_action_must_be_named(capsys):
    assert main(["cache"]) == 2
    assert "show" in capsys.readouterr().err
