"""Storage of one value: on the host, on a backend's device, or on both."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from nnl_core.errors import ClearedError, GraphError, ShapeError
from nnl_core.graph.checks import as_array
from nnl_core.graph.dtypes import as_dtype, is_floating, is_real
from nnl_core.graph.spec import Spec

if TYPE_CHECKING:
    from nnl_core.graph.backend import Backend, Buffer
    from nnl_core.graph.node import Node

_writes = itertools.count()
_FILLING_FUNCTIONS = (np.copyto, np.put, np.place, np.putmask, np.fill_diagonal)


class State(Enum):
    """Whether an array holds something."""

    EMPTY = "empty"  # nothing was ever written
    ZERO = "zero"  # known to be all zeros, memory not touched yet
    READY = "ready"
    CLEARED = "cleared"  # held a value whose memory was released


EMPTY, ZERO, READY, CLEARED = State  # looking a member up by name takes as long as a call


class DataView(np.ndarray):
    """A writable view of an `NdArray`'s elements that reports writes to it.

    Reports let `Variable.backward` refuse to use a value that was overwritten since the forward
    pass. Results of arithmetic, and copies, are plain arrays. What writes to the memory itself
    (compiled code, the plain array that ``numpy.asarray`` makes of the view) is not seen.
    """

    _owner: NdArray | None = None

    def __array_finalize__(self, parent: npt.NDArray[Any] | None) -> None:
        self._owner = getattr(parent, "_owner", None)

    def _written(self) -> None:
        owner = self._owner
        if owner is not None and owner.shares_memory(self):
            owner.touch()

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._written()

    @property
    def flat(self) -> Any:
        """An iterator that reads; assign to ``d.flat``, or through indices, to write."""
        reader = self.view(np.ndarray)
        reader.flags.writeable = False
        return reader.flat

    @flat.setter
    def flat(self, value: Any) -> None:
        self.view(np.ndarray).flat[:] = value
        self._written()

    @property
    def real(self) -> Any:
        """The elements themselves: they are real."""
        return self[...]

    @real.setter
    def real(self, value: Any) -> None:
        self[...] = value

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **keywords: Any
    ) -> Any:
        plain = tuple(_plain(value) for value in inputs)
        if out is None:
            result = getattr(ufunc, method)(*plain, **keywords)
            if method == "at" and isinstance(inputs[0], DataView):
                inputs[0]._written()
            return result
        result = getattr(ufunc, method)(
            *plain, out=tuple(_plain(value) for value in out), **keywords
        )
        for value in out:
            if isinstance(value, DataView):
                value._written()
        return out[0] if len(out) == 1 else result

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        arguments: Iterable[Any],
        keywords: Mapping[str, Any],
    ) -> Any:
        arguments = tuple(arguments)
        result = super().__array_function__(function, types, arguments, keywords)
        target = keywords.get("out")
        if function in _FILLING_FUNCTIONS:
            target = arguments[0] if arguments else None
        if isinstance(target, DataView):
            target._written()
            return result
        return _plain(result)

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self.view(np.ndarray).copy().__reduce__()

    def __deepcopy__(self, memo: dict[int, Any] | None, /) -> Any:
        return self.view(np.ndarray).copy()

    def copy(self, order: Any = "C") -> Any:
        """Return a plain, independent array."""
        return self.view(np.ndarray).copy(order)


def _reporting(name: str) -> Callable[..., Any]:
    """Return an array's method that changes it in place, followed by a report."""

    def method(self: DataView, *arguments: Any, **keywords: Any) -> Any:
        result = getattr(self.view(np.ndarray), name)(*arguments, **keywords)
        self._written()
        return result

    method.__name__ = name
    method.__doc__ = f"As ``numpy.ndarray.{name}``."
    return method


for _name in ("fill", "partition", "put", "setfield", "sort"):
    setattr(DataView, _name, _reporting(_name))


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, DataView) else value


class Views:
    """Counts how often somebody looked at elements: what is made meanwhile may depend on them."""

    count = 0


