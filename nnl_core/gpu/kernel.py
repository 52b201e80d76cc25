"""What an emitter is told about a call, and what it answers: launches of CUDA kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from nnl_core.graph.operator import Operator
from nnl_core.graph.spec import Spec

if TYPE_CHECKING:
    from nnl_core.gpu.device import Device

FOLDER = Path(__file__).parent / "kernels"

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "bfloat16": "bfloat16",
    "bool": "bool",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
}
"""Element types as kernels name them; `kernels/common.cuh` defines those that C++ lacks."""

HALF_TYPES = ("float16", "bfloat16")
FLOATING = ("float32", "float64", *HALF_TYPES)
THREADS = 256  # of a block, where nothing speaks for another number


def c_type(dtype: np.dtype) -> str:
    """Return the type of an element in memory."""
    return C_TYPES[dtype.name]


def computing_type(dtype: np.dtype) -> str:
    """Return the type in which elements are computed: half precision in ``float``."""
    return "float" if dtype.name in HALF_TYPES else C_TYPES[dtype.name]


class Address(NamedTuple):
    """Where an operand begins, in bytes from the start of what it is a part of."""

    kind: str
    """``"in"``, ``"out"``, ``"scratch"`` (memory of the call), ``"null"``"""
    position: int = 0
    offset: int = 0


NULL = Address("null")


def given(position: int, offset: int = 0) -> Address:
    """Return the address of an input; of one that is absent it is null."""
    return Address("in", position, offset)


def result(position: int = 0, offset: int = 0) -> Address:
    """Return the address of an output."""
    return Address("out", position, offset)


def scratch(position: int = 0, offset: int = 0) -> Address:
    """Return the address of a piece of scratch memory, which holds nothing anybody wrote."""
    return Address("scratch", position, offset)


Argument: TypeAlias = Address | np.generic
"""Of a kernel: an address, or a number whose dtype is the parameter's type.

A structure by value is a scalar of a dtype with ``align=True``.
"""


class Kernel(NamedTuple):
    """A function of CUDA C++, and the text that it stands in.

    The text defines ``extern "C" __global__ void KERNEL(entry)(...)``. It is compiled inside a
    namespace of its own, behind `kernels/common.cuh`; equal texts are one module.
    """

    text: str
    entry: str

    @property
    def unit(self) -> str:
        """Name of the text: what ``KERNEL`` puts behind an entry."""
        return unit_name(self.text)

    @property
    def symbol(self) -> str:
        """Name of the function in the module."""
        return f"{self.entry}_{self.unit}"


@cache
def unit_name(text: str) -> str:
    """Return a name that only this text has."""
    return "u" + sha256(text.encode()).hexdigest()[:16]


@cache
def _read(file: str) -> str:
    return (FOLDER / file).read_text()


def kernel(file: str, entry: str, **defines: str | int) -> Kernel:
    """Return a kernel of a file in `kernels/`, with macros defined before it.

    One file with other macros (element types, tile sizes) is another unit.
    """
    before = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    after = "".join(f"#undef {name}\n" for name in defines)
    return Kernel(f"{before}{_read(file)}\n{after}", entry)


def with_files(function: Kernel, *files: str) -> Kernel:
    """Return a kernel whose text begins with that of other files in `kernels/`."""
    return function._replace(text="\n".join([*map(_read, files), function.text]))


class Launch(NamedTuple):
    """One launch of a kernel.

    Grid and block are (x, y, z); a grid with a 0 launches nothing. ``shared`` are bytes of dynamic
    shared memory.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared: int = 0


class Invocation(NamedTuple):
    """A call of a library, or of the driver: ``function(device, *addresses)``.

    It enqueues work on ``device.stream``, allocates nothing, waits for nothing, and does the same
    each time, so that it can be captured. The addresses come as numbers, null as 0.
    """

    function: Callable[..., None]
    addresses: tuple[Address, ...]


Step: TypeAlias = Launch | Invocation


class Emission(NamedTuple):
    """What computes a call: steps in order, and the bytes of each piece of scratch memory."""

    steps: tuple[Step, ...]
    scratch: tuple[int, ...] = ()


@dataclass(frozen=True)
class Call:
    """One use of an operator. All values are C-contiguous, and begin at multiples of 16 bytes.

    No output overlaps an input, but one of an elementwise operator, which may *be* an input.
    """

    operator: Operator
    attributes: Mapping[str, Any]
    inputs: tuple[Spec | None, ...]
    outputs: tuple[Spec, ...]
    device: Device

    @property
    def name(self) -> str:
        """Full name of the operator."""
        return self.operator.name

    def has_only(self, *dtypes: str) -> bool:
        """Whether all inputs and outputs have one of these dtypes."""
        every = [one for one in (*self.inputs, *self.outputs) if one is not None]
        return all(one.dtype.name in dtypes for one in every)


def failing(call: Call, message: str) -> tuple[Argument, ...]:
    """Return a kernel's ``Failure``: where it says that the call met bad values.

    `OperatorError` with the message is raised by whoever next waits for the device.
    """
    address, number = call.device.failure(message)
    return np.int64(address), np.int64(number)


Emitter: TypeAlias = Callable[[Call], Emission | None]
_emitters: dict[str, Emitter] = {}


def emitter(*operators: str) -> Callable[[Emitter], Emitter]:
    """Register what emits these operators; it answers ``None`` for calls that NumPy has to do."""

    def register(function: Emitter) -> Emitter:
        for name in operators:
            if name in _emitters:
                raise ValueError(f"two emitters for {name!r}: {_emitters[name]}, {function}")
            _emitters[name] = function
        return function

    return register


@cache
def load_families() -> None:
    """Import every module of emitters."""
    for file in sorted((Path(__file__).parent / "families").glob("[a-z]*.py")):
        import_module(f"nnl_core.gpu.families.{file.stem}")


def find_emitter(operator: Operator) -> Emitter | None:
    """Return what emits an operator, if anything does."""
    load_families()
    return _emitters.get(operator.name)


def blocks(count: int, each: int = THREADS) -> int:
    """Return how many blocks of ``each`` cover ``count``."""
    return -(-count // each)


def over(
    function: Kernel, count: int, arguments: Sequence[Argument], threads: int = THREADS
) -> Launch:
    """Launch one thread for each of ``count`` items, which the kernel is given as a last argument.

    Grids are at most ``2**20`` blocks: kernels go on in steps of the grid (``FOR_EACH``).
    """
    grid = (min(blocks(count, threads), 1 << 20), 1, 1)
    return Launch(function, grid, (threads, 1, 1), (*arguments, np.int64(count)))
