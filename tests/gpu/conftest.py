"""Runs the tests of this folder on a GPU, else on the emulated driver, else skips them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.operator import Array, lookup
from nnl_core.graph.spec import Spec
from nnl_core.session import Session, current_session
from tools import cuemu

FOLDER = Path(__file__).parent
# Asked in another process: a driver that is loaded here would stand in the emulator's place.
HAS_DEVICE = """
import ctypes, importlib.util, sys
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
works = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
sys.exit(not (works and count.value and importlib.util.find_spec("pycuda")))
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.cuda)


@cache
def is_emulated() -> bool:
    """Tell whether there is no GPU that PyCUDA can use."""
    probe = [sys.executable, "-c", HAS_DEVICE]
    return subprocess.run(probe, capture_output=True, check=False).returncode != 0


@cache
def reason_to_skip() -> str | None:
    """Activate the emulator where it is needed; return why there is neither it nor a GPU."""
    if not is_emulated():
        return None
    problem = cuemu.problem()
    if problem is None:
        cuemu.activate()
        return None
    return f"there is no GPU, and no emulated one: {problem}"


@cache
def session() -> Session:
    """Return the session of this folder's tests: others may have asked before there was a GPU."""
    return Session()


@pytest.fixture
def exact_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``CUEMU_EXACT=1``, check the edges of every buffer, not those of the pool's blocks.

    This makes the host wait at each allocation, and so hides waits that are missing.
    """
    if os.environ.get("CUEMU_EXACT") != "1" or not is_emulated():
        return
    from nnl_core.gpu.device import Device

    allocate = Device.allocate

    def exact(self: Device, size: int) -> tuple[int, object]:
        address, block = allocate(self, size)
        cuemu.renew(address, max(size, 1))
        return address, block

    monkeypatch.setattr(Device, "allocate", exact)


@pytest.fixture(autouse=True)
def gpu(exact_buffers: None) -> Iterator[None]:
    """Let a test have a GPU, which the emulator hides again from tests of other folders."""
    path = os.environ["PATH"]
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    if is_emulated():
        cuemu.activate()
        cuemu.set(devices=1)
    with session():
        yield
    if is_emulated():
        cuemu.set(devices=0, clear_fault=1)
        os.environ["PATH"] = path


@pytest.fixture
def emulator(gpu: None) -> None:
    """Let a test count what the driver does, or change it: a GPU's does not tell."""
    if not is_emulated():
        pytest.skip("this is for the emulated driver")


@pytest.fixture
def compute() -> Callable[..., tuple[Array, ...]]:
    """Return what computes an operator by a kernel, and never on the host; ``None`` is absent."""

    def computed(name: str, *arrays: Array | None, **given: object) -> tuple[Array, ...]:
        operator, backend = lookup(name), current_session().backend("cuda")
        specs = [None if array is None else Spec.of(array) for array in arrays]
        attributes = operator.bind_attributes(given)
        graph = Graph()
        inputs = tuple([ABSENT if spec is None else graph.add_leaf(spec) for spec in specs])
        outputs = operator.infer_specs(specs, attributes)
        results = tuple([graph.new_value(spec) for spec in outputs])
        graph.instructions = [Instruction(operator, inputs, results, attributes)]
        graph.outputs = list(results)
        program = backend.compile(graph)
        assert program.computed_by(graph.instructions[0]) == "cuda"
        leaves = [backend.from_host(array) for array in arrays if array is not None]
        buffers = [backend.from_host(np.zeros(spec.shape, spec.dtype)) for spec in outputs]
        program.run(leaves, buffers)
        return tuple([np.array(backend.to_host(buffer)) for buffer in buffers])

    return computed