class NdArray:
    """Elements of one `Variable`'s data or gradient.

    The elements live in a host array, in a backend's buffer, or in both; whoever wrote last is
    fresh and the other is refreshed when asked for. ``version`` is another number after each write,
    and never that of another array. ``producer`` is the node whose output this holds, if any.
    """

    __slots__ = (
        "__weakref__",
        "_backend",
        "_buffer",
        "_buffer_fresh",
        "_host",
        "_host_fresh",
        "producer",
        "spec",
        "state",
        "version",
    )

    def __init__(
        self,
        spec: Spec,
        array: npt.NDArray[Any] | None = None,
        producer: weakref.ref[Node] | None = None,
    ) -> None:
        self.spec = spec
        self.version = next(_writes)
        self.producer = producer
        self._host = array
        self._host_fresh = array is not None
        self._backend: Backend | None = None
        self._buffer: Buffer | None = None
        self._buffer_fresh = False
        self.state = EMPTY if array is None else READY

    @classmethod
    def from_numpy_array(cls, array: npt.ArrayLike) -> Self:
        """Copy ``array`` into new storage of its own shape and dtype, in this machine's byte order.

        Raises `ShapeError` for elements that are no real numbers.
        """
        host = as_array(_plain(array)).copy()
        if not is_real(host.dtype):
            raise ShapeError(f"{host.dtype} elements are no real numbers; convert them first")
        if not host.dtype.isnative:
            host = host.astype(host.dtype.newbyteorder("="))
        return cls(Spec.of(host), host)

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        return self.spec.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.spec.size

    @property
    def has_value(self) -> bool:
        """Whether reading gives elements that somebody wrote."""
        return self.state is READY or self.state is ZERO

    # Reading -----------------------------------------------------------------------------------

    def read(self) -> npt.NDArray[Any]:
        """Return the elements on the host, without a copy where they are there already.

        The caller must not write to the result. Raises `ClearedError` after `clear`, and
        `GraphError` for an output that was never computed.
        """
        if self.state is READY and self._host_fresh:
            assert self._host is not None
            return self._host
        if self.state is CLEARED:
            raise ClearedError(
                "this array's memory was released by clear_buffer; run forward again, or set "
                "persistent=True on the variable before the run"
            )
        if self.state is not READY:
            host = self._host
            if host is None:
                self._host = host = np.zeros(self.spec.shape, self.spec.dtype)
            else:
                host.fill(0)
            if self.state is EMPTY:
                if self.producer is not None:
                    node = self.producer()
                    raise GraphError(
                        f"the output {node.name if node else ''!r} that this array holds was not "
                        "computed yet; run forward on it first"
                    )
                self.version = next(_writes)
            self.state = READY
            self._host_fresh, self._buffer_fresh = True, False
            return host
        assert self._backend is not None and self._buffer is not None
        fetched = self._backend.to_host(self._buffer)
        if self._host is None:
            self._host = np.array(fetched)
        else:
            np.copyto(self._host, fetched)
        self._host_fresh = True
        return self._host

    @property
    def data(self) -> npt.NDArray[Any]:
        """The elements as a NumPy view; writing to it writes to this array."""
        Views.count += 1
        view = self.read().view(DataView)
        view._owner = self
        return view

    @data.setter
    def data(self, value: npt.ArrayLike) -> None:
        self.write(value)

    def buffer(self, backend: Backend) -> Buffer:
        """Return the elements where ``backend`` computes, moving them there if need be."""
        if backend.on_host:
            # `read` in a line: a step asks for dozens of leaves.
            return self._host if self.state is READY and self._host_fresh else self.read()
        if self._backend is backend and self._buffer_fresh and self.state is READY:
            assert self._buffer is not None
            return self._buffer
        reuse = self._buffer if self._backend is backend else None
        self._buffer = backend.from_host(self.read(), reuse)
        self._backend, self._buffer_fresh = backend, True
        return self._buffer

    # Writing -----------------------------------------------------------------------------------

    def touch(self) -> None:
        """Record that the host elements were written through a view."""
        self.version = next(_writes)
        self.state = READY
        self._host_fresh = True
        self._buffer_fresh = False

    def write(self, value: npt.ArrayLike) -> None:
        """Copy ``value`` in, broadcast to this shape and converted to this dtype.

        On any error the old elements stay. Raises `ShapeError` where the shape does not fit or
        a value cannot be represented (complex to real, infinity from a finite number, an
        integer too large for the floating type to hold exactly).
        """
        source = convert(value, self.spec)
        if self._host is None:
            self._host = np.empty(self.spec.shape, self.spec.dtype)
        np.copyto(self._host, source)
        self.state = READY
        self._host_fresh = True
        self.touch()

    def adopt(self, array: npt.NDArray[Any]) -> None:
        """Take ``array`` itself as the elements (same shape and dtype, no copy)."""
        self._host = array
        self.touch()

    def adopt_buffer(
        self, backend: Backend, buffer: Buffer, home: npt.NDArray[Any] | None = None
    ) -> None:
        """Take a backend's buffer as the elements; ``home`` is where they go on the host."""
        on_host = backend.on_host
        if on_host:
            self._host = buffer
        else:
            self._backend, self._buffer = backend, buffer
            if home is not None:
                self._host = home
        self._host_fresh = on_host
        self._buffer_fresh = not on_host
        self.state = READY
        self.version = next(_writes)

    def writable_buffer(self, backend: Backend) -> Buffer:
        """Return memory where ``backend`` may write new elements; follow with `mark_written`."""
        if backend.on_host:
            if self._host is None:
                self._host = np.empty(self.spec.shape, self.spec.dtype)
            return self._host
        if self._backend is not backend or self._buffer is None:
            self._backend, self._buffer = backend, backend.allocate(self.spec)
        return self._buffer

    def mark_written(self, backend: Backend) -> None:
        """Record that ``backend`` filled what `writable_buffer` gave it."""
        self.state = READY
        self._host_fresh = backend.on_host
        self._buffer_fresh = not backend.on_host
        self.version = next(_writes)

    def zero(self) -> None:
        """Make all elements zero; the memory is written when first read."""
        self.state = ZERO
        self.version = next(_writes)

    def fill(self, value: float) -> None:
        """Set every element to ``value``."""
        self.write(value)

    def forget(self) -> None:
        """Be as if nothing was ever written: an output is computed when it is next read."""
        self.state = EMPTY
        self._host_fresh = self._buffer_fresh = False
        self.version = next(_writes)

    def clear(self) -> None:
        """Release the memory; reading before the next write raises `ClearedError`."""
        self.state = CLEARED
        self._host = self._buffer = None
        self._host_fresh = self._buffer_fresh = False
        self.version = next(_writes)

    def copy_from(self, other: NdArray) -> None:
        """Copy another array's elements into this one."""
        self.write(other.read())

    def cast(self, dtype: npt.DTypeLike) -> NdArray:
        """Return a converted copy."""
        return NdArray.from_numpy_array(self.read().astype(as_dtype(dtype)))

    def relocate(self, array: npt.NDArray[Any]) -> None:
        """Move the elements into ``array`` (a slice of a larger block) and stay there.

        Raises `ClearedError` where they were released.
        """
        np.copyto(array, self.read())
        self._host = array
        self._host_fresh, self._buffer_fresh = True, False

    def relocate_buffer(self, backend: Backend, buffer: Buffer, home: npt.NDArray[Any]) -> None:
        """Move the elements into a backend's buffer, a place in a larger one, and stay there.

        ``home`` is where they will be on the host. Raises `ClearedError` where they were released.
        """
        if self._buffer is not buffer or not self.is_on(backend):
            backend.from_host(self.read(), buffer)
            self._backend, self._buffer, self._buffer_fresh = backend, buffer, True
        if self._host is not home:
            self._host, self._host_fresh = home, False

    def is_on(self, backend: Backend) -> bool:
        """Whether a backend that is not on the host has the elements as they are now."""
        return self._buffer_fresh and self._backend is backend and self.state is READY

    def base_identity(self) -> int:
        """Return a number that storages in the same block of memory have in common."""
        base = self._host
        while base is not None and isinstance(base.base, np.ndarray):
            base = base.base
        return id(self) if base is None else id(base)

    def shares_memory(self, array: npt.NDArray[Any]) -> bool:
        """Whether ``array`` is (part of) this storage's host memory."""
        return self._host is not None and np.may_share_memory(self._host, array)

    def __repr__(self) -> str:
        return f"<NdArray {self.spec.shape} {self.spec.dtype} {self.state.value}>"


