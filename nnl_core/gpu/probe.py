"""Whether the backend can be used here, and if not, what is missing; asked before PyCUDA loads."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util

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
