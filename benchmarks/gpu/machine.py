"""What a GPU benchmark runs on: a driver, or the emulated one, and PyTorch beside NNL.

``python -m benchmarks.gpu.machine`` says the versions of all.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from benchmarks.report import machine
from nnl_core.gpu.probe import probe
from nnl_core.gpu.toolchain import find_compiler

EMULATED = "NNL_EMULATED_GPU"  # set to 1: run on the emulated driver of tools/cuemu
PACKAGES = ("nnl-core", "pycuda", "torch", "numpy", "ml-dtypes", "pydantic", "pluggy", "pytest")


class Machine(NamedTuple):
    """Where figures come from; those of an emulated device are no figures."""

    device: Any  # nnl_core.gpu.device.Device
    emulated: bool
    torch: Any  # the module, or None
    without_torch: str = ""  # why there is none


def activate() -> None:
    """Put the emulated driver where PyCUDA looks, if the environment asks for it."""
    if os.environ.get(EMULATED) == "1":
        from tools import cuemu

        problem = cuemu.problem()
        if problem is not None:
            raise SystemExit(f"the emulated GPU cannot run here: {problem}")
        cuemu.activate()


def is_emulated() -> bool:
    """Tell whether the driver that answers is the emulated one."""
    return hasattr(ctypes.CDLL("libcuda.so.1"), "cuemu_set")


def find() -> Machine:
    """Return the machine; end the program in one line where there is no GPU to measure."""
    activate()
    problem = probe()
    if problem is not None:
        raise SystemExit(f"no GPU can be measured here: {problem}")
    from nnl_core.gpu.device import device

    emulated = is_emulated()
    torch, reason = (None, "the device is emulated") if emulated else find_torch()
    return Machine(device(), emulated, torch, reason)


def find_torch() -> tuple[Any, str]:
    """Return PyTorch, or ``None`` and why it cannot be measured beside NNL."""
    try:
        torch = import_module("torch")
    except ImportError as error:
        return None, f"PyTorch does not import ({error})"
    if not torch.cuda.is_available():
        return None, "PyTorch finds no GPU"
    torch.backends.cudnn.benchmark = True
    one = torch.ones((1, 1), device="cuda")
    one @ one  # what cuBLAS works in counts for no network, nor does NNL's
    return torch, ""


def describe(found: Machine) -> dict[str, str]:
    """Return what ran: device, driver, compiler and packages by name."""
    number = found.device.cuda.get_driver_version()
    free, total = _memory(found.device)
    words = {
        "device": f"{found.device.name}, {found.device.architecture}, "
        f"{found.device.multiprocessors} multiprocessors, {total >> 20} MiB, {free >> 20} free",
        "driver": f"{'emulated' if found.emulated else _driver()}"
        f" for CUDA {number // 1000}.{number % 1000 // 10}",
        "nvcc": _said(find_compiler() or "nvcc", "--version"),
        "host": machine(),
        "system": platform.platform(),
    }
    for name in PACKAGES:
        try:
            words[name] = version(name)
        except PackageNotFoundError:
            words[name] = "not installed as a package"
    if found.torch is not None:
        backends = found.torch.backends
        words["torch"] += f" for CUDA {found.torch.version.cuda}, cuDNN {backends.cudnn.version()}"
    return words


def _memory(device: Any) -> tuple[int, int]:
    with device:
        free, total = device.cuda.mem_get_info()
    return int(free), int(total)


def _driver() -> str:
    return _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    lines = done.stdout.strip().splitlines()
    releases = [line for line in lines if "release" in line]
    return (releases or lines or ["says nothing"])[0].strip()


def main() -> None:
    """Print the versions, one a line; end in one line where a package is missing."""
    for name, words in describe(find()).items():
        print(f"{name:10} {words}")
    try:
        import_module("nnl_core").set_backend("cuda")
    except ImportError as error:
        raise SystemExit(f"a package is missing: {error}") from error


if __name__ == "__main__":
    main()