def convert(value: npt.ArrayLike, spec: Spec) -> npt.NDArray[Any]:
    """Return ``value`` as an array of ``spec.dtype`` that broadcasts to ``spec.shape``.

    Raises `ShapeError` as `NdArray.write` describes; never changes ``value``.
    """
    source = np.asarray(_plain(value))
    dtype = spec.dtype
    if source.shape != spec.shape:
        try:
            np.broadcast_to(source, spec.shape)
        except ValueError:
            raise ShapeError(
                f"cannot assign an array of shape {source.shape} to one of shape {spec.shape}; "
                "call reset_shape first if the shape is meant to change"
            ) from None
    if source.dtype == dtype:
        return source
    if not is_real(source.dtype):
        raise ShapeError(
            f"cannot assign {source.dtype} elements to {dtype}; convert them to numbers first"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        converted = source.astype(dtype)
    if is_floating(source.dtype) and is_floating(dtype):
        # From bfloat16 to float16, of the same size, numbers may overflow, too.
        lost = source.dtype.itemsize >= dtype.itemsize and bool(
            np.any(np.isinf(converted) & np.isfinite(source))
        )
    elif source.dtype.kind == "b":
        lost = False
    elif source.dtype.itemsize < 4 and is_floating(dtype) and dtype.itemsize >= 4:
        lost = False  # every 8 and 16 bit integer is exact
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            lost = not np.array_equal(converted.astype(source.dtype), source)
    if lost:
        raise ShapeError(
            f"{dtype} cannot hold these {source.dtype} values exactly; create the variable with "
            f"dtype={source.dtype}, or round the values first"
        )
    return converted
