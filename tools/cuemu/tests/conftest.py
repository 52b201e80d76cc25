"""A context on the emulator, and what runs on it."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tools import cuemu

FOLDER = Path(__file__).parent


@pytest.fixture(scope="session")
def driver() -> ctypes.CDLL:
    """Return the emulator's libcuda, active from here on."""
    problem = cuemu.problem()
    if problem is not None:
        pytest.skip(problem)
    try:
        cuemu.stats()
    except RuntimeError:
        if "pycuda.driver" in sys.modules:
            pytest.skip("PyCUDA runs on a GPU in this process")
    return cuemu.activate()


@pytest.fixture(scope="session")
def cuda(driver: ctypes.CDLL) -> ModuleType:
    """Return pycuda.driver, started."""
    import pycuda.driver

    cuemu.set(devices=1)
    pycuda.driver.init()
    return pycuda.driver


@pytest.fixture(scope="session")
def primary(cuda: ModuleType) -> Iterator[Any]:
    context = cuda.Device(0).retain_primary_context()
    yield context
    context.detach()


@pytest.fixture
def context(primary: Any) -> Iterator[Any]:
    """Make the device's primary context current for a test, which may leave a fault behind."""
    path = os.environ["PATH"]
    cuemu.activate()
    primary.push()
    with cuemu.option(devices=1):
        yield primary
        cuemu.set(clear_fault=1)
        primary.pop()
    cuemu.set(devices=0)  # hidden from tests of other folders
    os.environ["PATH"] = path


@pytest.fixture(params=["inorder", "random"])
def order(request: pytest.FixtureRequest, context: Any) -> Iterator[str]:
    """Run a test with threads in order, and with threads and streams in random order."""
    with cuemu.option(random_order=request.param == "random", seed=7):
        yield request.param


@pytest.fixture
def compiled(context: Any) -> Callable[..., Any]:
    """Return a function that compiles a file of this folder, once in a session."""
    from pycuda.compiler import SourceModule

    def load(name: str, *options: str) -> Any:
        if (name, options) not in _modules:
            source = (FOLDER / name).read_text("utf-8")
            _modules[name, options] = SourceModule(source, no_extern_c=True, options=list(options))
        return _modules[name, options]

    return load


_modules: dict[tuple[str, tuple[str, ...]], Any] = {}


@pytest.fixture
def report(cuda: ModuleType, context: Any) -> Callable[[Callable[[], object]], str]:
    """Return a function that makes a faulty call and waits, and returns the error's text."""

    def text_of(call: Callable[[], object]) -> str:
        with pytest.raises(cuda.Error) as caught:
            call()
            cuda.Context.synchronize()
        cuemu.set(clear_fault=1)
        return str(caught.value)

    return text_of


@pytest.fixture
def upload(context: Any) -> Callable[[np.ndarray], Any]:
    """Return a function that copies an array to a new one on the device."""
    from pycuda import gpuarray

    return gpuarray.to_gpu


@pytest.fixture
def empty(context: Any) -> Callable[..., Any]:
    """Return a function that makes an uninitialised array on the device."""
    from pycuda import gpuarray

    return gpuarray.empty


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
