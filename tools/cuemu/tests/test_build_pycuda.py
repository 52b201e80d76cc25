"""PyCUDA is built where it can be, once, and the user's home is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.cuemu import build_pycuda
from tools.cuemu.library import BuildError


@pytest.fixture
def not_installed(monkeypatch):
    monkeypatch.setattr(build_pycuda, "is_installed", lambda: False)


@pytest.fixture
def toolkit(monkeypatch, tmp_path):
    folder = tmp_path / "cuda"
    (folder / "include").mkdir(parents=True)
    (folder / "include" / "cuda.h").write_text("#define CUDA_VERSION 12090\n")
    monkeypatch.setattr(build_pycuda, "find_toolkit", lambda: folder)
    monkeypatch.setattr(build_pycuda, "build", lambda: tmp_path / "library")
    monkeypatch.setenv("NNL_PYCUDA_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def pip(monkeypatch):
    """Record what pip is called with, and make the files that it would make."""
    calls = []

    def record(*arguments, environment=None):
        settings = ""
        if environment:
            settings = Path(environment["HOME"], ".aksetup-defaults.py").read_text()
        calls.append((arguments, settings))
        if "--target" in arguments:
            Path(arguments[arguments.index("--target") + 1]).mkdir()
        if "--wheel-dir" in arguments:
            folder = Path(arguments[arguments.index("--wheel-dir") + 1])
            (folder / "pycuda-1-x.whl").write_text("")

    monkeypatch.setattr(build_pycuda, "_pip", record)
    return calls


def test_without_a_toolkit_one_sentence_and_status_3(not_installed, monkeypatch, capsys):
    monkeypatch.setattr(build_pycuda, "find_toolkit", lambda: None)
    assert build_pycuda.main() == 3
    said = capsys.readouterr().err
    assert said.startswith("PyCUDA cannot be built: there are no CUDA headers")
    assert said.count("\n") == 1


def test_what_is_installed_is_not_built(monkeypatch, pip):
    monkeypatch.setattr(build_pycuda, "is_installed", lambda: True)
    assert build_pycuda.main() == 0
    assert not pip


def test_the_wheel_is_built_once_for_a_python_and_a_cuda(not_installed, toolkit, pip):
    assert build_pycuda.main() == 0
    assert [arguments[0] for arguments, _ in pip] == ["install", "wheel", "install"]
    assert "cuda12090" in str(build_pycuda.wheel())
    pip.clear()
    assert build_pycuda.main() == 0
    assert [arguments[0] for arguments, _ in pip] == ["install"]


def test_the_settings_name_the_toolkit_and_leave_curand_out(not_installed, toolkit, pip):
    build_pycuda.main()
    settings: dict[str, object] = {}
    exec(pip[1][1], settings)
    assert settings["CUDA_INC_DIR"] == [str(toolkit / "include")]
    assert settings["CUDA_ENABLE_CURAND"] is False


def test_the_users_own_settings_stay(not_installed, toolkit, pip, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / ".aksetup-defaults.py").write_text("mine")
    monkeypatch.setenv("HOME", str(home))
    build_pycuda.main()
    assert [path.read_text() for path in home.iterdir()] == ["mine"]


def test_a_failed_build_is_said_and_leaves_nothing(not_installed, toolkit, monkeypatch, capsys):
    def fail(*arguments, environment=None):
        raise BuildError("pip install ends with 1:\nno network")

    monkeypatch.setattr(build_pycuda, "_pip", fail)
    assert build_pycuda.main() == 1
    assert "no network" in capsys.readouterr().err
    cache = toolkit.parent / "cache"
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_pips_own_words_are_in_the_error():
    with pytest.raises(BuildError, match=r"pip nonsense ends with \d+:\n.*nonsense"):
        build_pycuda._pip("nonsense")
