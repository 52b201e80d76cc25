"""What was measured of each case, kept in one file while it grows, and the tables made of it.

``python -m benchmarks.gpu.results FILE`` prints the short table.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from benchmarks.report import Cell, Report

NNL, TORCH, GRAPHS = "NNL", "PyTorch", "PyTorch, CUDA graph"
COPY = "copy"
COPY_CASE = "copy on the device"  # whose bytes a second are the measured copy bandwidth
MIB = 1 << 20


class Bar(NamedTuple):
    """What a figure must reach: a share of ``COPY`` bandwidth, or a peer's time over NNL's."""

    of: str
    wanted: float


@dataclass
class Measurement:
    """One case: the seconds of a call by library, and what its figures follow from.

    Of an emulated device there are no seconds; ``problem`` says why a case could not be measured.
    """

    case: str
    samples: dict[str, list[float]] = field(default_factory=dict)
    moved: int = 0  # bytes that a call must move, at least
    operations: int = 0  # floating-point operations of a call
    bars: list[Bar] = field(default_factory=list)
    details: dict[str, float | int | str | None] = field(default_factory=dict)
    problem: str | None = None

    def milliseconds(self, library: str) -> float | None:
        """Return the median."""
        times = self.samples.get(library)
        return 1e3 * median(times) if times else None

    def middle_half(self) -> str | None:
        """Return the quartiles of NNL's milliseconds."""
        times = self.samples.get(NNL)
        if not times:
            return None
        low, _, high = (1e3 * value for value in quantiles(times, n=4))
        return f"{low:.4g} to {high:.4g}"

    def over_nnl(self, library: str) -> float | None:
        """Return a peer's time over NNL's: the median of the ratios within each round."""
        ours, theirs = self.samples.get(NNL), self.samples.get(library)
        if not (ours and theirs):
            return None
        return median(a / b for a, b in zip(theirs, ours, strict=True))

    def rate(self, amount: int) -> float | None:
        """Return an amount, of bytes or operations, by the second."""
        times = self.samples.get(NNL)
        return amount / median(times) if times and amount else None


