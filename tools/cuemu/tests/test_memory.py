"""Memory has a limit, is accounted for, and is checked at its edges."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tools import cuemu

MEBIBYTE = 1 << 20


@pytest.fixture
def one_mebibyte_free(cuda, context):
    gc.collect()  # of arrays that other tests left
    free, total = cuda.mem_get_info()
    with cuemu.option(memory=total - free + MEBIBYTE):
        yield


@pytest.mark.usefixtures("one_mebibyte_free")
def test_an_allocation_beyond_the_limit_is_out_of_memory(cuda):
    with pytest.raises(cuda.MemoryError, match="memory: 1048577 bytes asked, 1048576 free"):
        cuda.mem_alloc(MEBIBYTE + 1)


@pytest.mark.usefixtures("one_mebibyte_free")
def test_memory_that_was_freed_can_be_had_again(cuda):
    for _ in range(3):
        cuda.mem_alloc(MEBIBYTE).free()


def test_free_memory_is_the_limit_less_what_is_allocated(cuda, context):
    free, total = cuda.mem_get_info()
    memory = cuda.mem_alloc(MEBIBYTE)
    assert cuda.mem_get_info() == (free - MEBIBYTE, total)
    memory.free()
    assert cuda.mem_get_info() == (free, total)


def test_page_locked_memory_is_not_the_devices(cuda, context):
    before = cuda.mem_get_info()
    locked = cuda.pagelocked_empty(MEBIBYTE, np.uint8)
    assert cuda.mem_get_info() == before
    del locked


def test_a_pool_hands_out_what_it_got_back(cuda, context):
    from pycuda.tools import DeviceMemoryPool

    pool = DeviceMemoryPool()
    first = int(pool.allocate(4000))  # goes back at once
    count = cuemu.stats()["allocs"]
    again = pool.allocate(4000)
    assert int(again) == first
    assert cuemu.stats()["allocs"] == count


def test_a_block_that_is_handed_out_again_ends_where_its_user_was_told(cuda, context):
    block = cuda.mem_alloc(512)
    cuemu.renew(int(block), 100)
    with pytest.raises(cuda.LogicError, match="104 bytes at offset 0 of an allocation of 100"):
        cuda.memset_d32(block, 0, 26)


def test_a_block_that_is_handed_out_again_holds_what_nobody_wrote(compiled, cuda, upload, report):
    block, y = cuda.mem_alloc(256), upload(np.zeros(64, np.float32))
    cuda.memset_d32(block, 0, 64)
    cuemu.renew(int(block), 256)
    kernel = compiled("buggy.cu").get_function("uninit_global")
    assert "uninitialised" in report(lambda: kernel(block, y, block=(64, 1, 1)))


def test_what_is_handed_out_again_is_freed_as_a_whole(cuda, context):
    before = cuda.mem_get_info()
    block = cuda.mem_alloc(512)
    cuemu.renew(int(block), 100)
    block.free()
    assert cuda.mem_get_info() == before


def test_a_block_is_not_renewed_beyond_its_end(cuda, context):
    block = cuda.mem_alloc(512)
    with pytest.raises(ValueError, match="no allocation of at least 513 bytes"):
        cuemu.renew(int(block), 513)


def test_a_page_locked_pool_gives_arrays(cuda, context):
    from pycuda.tools import PageLockedMemoryPool

    array = PageLockedMemoryPool().allocate((10, 10), np.float32)
    array.fill(3)
    assert array.sum() == 300


def test_a_copy_to_more_than_was_allocated_is_refused(cuda, context):
    memory = cuda.mem_alloc(100)
    with pytest.raises(
        cuda.LogicError, match="destination: 104 bytes at offset 0 of an allocation of 100 bytes"
    ):
        cuda.memcpy_htod(memory, np.zeros(26, np.float32))


def test_a_copy_from_a_host_address_as_if_it_were_the_devices_is_refused(cuda, context):
    array = np.zeros(4, np.float32)
    with pytest.raises(cuda.LogicError, match="source: not a device address"):
        cuda.memcpy_dtoh(array, array.ctypes.data)


def test_a_fill_past_the_end_is_refused(cuda, context):
    with pytest.raises(cuda.LogicError, match="memset: 8 bytes at offset 0"):
        cuda.memset_d32(cuda.mem_alloc(4), 0, 2)


def test_a_misaligned_fill_is_refused(cuda, context):
    with pytest.raises(cuda.LogicError, match="misaligned memset"):
        cuda.memset_d32(int(cuda.mem_alloc(8)) + 2, 0, 1)


def test_an_address_is_freed_once(cuda, context, driver):
    import ctypes

    address = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(address), 16) == 0
    assert driver.cuMemFree_v2(address) == 0
    assert driver.cuMemFree_v2(address) == 1
    assert driver.cuemu_last_message() == b"double free"


@pytest.mark.parametrize("pitch", [12, 20])
def test_rectangles_are_copied_row_by_row(cuda, context, pitch):
    source = np.arange(12, dtype=np.float32).reshape(4, 3)
    memory = cuda.mem_alloc(4 * pitch)
    cuda.memset_d8(memory, 0, 4 * pitch)
    copy = cuda.Memcpy2D()
    copy.set_src_host(source)
    copy.set_dst_device(memory)
    copy.width_in_bytes, copy.height = 12, 4
    copy.src_pitch, copy.dst_pitch = 12, pitch
    copy(aligned=True)
    rows = np.empty((4, pitch // 4), np.float32)
    cuda.memcpy_dtoh(rows, memory)
    assert np.array_equal(rows[:, :3], source)
    assert not rows[:, 3:].any()


def test_a_strided_copy_of_pycuda_that_writes_past_its_end_is_refused(cuda, upload):
    # PyCUDA allocates the bytes of the elements, and writes with the strides of the source.
    x = upload(np.zeros(700, np.float32))
    with pytest.raises(
        cuda.LogicError, match="destination: 2796 bytes at offset 0 of an allocation of 1400 bytes"
    ):
        x[::2].copy()


def test_options_are_what_they_were_after_the_block(context):
    old = cuemu.set(seed=5)["seed"]
    with cuemu.option(seed=6):
        pass
    assert cuemu.set(seed=old)["seed"] == 5


def test_an_unknown_option_is_refused(context):
    with pytest.raises(ValueError, match="no option 'speed'"):
        cuemu.set(speed=9)
