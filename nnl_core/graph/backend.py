"""The protocol of what compiles and runs graphs, and which implementation is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy.typing as npt

from nnl_core.graph.spec import Spec

if TYPE_CHECKING:
    from nnl_core.graph.ir import Graph
    from nnl_core.graph.operator import Operator
    from nnl_core.graph.program import Program

Buffer: TypeAlias = Any  # what a backend computes on: an ndarray on the host, a device pointer, ...
BoundCall: TypeAlias = Callable[[Sequence[Buffer | None]], tuple[Buffer, ...]]


class Backend(Protocol):
    """Runs operators one by one and compiles graphs of them.

    ``on_host`` backends compute on NumPy arrays directly; for all others the engine moves data
    with `from_host` and `to_host`.
    """

    name: str
    on_host: bool

    def allocate(self, spec: Spec) -> Buffer:
        """Return uninitialised memory for one value."""

    def to_host(self, buffer: Buffer) -> npt.NDArray[Any]:
        """Return a host array with the buffer's elements."""

    def from_host(self, array: npt.NDArray[Any], buffer: Buffer | None = None) -> Buffer:
        """Return a buffer with the array's elements, reusing ``buffer`` where one is given."""

    def run(
        self,
        operator: Operator,
        inputs: Sequence[Buffer | None],
        attributes: Mapping[str, object],
        outputs: Sequence[Spec],
    ) -> tuple[Buffer, ...]:
        """Run one operator now and return its outputs in fresh buffers."""

    def compile(self, graph: Graph) -> Program:
        """Turn an optimised graph into something that runs."""


@runtime_checkable
class DeviceBackend(Backend, Protocol):
    """A backend that is not on the host, and can divide a block of memory on its device.

    So parameters lie in one block there. No backend has to: without it, what a step changed goes to
    the block on the host and back.
    """

    def part(self, buffer: Buffer, start: int, spec: Spec) -> Buffer:
        """Return a place in a flat buffer, from an element on, as a buffer sharing its memory."""


class Prefetcher(Protocol):
    """Copies batches to a device, each while the one before is computed on."""

    def place(self, parts: Sequence[Mapping[str, npt.NDArray[Any]]]) -> Any:
        """Begin to copy a batch, given as the arrays of its parts."""

    def take(self, batch: Any) -> Sequence[Mapping[str, Buffer]]:
        """Return the buffers of what was placed; they hold it until the next but one is placed."""

    def close(self) -> None:
        """Copy no more."""


class Streaming(DeviceBackend, Protocol):
    """A backend whose device computes while the host goes on, and copies meanwhile.

    No backend has to: others are given values before a program runs, and asked for them after it.
    """

    def prefetcher(self) -> Prefetcher:
        """Return what copies batches to the device."""

    def fetch(self, buffers: Sequence[Buffer]) -> Callable[[], list[npt.NDArray[Any]]]:
        """Begin to copy elements as they are now; what is returned waits for them."""


def streams(backend: Backend) -> TypeGuard[Streaming]:
    """Tell whether a backend is one of these; asked in each step."""
    return _streams(type(backend))


@cache
def _streams(kind: type) -> bool:
    return hasattr(kind, "prefetcher") and hasattr(kind, "fetch")


@runtime_checkable
class Binding(Protocol):
    """A backend that prepares a call of an operator once, for dynamic graphs repeat few of them.

    No backend has to: without it, each call is a `Backend.run`.
    """

    def bind(
        self,
        operator: Operator,
        inputs: Sequence[Spec | None],
        attributes: Mapping[str, object],
        outputs: Sequence[Spec],
    ) -> BoundCall:
        """Return what does as `Backend.run`, given buffers of these specs."""


def bind(
    backend: Backend,
    operator: Operator,
    inputs: Sequence[Spec | None],
    attributes: Mapping[str, object],
    outputs: Sequence[Spec],
) -> BoundCall:
    """Return what runs an operator on a backend, given its inputs' buffers."""
    if isinstance(backend, Binding):
        return backend.bind(operator, inputs, attributes, outputs)
    return partial(_run, backend, operator, attributes, outputs)


def _run(
    backend: Backend,
    operator: Operator,
    attributes: Mapping[str, object],
    outputs: Sequence[Spec],
    inputs: Sequence[Buffer | None],
) -> tuple[Buffer, ...]:
    return backend.run(operator, inputs, attributes, outputs)


@runtime_checkable
class Rounding(Protocol):
    """A backend that multiplies ``float32`` matrices faster where it may round their elements."""

    allow_tf32: bool


_selected: list[Backend] = []


def current_backend() -> Backend:
    """Return the backend in use: the innermost `backend_scope`, else the default.

    The default is chosen once: the one that the environment variable ``NNL_BACKEND`` names; else,
    of those whose probe gives no reason against them, the one that a plugin selects
    (`nnl_select_backend`), or that of highest priority.
    """
    if not _selected:
        set_backend(None)
    return _selected[-1]


def set_backend(name: str | None) -> None:
    """Make the named backend the default; ``None`` chooses again, as for `current_backend`.

    Raises `BackendError` with the probe's reason where it cannot be used here.
    """
    from nnl_core.session import current_session

    _selected[:1] = [current_session().backend(name)]


@contextmanager
def backend_scope(backend: str | Backend) -> Iterator[Backend]:
    """Use another backend inside a ``with`` block; raises `BackendError` as `set_backend` does."""
    from nnl_core.session import current_session

    chosen = current_session().backend(backend) if isinstance(backend, str) else backend
    current_backend()
    _selected.append(chosen)
    try:
        yield chosen
    finally:
        _selected.pop()


@contextmanager
def allow_tf32() -> Iterator[None]:
    """Let products of ``float32`` matrices round their operands to 11 bits, inside a block.

    GPUs of NVIDIA are several times as fast then. It holds for the device of the backend in use,
    for programs that run in the block; backends that gain nothing by it compute as ever.
    """
    backend = current_backend()
    if not isinstance(backend, Rounding):
        yield
        return
    before = backend.allow_tf32
    backend.allow_tf32 = True
    try:
        yield
    finally:
        backend.allow_tf32 = before
