"""Streams run when something waits for them, so that a missing wait shows."""

from __future__ import annotations

import numpy as np
import pytest

from tools import cuemu


@pytest.fixture
def double(compiled):
    """Return a function that enqueues y += y on a stream."""
    vadd = compiled("kernels.cu").get_function("vadd")

    def call(y, stream=None):
        vadd(y, y, y, np.int32(y.size), block=(y.size, 1, 1), stream=stream)

    return call


def test_asynchronous_work_has_not_happened_before_somebody_waits(double, upload, cuda, context):
    stream, x = cuda.Stream(), upload(np.ones(64, np.float32))
    out = cuda.pagelocked_zeros(64, np.float32)
    double(x, stream)
    cuda.memcpy_dtoh_async(out, x.gpudata, stream)
    assert not out.any()
    stream.synchronize()
    assert (out == 2).all()


def test_what_is_launched_blocking_happens_at_once(double, upload, cuda, context):
    stream, x = cuda.Stream(), upload(np.ones(64, np.float32))
    out = cuda.pagelocked_zeros(64, np.float32)
    with cuemu.option(lazy_streams=0):
        double(x, stream)
        cuda.memcpy_dtoh_async(out, x.gpudata, stream)
        assert (out == 2).all()


def test_another_stream_sees_what_it_waits_for(cuda, context):
    first, second = cuda.Stream(), cuda.Stream()
    x, out = cuda.mem_alloc(4), cuda.pagelocked_zeros(1, np.uint32)
    cuda.memset_d32_async(x, 5, 1, first)
    second.wait_for_event(cuda.Event().record(first))
    cuda.memcpy_dtoh_async(out, x, second)
    second.synchronize()
    assert out[0] == 5


def test_another_stream_does_not_see_what_it_does_not_wait_for(cuda, context):
    first, second = cuda.Stream(), cuda.Stream()
    x, out = cuda.mem_alloc(4), cuda.pagelocked_zeros(1, np.uint32)
    cuda.memset_d32(x, 3, 1)
    cuda.memset_d32_async(x, 5, 1, first)
    cuda.memcpy_dtoh_async(out, x, second)
    second.synchronize()
    assert out[0] == 3


def test_the_legacy_stream_waits_for_blocking_streams(cuda, context):
    stream = cuda.Stream()
    x, out = cuda.mem_alloc(4), np.zeros(1, np.uint32)
    cuda.memset_d32_async(x, 5, 1, stream)
    cuda.memcpy_dtoh(out, x)
    assert out[0] == 5


def test_a_stream_reports_once_that_it_is_not_done(cuda, context):
    stream, x = cuda.Stream(), cuda.mem_alloc(4)
    cuda.memset_d32_async(x, 5, 1, stream)
    assert [stream.is_done(), stream.is_done()] == [False, True]


def test_events_in_order_have_the_time_between_them(double, upload, cuda, context):
    stream, x = cuda.Stream(), upload(np.ones(64, np.float32))
    begin, end = cuda.Event(), cuda.Event()
    begin.record(stream)
    double(x, stream)
    end.record(stream)
    end.synchronize()
    assert begin.time_till(end) > 0


def test_events_without_timing_have_no_time_between_them(cuda, context):
    stream = cuda.Stream()
    begin, end = (cuda.Event(cuda.event_flags.DISABLE_TIMING).record(stream) for _ in range(2))
    stream.synchronize()
    with pytest.raises(cuda.LogicError, match="without timing"):
        begin.time_till(end)


def test_an_event_that_was_not_reached_has_no_time(cuda, context):
    stream, x = cuda.Stream(), cuda.mem_alloc(4)
    begin = cuda.Event().record(stream)
    cuda.memset_d32_async(x, 5, 1, stream)
    end = cuda.Event().record(stream)
    with pytest.raises(cuda.Error, match="not reached yet"):
        begin.time_till(end)


def test_launches_copies_and_waits_are_counted(double, upload, cuda, context):
    stream, x = cuda.Stream(), upload(np.ones(64, np.float32))
    before = cuemu.stats()
    double(x, stream)
    double(x, stream)
    stream.synchronize()
    x.get()
    after = cuemu.stats()
    grown = {name: after[name] - before[name] for name in ("launches", "syncs", "copies", "allocs")}
    assert grown == {"launches": 2, "syncs": 1, "copies": 1, "allocs": 0}
