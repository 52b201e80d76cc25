"""CUDA graphs by the driver's own interface, which PyCUDA does not have."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

from nnl_core.errors import BackendError
from nnl_core.gpu.device import Device

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: other threads may allocate meanwhile


class UpdateInfo(ctypes.Structure):
    """``CUgraphExecUpdateResultInfo``: whether an update went through, and where not."""

    _fields_ = (
        ("result", ctypes.c_int),
        ("error_from", ctypes.c_void_p),
        ("error_to", ctypes.c_void_p),
    )


@cache
def _driver() -> ctypes.CDLL:
    driver = ctypes.CDLL("libcuda.so.1")
    pointer = ctypes.c_void_p
    driver.cuStreamBeginCapture_v2.argtypes = (pointer, ctypes.c_int)
    driver.cuStreamEndCapture.argtypes = (pointer, ctypes.POINTER(pointer))
    driver.cuGraphInstantiateWithFlags.argtypes = (
        ctypes.POINTER(pointer),
        pointer,
        ctypes.c_ulonglong,
    )
    driver.cuGraphExecUpdate_v2.argtypes = (pointer, pointer, ctypes.POINTER(UpdateInfo))
    driver.cuGraphLaunch.argtypes = (pointer, pointer)
    driver.cuGraphDestroy.argtypes = (pointer,)
    driver.cuGraphExecDestroy.argtypes = (pointer,)
    driver.cuGetErrorName.argtypes = (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p))
    return driver


def check(status: int, what: str) -> None:
    """Raise `BackendError` with the driver's name of an error."""
    if status:
        name = ctypes.c_char_p()
        _driver().cuGetErrorName(status, ctypes.byref(name))
        label = name.value.decode() if name.value else f"error {status}"
        raise BackendError(f"{what} failed: {label}")


class CapturedGraph:
    """What was enqueued once, to be enqueued again in one call.

    `capture` may be called again for the same work at other addresses: the executable graph is
    updated where its shape is the same, which is cheaper than making another.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._stream = ctypes.c_void_p(device.stream.handle)
        self._executable = ctypes.c_void_p()
        self._destroy = _driver().cuGraphExecDestroy

    def capture(self, enqueue: Callable[[], None]) -> None:
        """Record what ``enqueue`` puts on the device's stream, instead of running it."""
        driver = _driver()
        graph = ctypes.c_void_p()
        check(driver.cuStreamBeginCapture_v2(self._stream, RELAXED), "beginning a capture")
        try:
            enqueue()
        except BaseException:
            driver.cuStreamEndCapture(self._stream, ctypes.byref(graph))
            if graph:
                driver.cuGraphDestroy(graph)
            raise
        check(driver.cuStreamEndCapture(self._stream, ctypes.byref(graph)), "ending a capture")
        try:
            self._instantiate(graph)
        finally:
            driver.cuGraphDestroy(graph)

    def _instantiate(self, graph: ctypes.c_void_p) -> None:
        driver = _driver()
        if self._executable:
            info = UpdateInfo()
            if not driver.cuGraphExecUpdate_v2(self._executable, graph, ctypes.byref(info)):
                return
            self.close()
        status = driver.cuGraphInstantiateWithFlags(ctypes.byref(self._executable), graph, 0)
        check(status, "making a graph of launches")

    def launch(self) -> None:
        """Enqueue what was captured."""
        check(_driver().cuGraphLaunch(self._executable, self._stream), "launching a graph")

    def close(self) -> None:
        """Give the driver's memory back."""
        if self._executable and not self._device.is_closed:
            self._destroy(self._executable)
            self._executable = ctypes.c_void_p()

    def __del__(self, is_over: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_over():  # then the driver has gone, and so have the names in this module
            self.close()
