"""Several emulated devices have contexts and memory of their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tools import cuemu


@pytest.fixture
def second(cuda, context) -> Iterator[object]:
    """Return the context of a second device, which is not current."""
    with cuemu.option(devices=2):
        other = cuda.Device(1).retain_primary_context()
        yield other
        other.detach()


def test_there_are_as_many_devices_as_asked_for(cuda, context):
    with cuemu.option(devices=3):
        assert cuda.Device.count() == 3
        assert len({cuda.Device(i).pci_bus_id() for i in range(3)}) == 3


def test_a_device_accounts_for_its_own_memory(cuda, context, second):
    free, _ = cuda.mem_get_info()
    second.push()
    other_free, _ = cuda.mem_get_info()
    memory = cuda.mem_alloc(1000)
    assert cuda.mem_get_info()[0] == other_free - 1000
    second.pop()
    assert cuda.mem_get_info()[0] == free
    memory.free()


def test_memory_is_copied_from_one_device_to_another(cuda, upload, second):
    source = upload(np.arange(8, dtype=np.float32))
    second.push()
    target = cuda.mem_alloc(32)
    cuda.memcpy_dtod(target, source.gpudata, 32)
    out = np.empty(8, np.float32)
    cuda.memcpy_dtoh(out, target)
    second.pop()
    assert np.array_equal(out, np.arange(8))


def launch_on_other_memory(cuda, compiled, second):
    vadd = compiled("kernels.cu").get_function("vadd")
    second.push()
    other = cuda.mem_alloc(256)
    cuda.memset_d32(other, 0, 64)
    cuda.Context.synchronize()
    second.pop()
    vadd(other, other, other, np.int32(64), block=(64, 1, 1))
    cuda.Context.synchronize()


def test_a_kernel_may_not_touch_another_devices_memory(cuda, compiled, second, report):
    text = report(lambda: launch_on_other_memory(cuda, compiled, second))
    assert "in memory of device 1, without peer access" in text


def test_a_kernel_may_touch_a_peers_memory(cuda, compiled, context, second):
    context.enable_peer_access(second)
    launch_on_other_memory(cuda, compiled, second)
    context.disable_peer_access(second)


def test_a_kernel_of_one_device_is_not_launched_on_a_stream_of_another(
    cuda, compiled, upload, second
):
    vadd, x = compiled("kernels.cu").get_function("vadd"), upload(np.zeros(4, np.float32))
    second.push()
    stream = cuda.Stream()
    second.pop()
    with pytest.raises(cuda.LogicError, match="loaded on device 0, the stream is of device 1"):
        vadd(x, x, x, np.int32(4), block=(4, 1, 1), stream=stream)
