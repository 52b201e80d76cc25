"""CUDA kernels of reductions: sums, products, extremes and where they are, norms and variances."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from nnl_core.gpu.kernel import (
    FLOATING,
    NULL,
    Address,
    Argument,
    Call,
    Emission,
    Kernel,
    Launch,
    Step,
    blocks,
    c_type,
    computing_type,
    emitter,
    given,
    kernel,
    over,
    result,
    scratch,
)
from nnl_core.gpu.ordering import zero
from nnl_core.gpu.strides import any_type
from nnl_core.graph.spec import Spec
from nnl_core.operators.arithmetic import repeated_axes

MOST_AXES = 3  # of each kind, after merging
ADDED = {"i": "int64_t", "u": "uint64_t", "b": "int64_t"}
SMALL_INDEX = 2**31 - 2**16  # elements up to which 32 bits hold a position, with a step beyond
SHORT = 64  # elements of a row that are not read several at once


class Index(NamedTuple):
    """The integer in which a kernel counts."""

    c_type: str
    number: type[np.int32] | type[np.int64]


def index_of(size: int) -> Index:
    """Return what holds the position of each of so many elements."""
    return Index("int32_t", np.int32) if size < SMALL_INDEX else Index("int64_t", np.int64)


def power_of_two(least: int) -> int:
    """Return the least power of two that is not below a number."""
    return 1 << max(0, least - 1).bit_length()


def block_of(team: int) -> int:
    """Return the threads of a block of teams; one of more than a warp is a whole block."""
    return team if team > 32 else 128


class Run(NamedTuple):
    """Neighbouring axes, all kept or all reduced, as one whose elements lie ``stride`` apart."""

    length: int
    stride: int
    is_reduced: bool


def runs_of(shape: Sequence[int], axes: Collection[int]) -> list[Run]:
    """Return the axes, the last first, merged until kept and reduced ones take turns."""
    runs: list[Run] = []
    stride = 1
    for axis in reversed(range(len(shape))):
        length, is_reduced = shape[axis], axis in axes
        if length == 1:
            continue
        if runs and runs[-1].is_reduced == is_reduced:
            runs[-1] = runs[-1]._replace(length=runs[-1].length * length)
        else:
            runs.append(Run(length, stride, is_reduced))
        stride *= length
    return runs


class Fold(NamedTuple):
    """What elements are folded to: structures of `reduction.cu`, and the types they work in."""

    operation: str
    added: str  # C type of sums
    out: np.dtype
    state: int  # bytes of what is known of a part
    first: str | None = None
    number: float = 0.0
    vector: int = 16  # bytes that are read at once


class Reduction:
    """One array folded over axes into another."""

    def __init__(self, call: Call, x: Spec, axes: Collection[int]) -> None:
        self.device = call.device
        self.x = x
        runs = runs_of(x.shape, axes)
        self.results = math.prod(one.length for one in runs if not one.is_reduced)
        self.count = math.prod(one.length for one in runs if one.is_reduced)
        self.along_last = not runs or runs[0].is_reduced
        self.width = 1 if self.along_last else runs[0].length
        self.reduced = [one for one in runs if one.is_reduced]
        self.kept = [one for one in runs if not one.is_reduced][0 if self.along_last else 1 :]
        self.index = index_of(x.size)

    @property
    def fits(self) -> bool:
        """Whether the kernels know as many axes."""
        return max(len(self.kept), len(self.reduced)) <= MOST_AXES

    def keep_all(self) -> None:
        """Count the kept axis that lies last among the others."""
        if not self.along_last:
            self.kept.insert(0, Run(self.width, 1, False))

    def places(self) -> tuple[Argument, ...]:
        """Return where results and the elements of their parts lie, and how many a part has."""
        axes = self._axes(self.kept, 1), self._axes(self.reduced, 1)
        return (*axes[0], *axes[1], self.index.number(self.count))

    def vector(self, most: int) -> int:
        """Return how many elements are read at once: of short rows one, by neighbouring threads."""
        if not self.along_last or self.count < SHORT:
            return 1
        return math.gcd(self.reduced[0].length, most // self.x.dtype.itemsize) or 1

    def steps(
        self, fold: Fold, source: Address, target: Address, first: Address = NULL, piece: int = 0
    ) -> tuple[tuple[Step, ...], tuple[int, ...]]:
        """Return the launches, and the scratch memory that they need from ``piece`` on."""
        vector = self.vector(fold.vector)
        grid, block, parts, extent = self._shape(vector)
        if fold.first and first == NULL and parts > 1:  # it has to be known before any part
            made = self._first(fold)
            size = self.results * made.state
            before, rooms = self.steps(made, source, scratch(piece), piece=piece + 1)
            steps, more = self.steps(fold, source, target, scratch(piece), piece + 1 + len(rooms))
            return (*before, *steps), (size, *rooms, *more)
        number = self.index.number
        chunks = self.count // vector
        each = blocks(chunks, parts) if chunks else 0
        kind = "rows" if self.along_last else "columns"
        where = target if parts == 1 else scratch(piece)
        known = (np.float64(self.count or np.nan), np.float64(fold.number))
        arguments: tuple[Argument, ...] = (
            source,
            where,
            first,
            number(self.results),
            number(chunks),
            number(each),
            *self._axes(self.kept, 1),
            *self._axes(self.reduced, vector),
            *known,
            extent,
        )
        run = self._kernel(fold, kind, vector, parts > 1)
        launch = Launch(run, (grid, parts, 1), block, arguments)
        if parts == 1:
            return (launch,), ()
        team = min(256, power_of_two(blocks(parts, 4))) if self.results < 8192 else 1
        join = Launch(
            self._kernel(fold, "join", vector, True),
            (blocks(self.results, block_of(team) // team), 1, 1),
            (block_of(team), 1, 1),
            (
                where,
                target,
                first,
                number(self.results),
                number(parts),
                *known,
                np.int32(team),
            ),
        )
        return (launch, join), (parts * self.results * fold.state,)

    def _first(self, fold: Fold) -> Fold:
        """Return the fold that FIRST is of a fold, when it is made in a launch of its own."""
        computed = computing_type(self.x.dtype)
        out = np.dtype(np.float64 if computed == "double" else np.float32)
        return Fold(str(fold.first), computed, out, out.itemsize)

    def _kernel(self, fold: Fold, entry: str, vector: int, in_parts: bool) -> Kernel:
        defines: dict[str, str | int] = {
            "T": c_type(self.x.dtype),
            "OUT": c_type(fold.out),
            "C": computing_type(self.x.dtype),
            "ACC": fold.added,
            "OPERATION": fold.operation,
            "VECTOR": vector,
            "INDEX": self.index.c_type,
        }
        if self.along_last:
            defines["ROWS"] = 1
        if in_parts:
            defines["PARTS"] = 1
        elif fold.first:
            defines["FIRST"] = fold.first
        if self.x.dtype.name in FLOATING:
            defines["FLOATS"] = 1
        return kernel("reduction.cu", entry, **defines)

    def _axes(self, runs: list[Run], vector: int) -> tuple[Argument, ...]:
        """Return the structure ``Axes``."""
        lengths = [one.length for one in runs]
        strides = [one.stride for one in runs]
        if vector > 1:
            lengths[0], strides[0] = lengths[0] // vector, vector
        lengths += [1] * (MOST_AXES - len(runs))
        strides += [0] * (MOST_AXES - len(runs))
        return tuple(self.index.number(one) for one in (*lengths[:2], *strides))

    def _shape(self, vector: int) -> tuple[int, tuple[int, int, int], int, Argument]:
        """Return blocks, threads of a block, parts, and the kernel's last argument.

        Parts are made where whole results would leave multiprocessors idle, of at least four reads
        a thread.
        """
        wanted = 4 * self.device.multiprocessors
        if self.along_last:
            chunks = self.count // vector
            team = power_of_two(blocks(max(1, chunks), 4))
            team = min(team, 32 if chunks <= 256 else 256 if self.results * 2 > wanted else 512)
            threads = block_of(team)
            grid = blocks(self.results, threads // team)
            least, shape = 4 * team, (threads, 1, 1)
            extent: Argument = np.int32(team)
        else:
            chunks = self.count
            across = min(power_of_two(self.width), 32)
            down = min(256 // across, power_of_two(max(1, chunks)))
            across = min(power_of_two(self.width), max(across, 128 // down))
            grid = blocks(self.width, across) * (self.results // self.width if self.width else 0)
            least, shape = 4 * down, (across, down, 1)
            extent = self.index.number(self.width)
        parts = 1
        if grid and grid * 2 <= wanted and chunks >= 2 * least:
            parts = min(blocks(wanted, grid), chunks // least)
            parts = blocks(chunks, blocks(chunks, parts))
        return grid, shape, parts, extent


def reduce(call: Call, axes: Collection[int], fold: Fold) -> Emission | None:
    """Fold the first input over axes into the first output."""
    x = call.inputs[0]
    if x is None:
        return None
    reduction = Reduction(call, x, axes)
    if not reduction.fits:
        return None
    return Emission(*reduction.steps(fold, given(0), result()))


def added_type(dtype: np.dtype) -> str:
    """Return the C type in which elements are added up."""
    return ADDED.get(dtype.kind) or computing_type(dtype)


def sizeof(name: str) -> int:
    """Return the bytes of a C type that sums have."""
    return 4 if name == "float" else 8


def _sum(call: Call, operation: str, axes: Collection[int]) -> Emission | None:
    x = call.inputs[0]
    if x is None:
        return None
    added = added_type(x.dtype)
    return reduce(call, axes, Fold(operation, added, call.outputs[0].dtype, sizeof(added)))


@emitter("nnl::sum", "nnl::mean", "nnl::prod")
def sum_or_product(call: Call) -> Emission | None:
    """Sums, means and products: half precision in ``float``, integers in 64 bits."""
    operations = {"nnl::sum": "Sum", "nnl::mean": "Mean", "nnl::prod": "Product"}
    return _sum(call, operations[call.name], call.attributes["axes"])


@emitter("nnl::sum_to")
def sum_to(call: Call) -> Emission | None:
    """Sum over what broadcasting repeats; integers wrap at their own width."""
    x = call.inputs[0]
    assert x is not None
    return _sum(call, "Sum", repeated_axes(x.shape, call.outputs[0].shape))


@emitter("nnl::max", "nnl::min", "nnl::argmax", "nnl::argmin")
def extreme(call: Call) -> Emission | None:
    """Extremes, and the first place of one: in any order of combining, the lower place wins."""
    x = call.inputs[0]
    assert x is not None
    _, is_place, name = call.name.rpartition("arg") if "arg" in call.name else ("", "", call.name)
    operation = "Largest" if name.endswith("max") else "Smallest"
    state, vector = computing_size(x.dtype), 16
    if is_place:
        operation, state, vector = operation + "Place", 16, 4 * min(4, x.dtype.itemsize)
    fold = Fold(operation, added_type(x.dtype), call.outputs[0].dtype, state, vector=vector)
    return reduce(call, call.attributes["axes"], fold)


def computing_size(dtype: np.dtype) -> int:
    """Return the bytes of the type in which an element is computed."""
    return max(4, dtype.itemsize) if dtype.name in FLOATING else dtype.itemsize


FIRSTS = {"Norm": "Scale", "Variance": "Mean", "Deviation": "Mean", "LogSum": "Top"}


@emitter("nnl::norm", "nnl::var", "nnl::std", "nnl::logsumexp")
def in_two_passes(call: Call) -> Emission | None:
    """What needs to know the mean, or the greatest, of all elements before it adds them up."""
    x = call.inputs[0]
    assert x is not None
    names = {"norm": "Norm", "var": "Variance", "std": "Deviation", "logsumexp": "LogSum"}
    operation = names[call.name.removeprefix("nnl::")]
    axes, number = call.attributes["axes"], 0.0
    if operation == "Norm":
        number = float(call.attributes["p"])
    elif operation in ("Variance", "Deviation"):
        count = math.prod(x.shape[axis] for axis in axes)
        number = float(count - call.attributes["ddof"]) if count else math.nan
    added = computing_type(x.dtype)
    fold = Fold(operation, added, x.dtype, sizeof(added), FIRSTS[operation], number)
    return reduce(call, axes, fold)


def _at_places(
    call: Call, entry: str, shape: tuple[int, ...], before: tuple[Step, ...]
) -> Emission | None:
    """Move one element of each reduced part of an array of that shape."""
    x, index = call.inputs
    if x is None or index is None or index.dtype.kind not in "iu":
        return None
    reduction = Reduction(call, Spec(shape, x.dtype), call.attributes["axes"])
    reduction.keep_all()
    if not reduction.fits:
        return None
    types = {"T": c_type(x.dtype), "INDEX": reduction.index.c_type}
    arguments = (given(0), *any_type(given(1), index.dtype), result(), *reduction.places())
    run = kernel("reduction.cu", entry, **types)
    return Emission((*before, over(run, reduction.results, arguments)))


@emitter("nnl::pick_reduced")
def pick_reduced(call: Call) -> Emission | None:
    """An element of each part."""
    x = call.inputs[0]
    assert x is not None
    return _at_places(call, "pick", x.shape, ())


@emitter("nnl::place_reduced")
def place_reduced(call: Call) -> Emission | None:
    """Zeros, then an element of each part: no two have one place."""
    y = call.outputs[0]
    return _at_places(call, "place", y.shape, (zero(result(), y.nbytes),))