@dataclass
class Results:
    """All measurements of a device, and what it is."""

    emulated: bool = False
    machine: dict[str, str] = field(default_factory=dict)
    measurements: dict[str, Measurement] = field(default_factory=dict)

    def add(self, measurement: Measurement) -> None:
        """Keep a measurement, in place of an earlier one of the same case."""
        if self.emulated:
            measurement.samples = {}
            counted = ("launches", "on host")
            measurement.details = {name: measurement.details.get(name) for name in counted}
        self.measurements[measurement.case] = measurement

    @property
    def copy_bandwidth(self) -> float | None:
        """Bytes a second, read and written, of a copy on the device."""
        copied = self.measurements.get(COPY_CASE)
        return copied.rate(copied.moved) if copied else None

    def share_of_copy(self, measurement: Measurement) -> float | None:
        """Return the bytes a second of a case over those of a copy."""
        rate, whole = measurement.rate(measurement.moved), self.copy_bandwidth
        return rate / whole if rate and whole else None

    def verdict(self, measurement: Measurement, bar: Bar) -> str:
        """Say a bar, and whether it was met."""
        label = "of copy" if bar.of == COPY else f"x {bar.of}"
        if self.emulated:
            return f"{bar.wanted:g} {label}: emulated"
        found = self.share_of_copy(measurement) if bar.of == COPY else measurement.over_nnl(bar.of)
        if found is None:
            return f"{bar.wanted:g} {label}: not measured"
        met = "met" if found >= bar.wanted else "MISSED"
        return f"{bar.wanted:g} {label}: {met} ({found:.3g})"

    # Files ---------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write all of it, with the figures that follow, in one piece."""
        content = asdict(self)
        for name, one in self.measurements.items():
            content["measurements"][name] |= {"figures": self.figures(one)}
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as draft:
            json.dump(content, draft, indent=1)
        os.replace(draft.name, path)

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what was saved; a file that is not there holds nothing."""
        if not path.exists():
            return cls()
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        measurements = {}
        for name, one in content["measurements"].items():
            del one["figures"]
            one["bars"] = [Bar(*bar) for bar in one["bars"]]
            measurements[name] = Measurement(**one)
        return cls(content["emulated"], content["machine"], measurements)

    def figures(self, one: Measurement) -> Mapping[str, Cell]:
        """Return everything that a table can say of a case."""
        rates = one.rate(one.moved), one.rate(one.operations)
        gigabytes, teraflops = (
            rate and rate / scale for rate, scale in zip(rates, (1e9, 1e12), strict=True)
        )
        return {
            "case": one.case,
            "NNL, ms": one.milliseconds(NNL),
            "middle half": one.middle_half(),
            "PyTorch, ms": one.milliseconds(TORCH),
            "PyTorch / NNL": one.over_nnl(TORCH),
            "graph, ms": one.milliseconds(GRAPHS),
            "graph / NNL": one.over_nnl(GRAPHS),
            "GB/s": gigabytes,
            "of copy": self.share_of_copy(one),
            "TFLOP/s": teraflops,
            **{name: one.details.get(name) for name in DETAILS},
            "bars": "; ".join(self.verdict(one, bar) for bar in one.bars) or None,
            "problem": one.problem,
        }

    # Tables --------------------------------------------------------------------------------------

    def report(self, columns: Sequence[str] | None = None) -> Report:
        """Return the table of all cases, of all columns that anything is known of."""
        known = [self.figures(one) for one in self.measurements.values()]
        every = list(known[0]) if known else ["case"]
        chosen = [
            name
            for name in columns or every
            if name == "case" or any(row[name] is not None for row in known)
        ]
        title = "NNL on a GPU beside PyTorch"
        if self.emulated:
            title += ": EMULATED, so there are no figures; it shows that everything runs"
        rows = [[row[name] for name in chosen] for row in known]
        machine = [f"{name}: {words}" for name, words in self.machine.items()]
        return Report(title, chosen, rows, [*NOTES, *machine])


DETAILS = ("first step, s", "memory, MiB", "PyTorch, MiB", "launches", "on host", "layout")
SHORT = (
    "case", "NNL, ms", "PyTorch / NNL", "graph / NNL", "of copy", "TFLOP/s",
    "first step, s", "memory, MiB", "on host", "bars",
)  # fmt: skip
NOTES = (
    "A ratio is the peer's time over NNL's: above 1 NNL is faster. Times of the device, by events, "
    "taken in turn; those of kernels and products within a captured graph of several calls, those "
    "of steps as users run them. Cases of 'host' are times of the host.",
    "'PyTorch' is eager (of convolutions with the faster of its two layouts, cuDNN choosing by "
    "measurement; of steps with channels first, as models are built); "
    "'graph' is PyTorch's whole step captured and replayed.",
    "'of copy' is the share of the bytes a second, read and written, of a copy on the device. Rows "
    "of 1,024 lie in the L2 cache, in both libraries.",
    "'on host' are instructions that NumPy computes for want of a kernel.",
)


def main() -> None:
    """Print the short table of a file; exit with status 1 where a case could not be measured."""
    results = Results.load(Path(sys.argv[1]))
    if not results.measurements:
        raise SystemExit(f"{sys.argv[1]} holds no measurement")
    print(results.report(SHORT).as_text())
    failed = [one for one in results.measurements.values() if one.problem]
    for one in failed:
        print(f"FAILED {one.case}: {one.problem}")
    verdicts = [
        results.verdict(one, bar) for one in results.measurements.values() for bar in one.bars
    ]
    met = sum(": met" in verdict for verdict in verdicts)
    missed = sum("MISSED" in verdict for verdict in verdicts)
    print(f"bars: {met} met, {missed} missed, {len(verdicts) - met - missed} without a figure")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
