"""Loops over windows that slide over strided values, as generated C."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from nnl_native.kernel import Operand

UNROLLED = 16  # positions of a window that are written out
PICTURES = 64  # pictures from which on each is one unit of work


class Batch(NamedTuple):
    """An axis along which each place has its own windows."""

    length: int
    x: int  # strides of what windows slide over, and of what they make
    y: int


class Slide(NamedTuple):
    """An axis that windows slide over."""

    length: int
    places: int
    kernel: int
    stride: int
    before: int
    after: int
    x: int
    y: int

    @property
    def is_covered(self) -> bool:
        """Whether windows touch each element once."""
        return self.kernel == self.stride and self.places * self.stride - self.before >= self.length


class Windows(NamedTuple):
    """The axes of a pooling; one is gone along by vectors: the last batch or the last slide."""

    batches: tuple[Batch, ...]
    slides: tuple[Slide, ...]
    along_batch: bool
    split: bool  # whether a unit of work is one place along the first slide

    @property
    def dims(self) -> tuple[int, ...]:
        """What the generated loops are told: batches, then slides."""
        numbers = [number for batch in self.batches for number in batch]
        for slide in self.slides:
            numbers += [slide.length, slide.places, slide.x, slide.y]
            numbers += [slide.kernel, slide.stride, slide.before, slide.after]
        return tuple(numbers)

    @property
    def units(self) -> int:
        """Number of units of work."""
        outer = self.batches[:-1] if self.along_batch else self.batches
        return prod(b.length for b in outer) * (self.slides[0].places if self.split else 1)

    @property
    def cost(self) -> int:
        """Number of positions in all windows."""
        places = prod(slide.places for slide in self.slides)
        return self.taps * places * prod(batch.length for batch in self.batches)

    @property
    def taps(self) -> int:
        """Number of positions in a window."""
        return prod(slide.kernel for slide in self.slides)


def find_windows(x: Operand, y: Operand, attributes: Mapping[str, Any], *, apart: bool) -> Windows:
    """Sort the axes of a pooling; ``apart``: windows may be shared out among threads."""
    kernel, stride, pad = (attributes[name] for name in ("kernel", "stride", "pad"))
    split = len(x.shape) - len(kernel)
    batches = [
        Batch(n, a, b)
        for n, a, b in zip(x.shape[:split], x.strides[:split], y.strides[:split], strict=True)
    ]
    slides = []
    for axis, (k, s, (before, after)) in enumerate(zip(kernel, stride, pad, strict=True), split):
        slide = Slide(
            x.shape[axis], y.shape[axis], k, s, before, after, x.strides[axis], y.strides[axis]
        )
        if k == s == 1 and not before and slide.length == slide.places:
            batches.append(Batch(slide.length, slide.x, slide.y))
        else:
            slides.append(slide)
    merged = _merged(batches)
    slides.sort(key=lambda slide: (-slide.x, -slide.y))
    smallest = min((slide.x for slide in slides), default=0)
    along_batch = bool(merged) and (merged[-1].y == 1 or merged[-1].x < smallest or not slides)
    if along_batch and slides and merged[-1].length == 1:
        along_batch = False
    if not slides and not along_batch:
        merged, along_batch = [Batch(1, 1, 1)], True
    outer = prod(b.length for b in (merged[:-1] if along_batch else merged))
    divided = apart and outer < PICTURES and len(slides) > (0 if along_batch else 1)
    return Windows(tuple(merged), tuple(slides), along_batch, divided)


def _merged(batches: Sequence[Batch]) -> list[Batch]:
    """Return axes by strides, outermost first, neighbours made one where they can be."""
    merged: list[Batch] = []
    for batch in sorted(batches, key=lambda b: (-b.y, -b.x)):
        outer = merged[-1] if merged else None
        if batch.length == 1:
            continue
        if (
            outer is not None
            and outer.x == batch.x * batch.length
            and outer.y == batch.y * batch.length
        ):
            merged[-1] = Batch(outer.length * batch.length, batch.x, batch.y)
        else:
            merged.append(batch)
    return merged


class Row(NamedTuple):
    """What generated text for a row of windows can name.

    ``at`` and ``to`` are the C expressions of the first window's place in ``x`` and in ``y``, to
    which ``j`` times ``step`` and ``j`` times ``goal`` are added; ``count`` windows follow.
    """

    windows: Windows
    step: str
    goal: str

    def x(self, name: str, tap: str = "") -> str:
        """Return the element of an array that lies as ``x`` does."""
        return f"{name}[at + {tap + ' + ' if tap else ''}j * {self.step}]"

    def y(self, name: str) -> str:
        """Return the element of an array that lies as ``y`` does."""
        return f"{name}[to + j * {self.goal}]"

    def taps(self) -> list[str]:
        """Return the C expression of each position in the window, in row-major order."""
        counts = [range(slide.kernel) for slide in self.windows.slides]
        return [f"t{'_'.join(map(str, tap))}" for tap in itertools.product(*counts)]

    def tap_constants(self) -> list[str]:
        """Return the declarations of these positions."""
        counts = [range(slide.kernel) for slide in self.windows.slides]
        lines = []
        for name, tap in zip(self.taps(), itertools.product(*counts), strict=True):
            terms = [f"{k} * x{axis}" for axis, k in enumerate(tap) if k]
            lines.append(f"const int64_t {name} = {' + '.join(terms) or '0'};")
        return lines

    def each_tap(self, body: Sequence[str], *, backwards: bool = False) -> list[str]:
        """Return loops over the positions that lie in the data, as ``tap``."""
        heads = []
        for axis in range(len(self.windows.slides)):
            heads.append(
                f"for (int64_t k{axis} = high{axis} - 1; k{axis} >= low{axis}; k{axis}--)"
                if backwards
                else f"for (int64_t k{axis} = low{axis}; k{axis} < high{axis}; k{axis}++)"
            )
        terms = [f"k{axis} * x{axis}" for axis in range(len(self.windows.slides))]
        return [*heads, "{", f"const int64_t tap = {' + '.join(terms) or '0'};", *body, "}"]


def walk(
    windows: Windows,
    full: Callable[[Row], list[str]] | None,
    part: Callable[[Row], list[str]],
    cleared: str | None = None,
) -> str:
    """Return the loops over all rows of windows.

    ``full`` writes what is done with a row of windows that lie wholly in the data (where it is
    ``None``, or windows are large, ``part`` does it); ``part`` with a row whose windows have the
    positions ``low<axis>`` to ``high<axis>`` in it. The axes are the slides. ``cleared`` names an
    array that lies as ``x`` does, and is set to 0 before its windows are gone through; a unit of
    work must then be a whole picture.
    """
    batches, slides, along_batch, split = windows
    unrolled = full is not None and windows.taps <= UNROLLED
    row = _row(windows)
    lines = _declared(windows, unrolled=unrolled)
    if unrolled:
        lines += row.tap_constants()
    lines += [
        "for (int64_t unit = begin; unit < end; unit++) {",
        "int64_t rest = unit, from = 0, into = 0; int whole = 1;",
    ]
    if split:
        lines.append("const int64_t o0 = rest % places0; rest /= places0;")
    for number in reversed(range(len(batches) - along_batch)):
        at = 3 * number
        lines.append(
            f"{{ const int64_t i = rest % d[{at}]; rest /= d[{at}]; "
            f"from += i * d[{at + 1}]; into += i * d[{at + 2}]; }}"
        )
    if cleared is not None:
        lines += _clear(windows, cleared, row.step)
    outer = len(slides) - (not along_batch)
    for axis in range(outer):
        if not (split and axis == 0):
            lines.append(f"for (int64_t o{axis} = 0; o{axis} < places{axis}; o{axis}++) {{")
        lines += _place(axis)
    before = str(outer - 1) if outer else ""
    lines += _vector(windows, before)
    if unrolled and full is not None:
        lines += ["if (inner) {", *full(row), "} else {", *part(row), "}"]
    else:
        lines += ["{", *part(row), "}"]
    lines += ["}"] * (1 + len(slides) - split)
    return "\n".join(lines)


def _declared(windows: Windows, *, unrolled: bool) -> list[str]:
    """Declare what is known of each slide: numbers that vectors depend on are in the text."""
    lines = []
    for axis, slide in enumerate(windows.slides):
        at = 3 * len(windows.batches) + 8 * axis
        steps = not windows.along_batch and axis == len(windows.slides) - 1
        values = {
            "n": f"d[{at}]",
            "places": f"d[{at + 1}]",
            "x": "1" if slide.x == 1 else f"d[{at + 2}]",
            "y": "1" if slide.y == 1 else f"d[{at + 3}]",
            "kernel": str(slide.kernel) if unrolled else f"d[{at + 4}]",
            "stride": str(slide.stride) if steps else f"d[{at + 5}]",
            "before": f"d[{at + 6}]",
            "after": f"d[{at + 7}]",
        }
        pairs = (f"{name}{axis} = {value}" for name, value in values.items())
        lines.append(f"const int64_t {', '.join(pairs)};")
    return lines


def _row(windows: Windows) -> Row:
    """Return how one goes from window to window in the direction of vectors."""
    if windows.along_batch:
        batch, at = windows.batches[-1], 3 * len(windows.batches) - 3
        return Row(
            windows,
            "1" if batch.x == 1 else f"d[{at + 1}]",
            "1" if batch.y == 1 else f"d[{at + 2}]",
        )
    last = len(windows.slides) - 1
    return Row(windows, f"(stride{last} * x{last})", f"y{last}")


def _place(axis: int) -> list[str]:
    """Say where the windows at a place along a slide begin, and which positions they have."""
    before = str(axis - 1) if axis else ""
    return [
        f"const int64_t start{axis} = o{axis} * stride{axis} - before{axis};",
        f"const int64_t low{axis} = MAX(0, -start{axis});",
        f"const int64_t high{axis} = MIN(kernel{axis}, n{axis} - start{axis});",
        f"const int64_t from{axis} = from{before} + start{axis} * x{axis};",
        f"const int64_t into{axis} = into{before} + o{axis} * y{axis};",
        f"const int whole{axis} = whole{before} & (low{axis} == 0) & (high{axis} == kernel{axis});",
    ]


def _vector(windows: Windows, before: str) -> list[str]:
    """Say where a row of windows begins: all of a batch, or along a slide those that are whole.

    The others there are rows of one window.
    """
    if windows.along_batch:
        count = f"d[{3 * len(windows.batches) - 3}]"
        return [
            f"const int64_t at = from{before}, to = into{before}, count = {count};",
            f"const int inner = whole{before};",
        ]
    a = len(windows.slides) - 1
    return [
        f"const int64_t first = MIN(places{a}, (before{a} + stride{a} - 1) / stride{a});",
        f"const int64_t room = n{a} - kernel{a} + before{a};",
        f"const int64_t stop = "
        f"room < 0 ? first : MAX(first, MIN(places{a}, room / stride{a} + 1));",
        f"for (int64_t place = 0; place < places{a};) {{",
        "const int middle = (place >= first) & (place < stop);",
        "const int64_t count = middle ? stop - place : 1;",
        f"const int64_t start{a} = place * stride{a} - before{a};",
        f"const int64_t low{a} = middle ? 0 : MAX(0, -start{a});",
        f"const int64_t high{a} = middle ? kernel{a} : MIN(kernel{a}, n{a} - start{a});",
        f"const int64_t at = from{before} + start{a} * x{a};",
        f"const int64_t to = into{before} + place * y{a};",
        f"const int inner = whole{before} & middle;",
        "place += count;",
    ]


def _clear(windows: Windows, name: str, step: str) -> list[str]:
    """Return the loops that set a unit's part of an array to 0."""
    assert not windows.split
    count = len(windows.slides) - (not windows.along_batch)
    terms = " + ".join(f"i{axis} * x{axis}" for axis in range(count))
    last = len(windows.slides) - 1
    length, stride = (
        (f"d[{3 * len(windows.batches) - 3}]", step)
        if windows.along_batch
        else (f"n{last}", f"x{last}")
    )
    return [
        *(f"for (int64_t i{axis} = 0; i{axis} < n{axis}; i{axis}++)" for axis in range(count)),
        "{",
        "#pragma omp simd",
        f"for (int64_t j = 0; j < {length}; j++) "
        f"{name}[from + {terms + ' + ' if terms else ''}j * {stride}] = 0;",
        "}",
    ]
