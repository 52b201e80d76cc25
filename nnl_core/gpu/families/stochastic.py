"""Random numbers: keys, uniform draws, dropout, and draws that reject some of what they try."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from nnl_core.gpu.kernel import (
    FLOATING,
    Call,
    Emission,
    Kernel,
    Launch,
    blocks,
    c_type,
    emitter,
    given,
    kernel,
    over,
    result,
    scratch,
)

FILE = "stochastic.cu"
THREADS = 256
LONGEST_RUN = 32
WARM = 64
"""Words that a block walks before its own, to find where a draw begins in them."""
TRIED = 4096
"""Draws by which is found how many words one takes."""
LEAST_OF_BETA = 1e-100
"""Parameters of the beta distribution below which powers of uniform numbers are all 0."""
EDGE = 3.6541528853610088
WAIT_EDGE = 7.69711747013104972


# Tables ------------------------------------------------------------------------------------------


class Ziggurat(NamedTuple):
    """Layers of one area under a falling curve, from the top: layer 0 is the base with the tail.

    A ``size`` below ``2 ** bits`` is at ``size * width`` in its layer, and certainly under the
    curve where it is below ``kept``; ``heights`` are those of the curve at the ends of the layers.
    """

    kept: list[int]
    widths: list[float]
    heights: list[float]


@cache
def normal_layers(bits: int) -> Ziggurat:
    """Return 256 layers under ``exp(-x ** 2 / 2)``."""
    tail = math.sqrt(math.pi / 2) * math.erfc(EDGE / math.sqrt(2))
    return _layers(
        EDGE, tail, lambda x: math.exp(-0.5 * x * x), lambda y: math.sqrt(-2 * math.log(y)), bits
    )


@cache
def exponential_layers(bits: int) -> Ziggurat:
    """Return 256 layers under ``exp(-x)``."""
    return _layers(
        WAIT_EDGE, math.exp(-WAIT_EDGE), lambda x: math.exp(-x), lambda y: -math.log(y), bits
    )


def _layers(
    edge: float,
    tail: float,
    curve: Callable[[float], float],
    inverse: Callable[[float], float],
    bits: int,
) -> Ziggurat:
    area = edge * curve(edge) + tail
    ends = [edge]
    for _ in range(254):
        ends.append(inverse(area / ends[-1] + curve(ends[-1])))
    ends.reverse()
    base, unit = area / curve(edge), 2.0**bits
    inner = [edge, 0.0, *ends[:-1]]
    kept = [round(x / end * unit) for x, end in zip(inner, [base, *ends], strict=True)]
    return Ziggurat(kept, [end / unit for end in (base, *ends)], [1.0, *map(curve, ends)])


def _texts(prefix: str, layers: Ziggurat, bits: int) -> dict[str, str | int]:
    """Return macros that hold a table of whole numbers and two of floating ones."""
    whole, suffix, rounded = ("ull", "", np.float64) if bits == 64 else ("u", "f", np.float32)

    def floats(values: list[float]) -> str:
        return ", ".join(f"{float(rounded(x)).hex()}{suffix}" for x in values)

    return {
        f"{prefix}_KEPT": ", ".join(f"{n}{whole}" for n in layers.kept),
        f"{prefix}_WIDTHS": floats(layers.widths),
        f"{prefix}_HEIGHTS": floats(layers.heights),
    }


# Draws of one word -------------------------------------------------------------------------------


@emitter("nnl::random_key")
def random_key(call: Call) -> Emission:
    """Compute the two numbers in one thread."""
    function = kernel(FILE, "random_key", UNIFORM=1)
    arguments = (given(0), given(1), result())
    return Emission((Launch(function, (1, 1, 1), (1, 1, 1), arguments),))


@emitter("nnl::rand")
def rand(call: Call) -> Emission:
    """Draw eight numbers in a thread."""
    low, high = call.attributes["low"], call.attributes["high"]
    numbers = (
        np.float32(high - low), np.float32(low), np.nextafter(np.float32(high), np.float32(low))
    )  # fmt: skip
    size = call.outputs[0].size
    arguments = (given(0), result(), *numbers, np.int64(size))
    return Emission((over(kernel(FILE, "rand", UNIFORM=1), blocks(size, 8), arguments),))


@emitter("nnl::dropout")
def dropout(call: Call) -> Emission | None:
    """Draw eight numbers in a thread, and drop as many elements."""
    y = call.outputs[0]
    if y.dtype.name not in FLOATING:
        return None
    p = call.attributes["p"]
    factor = (np.float64 if y.dtype == np.float64 else np.float32)(1 / (1 - p))
    arguments = (
        given(0), given(1), result(0), result(1), np.float32(p), factor, np.int64(y.size)
    )  # fmt: skip
    function = kernel(FILE, "dropout", UNIFORM=1, T=c_type(y.dtype))
    return Emission((over(function, blocks(y.size, 8), arguments),))


# Draws of as many words as they need -------------------------------------------------------------


class Draw(NamedTuple):
    """How numbers are drawn: by which macros of the kernels, with which three numbers.

    ``same`` draws so many with NumPy, which tells how many words of ``bits`` one takes.
    """

    same: Callable[[np.random.Generator], object]
    macros: dict[str, str | int]
    a: float
    b: float
    c: float = 0.0
    bits: int = 64
    number: str = "float"

    def words_taken(self) -> float:
        """Return how many words a number takes, about."""
        source = np.random.Philox(key=0)
        self.same(np.random.Generator(source))
        state = source.state
        words = 4 * (int(state["state"]["counter"][0]) - 1) + state["buffer_pos"]
        return (words if self.bits == 64 else 2 * words - state["has_uint32"]) / TRIED


@emitter("nnl::randn")
def randn(call: Call) -> Emission:
    """Draw by layers."""
    macros = {**_texts("NORMAL", normal_layers(23), 32), "EDGE": repr(EDGE)}
    draw = Draw(
        lambda generator: generator.standard_normal(TRIED, np.float32),
        macros, call.attributes["sigma"], call.attributes["mu"], bits=32,
    )  # fmt: skip
    return drawn(call, draw)


@emitter("nnl::randint")
def randint(call: Call) -> Emission:
    """Multiply words by how many integers there are, and reject what would make some likelier."""
    low, high = call.attributes["low"], call.attributes["high"]
    span = high - low
    if span == 1:
        return _certain(call, low)
    draw = Draw(
        lambda generator: generator.integers(low, high, TRIED, np.int32),
        {"INTEGERS": 1}, low, span, 2**32 % span, bits=32, number="int32_t",
    )  # fmt: skip
    return drawn(call, draw)


@emitter("nnl::rand_binomial")
def rand_binomial(call: Call) -> Emission:
    """Invert the distribution function, or reject, as it has few or many successes."""
    n, p = call.attributes["n"], float(call.attributes["p"])
    if not n or not p:
        return _certain(call, 0)
    rarer = p if p <= 0.5 else 1 - p
    none = math.exp(n * math.log1p(-rarer))
    draw = Draw(lambda generator: generator.binomial(n, p, TRIED), {"BINOMIAL": 1}, n, p, none)
    return drawn(call, draw)


def _certain(call: Call, value: int) -> Emission:
    """Return what writes one number, or 0.0, everywhere: such draws take no words."""
    arguments = (result(), np.int32(value))
    return Emission((over(kernel(FILE, "certain", UNIFORM=1), call.outputs[0].size, arguments),))


@emitter("nnl::rand_gamma")
def rand_gamma(call: Call) -> Emission:
    """Reject normal or uniform numbers."""
    k, theta = call.attributes["k"], call.attributes["theta"]
    draw = Draw(lambda generator: generator.gamma(k, theta, TRIED), _double_tables(), k, theta)
    return drawn(call, draw)


@emitter("nnl::rand_beta")
def rand_beta(call: Call) -> Emission | None:
    """Reject pairs of uniform numbers, or divide gamma numbers."""
    alpha, beta = call.attributes["alpha"], call.attributes["beta"]
    if max(alpha, beta) < LEAST_OF_BETA:
        return None
    macros = {**_double_tables(), "BETA": 1}
    draw = Draw(lambda generator: generator.beta(alpha, beta, TRIED), macros, alpha, beta)
    return drawn(call, draw)


def _double_tables() -> dict[str, str | int]:
    return {
        **_texts("DOUBLE", normal_layers(52), 64),
        **_texts("WAIT", exponential_layers(53), 64),
        "EDGE": repr(EDGE),
        "WAIT_EDGE": repr(WAIT_EDGE),
    }


def drawn(call: Call, draw: Draw) -> Emission:
    """Return the three launches that draw all numbers of an output."""
    y = call.outputs[0]
    if not y.size:
        return Emission(())
    words = int(1.05 * draw.words_taken() * y.size + 40 * math.sqrt(y.size)) + 64
    run = LONGEST_RUN
    while run > 8 and words < run * THREADS * call.device.multiprocessors:
        run //= 2
    count = blocks(words, run * THREADS)
    macros = {"NUMBER": draw.number, "WARM": WARM, **draw.macros}

    def named(entry: str) -> Kernel:
        return kernel(FILE, entry, **macros)

    key, walks, runs, firsts = given(0), scratch(0), scratch(1), scratch(2)
    numbers = (np.int32(run), np.float64(draw.a), np.float64(draw.b), np.float64(draw.c))
    size, block = np.int64(y.size), (THREADS, 1, 1)
    return Emission(
        (
            Launch(named("walk"), (count, 1, 1), block, (key, walks, runs, *numbers)),
            Launch(
                named("settle"), (1, 1, 1), block,
                (key, walks, runs, firsts, result(), *numbers, np.int64(count), size),
            ),
            Launch(
                named("write"), (count, 1, 1), block, (key, runs, firsts, result(), *numbers, size)
            ),
        ),
        (12 * count, 8 * THREADS * count, 8 * count),
    )  # fmt: skip
