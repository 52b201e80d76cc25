"""Time alternatives in turn, so that what disturbs the machine disturbs all of them alike."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Mapping
from statistics import median, quantiles
from time import perf_counter

from benchmarks.report import Cell

TIMING_COLUMNS = ("case", "median", "middle half", "unit", "ratio", "what it is")

Samples = dict[str, list[float]]
UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


Timer = Callable[[int], float]
"""Makes some calls of a case one after the other, and returns the seconds that one took."""


def timer(call: Callable[[], object], clock: Callable[[], float] = perf_counter) -> Timer:
    """Time a function. What runs in one thread may take ``time.thread_time`` as its ``clock``, in
    which what other processes do does not count.
    """

    def seconds(repeats: int) -> float:
        turns = range(repeats)
        start = clock()
        for _ in turns:
            call()
        return (clock() - start) / repeats

    return seconds


def interleave(cases: Mapping[str, Timer], *, rounds: int, sample_seconds: float = 0.02) -> Samples:
    """Return the seconds that one call of each case took, ``rounds`` times each.

    A sample repeats its case for about ``sample_seconds``. Every round times every case once, each
    round in another order.
    """
    repeats = {name: _repeats(seconds, sample_seconds) for name, seconds in cases.items()}
    samples: Samples = {name: [] for name in cases}
    names = list(cases)
    order = random.Random(0)
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            # Shuffled, not rotated: what ran just before leaves its mark on caches and clock.
            order.shuffle(names)
            for name in names:
                samples[name].append(cases[name](repeats[name]))
    finally:
        gc.enable()
    return samples


def _repeats(seconds: Timer, sample_seconds: float) -> int:
    """Return how many calls take about ``sample_seconds``."""
    seconds(1)
    repeats = 1
    while (each := seconds(repeats)) * repeats < sample_seconds / 4:
        repeats *= 2
    return max(1, round(sample_seconds / each))


def timing_row(
    name: str, samples: Samples, *, baseline: str | None, description: str
) -> tuple[Cell, ...]:
    """Summarise one case: median, quartiles, and the median of its ratios to ``baseline``."""
    times = samples[name]
    middle = median(times)
    unit, scale = next((u for u in UNITS if middle >= u[1]), UNITS[-1])
    low, _, high = (value / scale for value in quantiles(times, n=4))
    ratio = None
    if baseline is not None:
        # Taken round by round, since neighbours in time met the same machine.
        ratio = median(a / b for a, b in zip(times, samples[baseline], strict=True))
    return name, middle / scale, f"{low:.4g} to {high:.4g}", unit, ratio, description
