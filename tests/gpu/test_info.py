"""What is said of a GPU: what is missing and what to install, or what is there."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json

import pytest

from nnl_core.cli import main
from nnl_core.errors import BackendError
from nnl_core.gpu import probe as probing
from nnl_core.gpu.probe import probe
from nnl_core.session import Session


class Driver:
    """A driver with so many devices, whose start answers a status."""

    def __init__(self, devices: int, status: int = 0) -> None:
        self.devices, self.status = devices, status

    def cuInit(self, flags):
        return self.status

    def cuDeviceGetCount(self, count):
        count._obj.value = self.devices
        return 0


@pytest.fixture(autouse=True)
def gpu():
    """Nothing here needs one: each test makes its own machine."""


@pytest.fixture
def machine(monkeypatch):
    """A machine with everything; what a test takes away is missing."""
    found = {"driver": Driver(1), "pycuda": object(), "compiler": "/usr/bin/nvcc", "error": None}

    def library(name):
        if found["driver"] is None:
            raise OSError(f"{name}: cannot open shared object file")
        return found["driver"]

    usual = importlib.import_module

    def load(name, package=None):
        if name != "pycuda.driver":
            return usual(name, package)
        if found["error"] is not None:
            raise found["error"]
        return object()

    monkeypatch.setattr(ctypes, "CDLL", library)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found["pycuda"])
    monkeypatch.setattr(importlib, "import_module", load)
    monkeypatch.setattr(probing, "find_compiler", lambda: found["compiler"])
    return found


def test_a_machine_with_everything_has_no_problem(machine):
    assert probe() is None


@pytest.mark.parametrize(
    ("part", "state", "missing", "remedy"),
    [
        ("driver", None, "there is no NVIDIA driver", "install it"),
        ("driver", Driver(0), "finds no GPU", "CUDA_VISIBLE_DEVICES"),
        ("driver", Driver(0, 100), "finds no GPU", "CUDA_VISIBLE_DEVICES"),
        ("driver", Driver(1, 803), "does not start (CUDA error 803)", "restart the machine"),
        ("pycuda", None, "PyCUDA is not installed", "pip install 'nnl-core[cuda]'"),
        ("error", ImportError("no cuX"), "PyCUDA does not load (no cuX)", "build it again"),
        ("compiler", None, "there is no CUDA compiler", "pip install nvidia-cuda-nvcc"),
    ],
)
def test_what_is_missing_is_named_with_what_helps(machine, part, state, missing, remedy):
    machine[part] = state
    problem = probe()
    assert missing in problem
    assert remedy in problem


def test_the_reason_is_shown_by_info_and_told_to_whoever_asks(machine, capsys):
    machine["driver"] = None
    session = Session(discover=False, environment={})
    assert main(["info"], lambda command_line, report: session) == 0
    assert "cuda       cannot be used: there is no NVIDIA driver" in capsys.readouterr().out
    with pytest.raises(BackendError, match="'cuda' cannot be used here: there is no NVIDIA driver"):
        session.backend("cuda:1")


def test_the_reason_is_in_the_json(machine, capsys):
    machine["compiler"] = None
    session = Session(discover=False, environment={})
    assert main(["info", "--json"], lambda command_line, report: session) == 0
    (row,) = [
        row for row in json.loads(capsys.readouterr().out)["backends"] if row["name"] == "cuda"
    ]
    assert "there is no CUDA compiler" in row["problem"]
    assert row["details"] == {}
