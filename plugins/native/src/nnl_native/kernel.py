"""What an emitter is told about a call, and what it answers: steps of C and of oneDNN."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from nnl_core.graph.operator import Operator
from nnl_core.graph.spec import Spec

if TYPE_CHECKING:
    from nnl_native.onednn import Descriptor, Primitive

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "bool": "unsigned char",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
}
"""Element types that generated C works with; others are left to NumPy."""


class Layout(NamedTuple):
    """Where the elements of a value are: the distance between neighbours along each axis.

    In elements, for each axis; 0 never occurs, since values are dense or views of dense ones. With
    ``opaque``, only oneDNN knows where they are, and ``strides`` mean nothing.
    """

    strides: tuple[int, ...]
    opaque: Descriptor | None = None


def dense(shape: Sequence[int], order: Sequence[int]) -> Layout:
    """Return the layout without gaps whose axes go from the outermost to the innermost."""
    strides = [1] * len(shape)
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(1, shape[axis])
    return Layout(tuple(strides))


def plain(shape: Sequence[int]) -> Layout:
    """Return the layout of a C-contiguous array."""
    return dense(shape, range(len(shape)))


def channels_last(shape: Sequence[int]) -> Layout:
    """Return the layout in which axis 1 is innermost, as convolutions like it."""
    rank = len(shape)
    return dense(shape, (0, *range(2, rank), 1)) if rank > 2 else plain(shape)


@dataclass(frozen=True)
class Operand:
    """A value as a kernel sees it."""

    spec: Spec
    layout: Layout

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.spec.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.spec.size

    @property
    def c_type(self) -> str:
        """Element type in C."""
        return C_TYPES[self.spec.dtype.name]

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance between neighbours along each axis, in elements."""
        return self.layout.strides

    @property
    def order(self) -> tuple[int, ...]:
        """Axes from the outermost to the innermost."""
        axes = range(len(self.shape))
        return tuple(sorted(axes, key=lambda axis: (-self.strides[axis], axis)))

    @property
    def is_plain(self) -> bool:
        """Whether it is laid out as a C-contiguous array; axes of length 1 do not matter."""
        if self.layout.opaque is not None:
            return False
        wanted = plain(self.shape).strides
        triples = zip(self.shape, self.strides, wanted, strict=True)
        return self.size == 0 or all(n == 1 or a == b for n, a, b in triples)


@dataclass(frozen=True)
class Call:
    """One use of an operator, or of an operator and the elementwise ones that follow at once."""

    operator: Operator
    attributes: Mapping[str, Any]
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand, ...]
    threads: int

    def has_only(self, *dtypes: str) -> bool:
        """Whether all inputs and outputs have one of these dtypes."""
        given = [one for one in (*self.inputs, *self.outputs) if one is not None]
        return all(one.dtype.name in dtypes for one in given)


Reference: TypeAlias = str
"""``"in0"``, ``"out0"``, ``"tmp0"``: an input, an output, scratch memory of the call."""


class CStep(NamedTuple):
    """The body of a C function that does units ``begin`` to ``end`` of its work.

    ``operands`` are declared as pointers of the same names, of the operand's element type; scratch
    memory is ``float *``, or what is written behind a colon (``"tmp0:int64_t"``). ``d[0]``,
    ``d[1]``, ... are ``dims``, so that calls of other shapes share the code. A body that finds bad
    values (an index out of range) sets ``*failure = 1`` and returns: the operator is then run by
    NumPy, which says what is wrong. ``cost`` says how many elements the step touches, about: small
    ones run in one thread. Units may run in any order and at once; results must not depend on how
    they are shared out.
    """

    body: str
    operands: tuple[Reference, ...]
    dims: tuple[int, ...] = ()
    units: int = 1
    cost: int = 0
    support: str = ""  # further C functions that the body calls, from the emitter's family


class PrimitiveStep(NamedTuple):
    """One execution of a oneDNN primitive: argument number, operand and its descriptor."""

    primitive: Primitive
    arguments: tuple[tuple[int, Reference, Descriptor], ...]


Step: TypeAlias = CStep | PrimitiveStep


class Emission(NamedTuple):
    """What computes a call: steps in order, and the bytes of each piece of scratch memory."""

    steps: tuple[Step, ...]
    scratch: tuple[int, ...] = ()


class LayoutRequest(NamedTuple):
    """What a layout rule is asked: the layouts that inputs have, for these specs."""

    operator: Operator
    attributes: Mapping[str, Any]
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Spec, ...]


class Layouts(NamedTuple):
    """What a layout rule answers: what inputs must be brought to (``None``: as they are), and what
    outputs come in.
    """

    inputs: tuple[Layout | None, ...]
    outputs: tuple[Layout, ...]


Emitter: TypeAlias = Callable[[Call], Emission | None]
LayoutRule: TypeAlias = Callable[[LayoutRequest], Layouts]


def all_plain(request: LayoutRequest) -> Layouts:
    """Take and give C-contiguous values."""
    return Layouts(
        tuple(None if one is None else plain(one.shape) for one in request.inputs),
        tuple(plain(spec.shape) for spec in request.outputs),
    )


def as_they_are(request: LayoutRequest) -> Layouts:
    """Take inputs as they are; outputs of the shape of an input come in its axes' order."""
    given = [one for one in request.inputs if one is not None]
    orders = {one.shape: one.order for one in reversed(given)}
    return Layouts(
        tuple(None for _ in request.inputs),
        tuple(
            dense(spec.shape, orders.get(spec.shape, range(len(spec.shape))))
            for spec in request.outputs
        ),
    )


class Entry(NamedTuple):
    """What is known of an operator."""

    emit: Emitter
    layouts: LayoutRule


_emitters: dict[str, Entry] = {}


def emitter(*names: str, layouts: LayoutRule = all_plain) -> Callable[[Emitter], Emitter]:
    """Register what makes steps of calls of the named operators.

    An emitter returns ``None`` for a call that it leaves to NumPy: another dtype, say.
    """

    def register(emit: Emitter) -> Emitter:
        for name in names:
            assert name not in _emitters, name
            _emitters[name] = Entry(emit, layouts)
        return emit

    return register


class View(NamedTuple):
    """An output that is seen through its first input's memory: no step at all."""

    strides: tuple[int, ...]
    offset: int = 0  # in elements


Viewer: TypeAlias = Callable[[LayoutRequest], View | tuple[View, ...] | None]
_viewers: dict[str, Viewer] = {}


def viewer(*names: str) -> Callable[[Viewer], Viewer]:
    """Register what tells how an operator's output is seen through its first input's memory.

    Of several outputs, each has a view of its own. It answers ``None`` where it cannot be; the
    emitter then copies.
    """

    def register(view: Viewer) -> Viewer:
        _viewers.update(dict.fromkeys(names, view))
        return view

    return register


def viewer_of(name: str) -> Viewer | None:
    """Return what is registered for an operator."""
    return _viewers.get(name)


def emitter_of(name: str) -> Entry | None:
    """Return what is registered for an operator."""
    return _emitters.get(name)


def chunks(items: int, least: int = 1, most: int = 16) -> int:
    """Return into how many pieces work whose results are added up afterwards is cut.

    It depends on the work alone, never on the number of threads, and so do the sums.
    """
    return max(1, min(most, items // max(1, least)))


def elements(shape: Sequence[int]) -> int:
    """Return the product of some lengths."""
    return prod(shape)
