"""Whether the backend can be used here, what is missing if not, and what it finds if so."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re

from nnl_core.gpu.toolchain import find_compiler

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def probe() -> str | None:
    """Return ``None``, or what is missing (PyCUDA, driver, device, compiler), and what helps."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver (libcuda.so.1); install it, on a machine with a GPU"
    status, count = driver.cuInit(0), ctypes.c_int()
    if status == 0:
        status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status == NO_DEVICE or (status == 0 and count.value == 0):
        return "the NVIDIA driver finds no GPU; is CUDA_VISIBLE_DEVICES set to nothing?"
    if status:
        return (
            f"the NVIDIA driver does not start (CUDA error {status}); its library and the kernel's "
            "module may be of different versions: restart the machine after an update"
        )
    if importlib.util.find_spec("pycuda") is None:
        return (
            "PyCUDA is not installed; pip install 'nnl-core[cuda]' builds it, which needs g++ and "
            "the CUDA toolkit (nvcc on PATH)"
        )
    try:
        importlib.import_module("pycuda.driver")
    except ImportError as error:
        return (
            f"PyCUDA does not load ({error}): it was built for another driver; build it again with "
            "pip install --no-binary pycuda --no-cache-dir --force-reinstall pycuda"
        )
    if find_compiler() is None:
        return (
            "there is no CUDA compiler: install the CUDA toolkit and put its nvcc on PATH, or "
            "pip install nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime "
            "nvidia-cuda-cccl"
        )
    return None


def details() -> dict[str, str]:
    """Return what `nnl info` shows where the backend works: devices, driver, compiler, cuBLAS."""
    import pycuda.driver as cuda

    from nnl_core.gpu.blas import library
    from nnl_core.gpu.compiler import compiler_version
    from nnl_core.gpu.device import in_units

    cuda.init()
    found: dict[str, str] = {}
    for index in range(cuda.Device.count()):
        gpu = cuda.Device(index)
        capability = "{}.{}".format(*gpu.compute_capability())
        memory = in_units(gpu.total_memory())
        name = f"cuda:{index}" if index else "cuda"
        found[name] = f"{gpu.name()}, {memory}, compute capability {capability}"
    version = cuda.get_driver_version()
    found["driver"] = f"for CUDA {version // 1000}.{version % 1000 // 10}"
    compiler = find_compiler() or ""
    release = re.search(r"release (\S+?),", compiler_version(compiler))
    found["toolkit"] = f"{release[1] if release else 'of unknown version'} ({compiler})"
    found["cuBLAS"] = (
        "not found: kernels of our own multiply matrices; pip install nvidia-cublas"
        if library() is None
        else "found"
    )
    return found
