"""One GPU: its context, streams, memory, and the copies between it and the host."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, cast

import numpy as np

from nnl_core.errors import BackendError, OperatorError
from nnl_core.gpu.memory import Block, Pool
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import Spec

ALIGNMENT = 16  # bytes: pieces of one block of page-locked memory begin at multiples
STAGED = 1 << 22  # bytes up to which a copy to the device goes by page-locked memory


class DeviceMemoryError(BackendError):
    """The device has not the memory that was asked for; what it holds stays usable."""


class DeviceBuffer:
    """Memory of one value on a device.

    ``address`` is a number; ``owner`` keeps the memory alive, for as long as some buffer has it.
    """

    __slots__ = ("address", "owner", "spec")

    def __init__(self, spec: Spec, address: int, owner: object) -> None:
        self.spec = spec
        self.address = address
        self.owner = owner

    def part(self, offset: int, spec: Spec) -> DeviceBuffer:
        """Return a piece of this memory, from a byte on."""
        return DeviceBuffer(spec, self.address + offset, self.owner)

    def __repr__(self) -> str:
        return f"<DeviceBuffer {self.spec.shape} {self.spec.dtype} at {self.address:#x}>"


class Device:
    """A GPU by its number, with the primary context, which other libraries in this process share.

    Everything is enqueued on ``stream``, in order, so that memory may be used again as soon as what
    used it is enqueued. Enter the device (``with device:``) around calls of PyCUDA or of a library.

    Attributes
    ----------
    stream
        where kernels run
    """

    def __init__(self, index: int = 0) -> None:
        import pycuda.driver as cuda

        cuda.init()
        count = cuda.Device.count()
        if not 0 <= index < count:
            raise BackendError(f"there is no GPU {index}; the driver finds {count}, from 0 on")
        self.cuda = cuda
        self.index = index
        self.handle = cuda.Device(index)
        self.context = self.handle.retain_primary_context()
        self._allow_tf32 = False
        self._thread = threading.local()
        self._turn = threading.RLock()
        with self:
            self.stream = cuda.Stream()
        self._pool = Pool(cuda.mem_alloc)
        self._page_locked = Pool(lambda size: cuda.pagelocked_empty((size,), np.uint8))
        self.is_closed = False  # as the process ends
        self._staged: deque[tuple[Any, Block]] = deque()
        self._failures: list[str] = [""]
        self._failure = self.buffer(Spec((), np.dtype(np.int32)))
        self.write(self._failure, np.zeros((), np.int32))
        self._idle: weakref.WeakSet[Any] = weakref.WeakSet()
        atexit.register(self._close)

    def __enter__(self) -> Device:
        self._turn.acquire()
        depth = getattr(self._thread, "depth", 0)
        if not depth:
            self.context.push()
        self._thread.depth = depth + 1
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.depth -= 1
        if not self._thread.depth:
            # What is left on the stack when a thread ends aborts the process.
            self.cuda.Context.pop()
        self._turn.release()

    def _close(self) -> None:
        with self:
            self.stream.synchronize()
            self._staged.clear()
            self._page_locked.clear()
            self._pool.clear()
        self.is_closed = True

    # What it is ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the product."""
        return str(self.handle.name())

    @cached_property
    def architecture(self) -> str:
        """What the compiler is told, such as ``sm_90``."""
        return "sm_{}{}".format(*self.handle.compute_capability())

    @cached_property
    def multiprocessors(self) -> int:
        """How many blocks run at once, at least."""
        return int(self.handle.multiprocessor_count)

    @cached_property
    def shared_memory(self) -> int:
        """Bytes of shared memory that a block may have without asking for more."""
        return int(self.handle.max_shared_memory_per_block)

    @property
    def allow_tf32(self) -> bool:
        """Whether products of ``float32`` matrices may round their operands to 11 bits."""
        return self._allow_tf32

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        if allowed != self._allow_tf32:
            self._allow_tf32 = allowed
            self.release()  # what was captured multiplies as it did then

    # Memory -------------------------------------------------------------------------------------

    def allocate(self, size: int) -> tuple[int, object]:
        """Return the address of that many bytes, and what keeps them.

        Raises `DeviceMemoryError` with the sizes asked for, held and free. Before that, memory goes
        back that programs hold for their next run.
        """
        with self:
            for attempt in (self._pool.clear, self.release, None):
                try:
                    block = self._pool.allocate(size)
                    return int(block.memory), block
                except self.cuda.MemoryError:
                    if attempt is None:
                        break
                    attempt()
            free, total = self.cuda.mem_get_info()
        active = self._pool.active
        raise DeviceMemoryError(
            f"GPU {self.index} ({self.name}) has no room for {in_units(size)}: values of this "
            f"process hold {in_units(active)}, {in_units(free)} of {in_units(total)} are free; use "
            "smaller batches, recompute(), or clear_buffer=True"
        )

    def buffer(self, spec: Spec) -> DeviceBuffer:
        """Return uninitialised memory for a value."""
        return DeviceBuffer(spec, *self.allocate(spec.nbytes))

    def page_locked(self, size: int) -> Block:
        """Return a block of the host's memory that the device reads and writes by itself."""
        with self:
            try:
                return self._page_locked.allocate(size)
            except self.cuda.MemoryError:
                self._page_locked.clear()
            try:
                return self._page_locked.allocate(size)
            except self.cuda.MemoryError:
                held = self._page_locked.active
        raise DeviceMemoryError(
            f"the system has no {in_units(size)} of page-locked memory for copies to GPU "
            f"{self.index} ({self.name}), which hold {in_units(held)}; use smaller batches"
        )

    def when_full(self, holder: Any) -> None:
        """Call ``holder.release()`` when memory is short; the holder is not kept alive."""
        self._idle.add(holder)

    def release(self) -> None:
        """Give the memory back that nobody uses: what programs hold for their next run, too."""
        with self:
            self.stream.synchronize()
            for holder in list(self._idle):
                holder.release()
            self._pool.clear()

    @property
    def memory(self) -> tuple[int, int, int]:
        """Bytes that values hold, that are kept for reuse beside them, and that are free."""
        with self:
            free, _ = self.cuda.mem_get_info()
        return self._pool.active, self._pool.held, int(free)

    # Copies -------------------------------------------------------------------------------------

    def write(self, buffer: DeviceBuffer, array: Array, stream: Any = None) -> None:
        """Enqueue a copy of an array to a buffer of as many bytes; the array may change at once."""
        if not array.nbytes:
            return
        source = np.ascontiguousarray(array)
        where = self.stream if stream is None else stream
        with self:
            if source.nbytes <= STAGED or stream is not None:
                staged = self._stage(source)
                bytes_ = staged.memory[: source.nbytes]
                self.cuda.memcpy_htod_async(buffer.address, bytes_, where)
                self.keep(staged, where)
            else:
                self.stream.synchronize()
                self.cuda.memcpy_htod(buffer.address, raw(source))

    def read(self, buffer: DeviceBuffer) -> Array:
        """Wait for what was enqueued and return a new array of the buffer's elements."""
        array = np.empty(buffer.spec.shape, buffer.spec.dtype)
        with self:
            self.synchronize()
            if array.nbytes:
                self.cuda.memcpy_dtoh(raw(array), buffer.address)
        return array

    def fetch(self, buffers: Sequence[DeviceBuffer]) -> Callable[[], list[Array]]:
        """Enqueue copies of buffers to the host; what is returned waits for them, and for no more.

        It gives new arrays of the elements as they are now, or raises as `synchronize` does.
        """
        wanted = [*buffers, self._failure]
        sizes = [-(-one.spec.nbytes // ALIGNMENT) * ALIGNMENT for one in wanted]
        starts = [0, *accumulate(sizes)]
        staged = self.page_locked(starts[-1])

        def piece(number: int) -> Array:
            start = starts[number]
            return cast("Array", staged.memory[start : start + wanted[number].spec.nbytes])

        with self:
            for number, one in enumerate(wanted):
                if one.spec.nbytes:
                    self.cuda.memcpy_dtoh_async(piece(number), one.address, self.stream)
            event = self.keep(staged, self.stream)

        def fetched() -> list[Array]:
            with self:
                event.synchronize()
                self._raise(int(piece(len(buffers)).view(np.int32)[0]))
            return [
                np.array(piece(number)).view(one.spec.dtype).reshape(one.spec.shape)
                for number, one in enumerate(buffers)
            ]

        return fetched

    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueue a copy of bytes from one place on the device to another."""
        if size:
            self.cuda.memcpy_dtod_async(target, source, size, self.stream)

    def zero(self, target: int, size: int) -> None:
        """Enqueue that bytes become zero."""
        if size:
            self.cuda.memset_d8_async(target, 0, size, self.stream)

    def synchronize(self) -> None:
        """Wait for all that was enqueued. Raises `OperatorError` where a kernel met bad values."""
        with self:
            self.stream.synchronize()
            found = np.zeros((), np.int32)
            self.cuda.memcpy_dtoh(raw(found), self._failure.address)
            self._raise(int(found))

    def _raise(self, number: int) -> None:
        """Raise `OperatorError` where a failure has a number, and forget it."""
        if number:
            self.write(self._failure, np.zeros((), np.int32))
            raise OperatorError(self._failures[number])

    # Failures -----------------------------------------------------------------------------------

    def failure(self, message: str) -> tuple[int, np.int32]:
        """Return the address and the number that a kernel writes there where it meets bad values.

        Nobody waits for it: whoever next waits for the device raises `OperatorError` with the
        message, after work that went on with whatever the kernel put in place of bad results.
        """
        if message not in self._failures:
            self._failures.append(message)
        return self._failure.address, np.int32(self._failures.index(message))

    def _stage(self, source: Array) -> Block:
        """Return page-locked memory with the bytes, from where a copy does not wait."""
        while self._staged and self._staged[0][0].query():
            self._staged.popleft()
        staged = self.page_locked(source.nbytes)
        staged.memory[: source.nbytes] = raw(source)
        return staged

    def keep(self, staged: Block, stream: Any) -> Any:
        """Let page-locked memory be nobody else's before a stream's copies; return their event."""
        event = self.cuda.Event(self.cuda.event_flags.DISABLE_TIMING)
        event.record(stream)
        self._staged.append((event, staged))
        return event

    def timed(self, work: Callable[[], object]) -> float:
        """Return the seconds that the device takes for what ``work`` enqueues."""
        with self:
            start, end = self.cuda.Event(), self.cuda.Event()
            start.record(self.stream)
            work()
            end.record(self.stream)
            end.synchronize()
            return float(start.time_till(end)) / 1e3


def raw(array: Array) -> Array:
    """Return the bytes of a contiguous array: PyCUDA knows no ``bfloat16``."""
    return array.reshape(-1).view(np.uint8)


def in_units(size: float) -> str:
    """Return a number of bytes as text."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


_devices: dict[int, Device] = {}
_making = threading.Lock()


def device(index: int = 0) -> Device:
    """Return a GPU, the same object each time. Raises `BackendError` where there is none."""
    with _making:
        if index not in _devices:
            _devices[index] = Device(index)
        return _devices[index]
