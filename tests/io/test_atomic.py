"""Replacing files: the old one stays until the new one is whole."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nnl_core.errors import FileError
from nnl_core.io import StoredParameter, load, replace_file, save

ROOT = next(folder for folder in Path(__file__).parents if (folder / "nnl_core").is_dir())


def test_the_new_file_takes_the_place_of_the_old(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replace_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_after_an_exception_the_old_file_is_as_it_was(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), replace_file(path) as file:
        file.write(b"new")
        raise KeyError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_full_disk_leaves_the_old_file(suffix, tmp_path, monkeypatch):
    path = tmp_path / f"p.{suffix}"
    save(path, {"x": StoredParameter(np.ones(3))})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"p\..*No space left on device"):
        save(path, {"x": StoredParameter(np.zeros(3))})
    monkeypatch.undo()
    assert np.array_equal(load(path).parameters["x"].array, np.ones(3))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_write_that_fails_is_an_error_naming_the_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    opened = os.open
    monkeypatch.setattr(
        os, "open", lambda name, flags, mode=0o777: opened("/dev/full", os.O_WRONLY)
    )
    with pytest.raises(FileError, match="file: cannot be written: No space"):
        with replace_file(path) as file:
            file.write(b"x" * 100_000)
    monkeypatch.undo()
    assert path.read_bytes() == b"old"


KILLED = """
import os, signal, sys
sys.path.insert(0, {root!r})
import numpy as np
from nnl_core.io import StoredParameter, save

replace = os.replace
def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
os.{function} = die
save({path!r}, {{"x": StoredParameter(np.zeros(1000))}})
"""


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_process_killed_while_saving_leaves_the_old_file(suffix, function, tmp_path):
    path = tmp_path / f"p.{suffix}"
    save(path, {"x": StoredParameter(np.ones(3))})
    code = KILLED.format(root=str(ROOT), path=str(path), function=function)
    result = subprocess.run([sys.executable, "-c", code], check=False)
    assert result.returncode == -signal.SIGKILL
    assert np.array_equal(load(path).parameters["x"].array, np.ones(3))


def test_the_mode_of_an_existing_file_is_kept(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with replace_file(path) as file:
        file.write(b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with replace_file(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_missing_folder_is_an_error_naming_the_file(tmp_path):
    with pytest.raises(FileError, match=r"no/such: cannot be written: No such file"):
        with replace_file(tmp_path / "no" / "such"):
            pass
