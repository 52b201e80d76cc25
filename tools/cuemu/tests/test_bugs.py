"""Each planted bug is reported with kernel, block, thread and line, in any order of threads."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tools import cuemu

pytestmark = pytest.mark.usefixtures("order")

# kernel -> its arguments (a number of floats: a buffer), threads, other options, what is reported
WRONG = {
    "oob_write": ((64, np.int32(64)), 128, {}, "write of 4 bytes at offset 256 of an allocation"),
    "oob_read": ((64, 64, np.int32(64)), 64, {}, "read of 4 bytes at offset 256"),
    "underflow": ((64,), 64, {}, "write of 4 bytes at offset -4"),
    "misaligned": ((512, 256), 64, {}, "misaligned.*4 bytes past a multiple of 16"),
    "shared_oob": ((64,), 32, {}, "array index 32 out of bounds"),
    "dyn_oob": ((64,), 64, {"shared": 128}, "offset .* of 128 bytes of dynamic shared memory"),
    "uninit_shared": ((64,), 64, {}, "read of 4 uninitialised bytes at offset .* of shared"),
    "missing_sync": ((64,), 64, {}, "race on shared memory|uninitialised"),
    "missing_second_sync": ((64,), 64, {}, "race on shared memory"),
    "block_race": ((1,), 64, {"grid": (4, 1)}, "race on global memory.*another block"),
    "divergent_barrier": ((64,), 64, {}, "divergent barrier"),
    "bad_mask": ((64,), 64, {}, "deadlock: the warp operation with mask 0xffffffff"),
    "stack_overflow": ((64, np.int32(100000)), 1, {}, "stack.* overflow"),
    "div_zero": ((64, np.int32(3)), 32, {}, "integer division by zero"),
    "bounded": ((128,), 128, {}, "more threads than its __launch_bounds__ allow"),
}


@pytest.fixture
def bug(compiled):
    return compiled("buggy.cu").get_function


@pytest.fixture
def zeros(upload):
    return lambda size: upload(np.zeros(size, np.float32))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_reported(name, bug, zeros, report):
    arguments, threads, options, pattern = WRONG[name]
    buffers = [zeros(one) if isinstance(one, int) else one for one in arguments]
    text = report(lambda: bug(name)(*buffers, block=(threads, 1, 1), **options))
    assert re.search(pattern, text), text
    assert name in text


def test_a_host_address_is_reported(bug, report):
    memory = np.zeros(64, np.float32)
    address = np.uint64(memory.ctypes.data)
    text = report(lambda: bug("host_ptr")(address, block=(64, 1, 1)))
    assert "which is not device memory" in text


def test_a_read_of_memory_that_nobody_wrote_is_reported(bug, empty, zeros, report):
    uninitialised = empty(64, np.float32)
    text = report(lambda: bug("uninit_global")(uninitialised, zeros(64), block=(64, 1, 1)))
    assert re.search("read of 4 uninitialised bytes at offset .* of global memory", text)


def test_a_read_of_freed_memory_is_reported(bug, zeros, report):
    freed = zeros(64)
    address = np.uint64(int(freed.gpudata))
    del freed
    text = report(lambda: bug("uninit_global")(address, zeros(64), block=(64, 1, 1)))
    assert "read of 4 bytes in a freed allocation of 256 bytes" in text


def test_the_report_names_block_thread_and_line(bug, zeros, report):
    text = report(lambda: bug("oob_write")(zeros(64), np.int32(64), block=(65, 1, 1)))
    assert re.search(
        r"kernel oob_write, block \(0,0,0\), thread \(64,0,0\), kernel\.cu:\d+: ", text
    )


def test_arguments_of_a_wrong_size_are_reported(compiled, zeros, report):
    vadd = compiled("kernels.cu").get_function("vadd")
    wrong = (zeros(4), zeros(4), zeros(4), np.int64(4))
    text = report(lambda: vadd(*wrong, block=(4, 1, 1)))
    assert "vadd takes 28 bytes of arguments, 32 were passed" in text


def test_a_block_of_more_than_1024_threads_is_refused(bug, zeros, report):
    text = report(lambda: bug("underflow")(zeros(64), block=(1025, 1, 1)))
    assert "grid or block size out of range" in text


def test_too_much_dynamic_shared_memory_is_refused(bug, zeros, report):
    text = report(lambda: bug("dyn_oob")(zeros(64), block=(64, 1, 1), shared=49153))
    assert "raise its MAX_DYNAMIC_SHARED_SIZE_BYTES first" in text


def test_a_fault_stays_until_it_is_cleared(bug, zeros, cuda):
    with pytest.raises(cuda.Error):
        bug("underflow")(zeros(64), block=(64, 1, 1))
        cuda.Context.synchronize()
    with pytest.raises(cuda.Error):
        cuda.mem_alloc(4)
    cuemu.set(clear_fault=1)
    cuda.mem_alloc(4).free()


def test_checks_of_initialisation_can_be_left_out(bug, empty, zeros, cuda):
    result = zeros(64)
    with cuemu.option(initcheck=0):
        bug("uninit_global")(empty(64, np.float32), result, block=(64, 1, 1))
        assert np.isnan(result.get()).all()  # what fresh memory holds


def test_checks_of_races_can_be_left_out(bug, zeros, cuda):
    with cuemu.option(racecheck=0):
        bug("block_race")(zeros(1), block=(64, 1, 1), grid=(4, 1))
        cuda.Context.synchronize()
