"""Operational layers forward and backward, NNL beside FastONN's formulation in PyTorch."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import NamedTuple

import numpy as np

import nnl_core as nnl
from benchmarks.cpu.workers import Kind, Worker, threads
from benchmarks.onn.cases import (
    CASES,
    NODAL,
    POOLS,
    SIZES,
    Case,
    tolerance,
)
from benchmarks.peers import TORCH, PeerUnavailableError
from benchmarks.report import Cell, Report
from benchmarks.timing import interleave

COLUMNS = (
    "size",
    "layer",
    "NNL, ms",
    "PyTorch, ms",
    "ratio",
    "bar",
    "NNL, MiB",
    "planned",
    "PyTorch, MiB",
    "memory ratio",
    "error of y",
    "of gradients",
)
KINDS = {
    "NNL": Kind("onn.nnl_worker", list),
    "PyTorch": Kind("onn.torch_worker", lambda: [threads()], TORCH),
}
MEAN_BAR, CASE_BAR, MEMORY_BAR, SELF_BAR = 25.0, 8.0, 40.0, 1.5
SMALL_SIZE = "iii, first"  # measured and shown, but in no bar
MOST_LEFT_OUT = 0.5
SAMPLE_SECONDS = 0.1
MIB = 1 << 20


class Measured(NamedTuple):
    """What came of one case; ``problem`` says why there are no times."""

    case: Case
    seconds: Mapping[str, float] = {}
    ratio: float = 0.0
    memory: Mapping[str, int] = {}
    planned: int = 0
    errors: Mapping[str, tuple[float, float]] = {}
    problem: str = ""

    @property
    def bar(self) -> float | None:
        """The ratio that is asked for, if any."""
        if self.case.order:
            return SELF_BAR
        return None if self.case.size == SMALL_SIZE else CASE_BAR

    @property
    def memory_ratio(self) -> float:
        """How many times as much memory PyTorch needs."""
        return self.memory["PyTorch"] / max(self.memory["NNL"], 1)

    def row(self) -> tuple[Cell, ...]:
        """Return a row of the table."""
        errors = self.errors.get("NNL", (None, None))
        if self.problem:
            return (self.case.size, self.case.name, *(None,) * 8, *errors)
        return (
            self.case.size,
            self.case.name,
            1e3 * self.seconds["NNL"],
            1e3 * self.seconds["PyTorch"],
            self.ratio,
            self.bar,
            self.memory["NNL"] / MIB,
            self.planned / MIB,
            self.memory["PyTorch"] / MIB,
            self.memory_ratio,
            *errors,
        )


def run(rounds: int, arguments: Sequence[str] = ()) -> Report:
    """Compare the results, then time both in turn, layer by layer."""
    options = parse(arguments)
    nnl.set_backend(options.backend)
    backend = nnl.current_backend().name
    found = []
    for case in chosen(options):
        print(f"measuring {case.size}: {case.name}", file=sys.stderr)
        found.append(measure(case, rounds, backend))
    return report(found, backend)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the options that this benchmark has beyond everyone's."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run onn")
    parser.add_argument("--backend", help="NNL's backend, by default its own choice")
    for name, known in (("size", list(SIZES)), ("nodal", [*NODAL, "self"]), ("pool", list(POOLS))):
        parser.add_argument(
            f"--{name}",
            action="append",
            choices=known,
            help="layers of this one only; may be given again"
            + " (self: Self-ONN)" * (name == "nodal"),
        )
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace) -> list[Case]:
    """Return the cases that the options ask for."""

    def wanted(case: Case) -> bool:
        return all(
            not allowed or value in allowed
            for value, allowed in (
                (case.size, options.size),
                (case.nodal or "self", options.nodal),
                (case.pool, None if case.order else options.pool),
            )
        )

    return [case for case in CASES if wanted(case)]


def measure(case: Case, rounds: int, backend: str) -> Measured:
    """Return what came of one layer; a library that cannot run it raises."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        workers = {}
        for name in KINDS:
            cache = folder / name
            cache.mkdir()
            workers[name] = stack.enter_context(Worker(name, cache, backend, KINDS))
        exact = folder / "exact.npz"
        with Worker("PyTorch", folder, kinds=KINDS) as reference:  # whose memory is not measured
            left_out = reference.ask("exact", case, str(exact))
        if left_out > MOST_LEFT_OUT:
            return Measured(case, problem=f"{left_out:.0%} of the outputs have taps that tie")
        memory, errors = {}, {}
        for name, worker in workers.items():
            path = folder / f"{name}.npz"
            try:
                answer = worker.ask("first", case, str(exact), str(path))
            except PeerUnavailableError as error:
                message = f"{case.size}, {case.name}, {name}: {error}"
                raise PeerUnavailableError(message) from error
            memory[name] = answer["memory"]
            errors[name] = differences(path, exact)
        for name, found in errors.items():
            if problem := disagreement(case, found):
                return Measured(case, errors=errors, problem=f"{name}: {problem}")
        planned = workers["NNL"].ask("planned")
        timers: dict[str, Callable[[int], float]] = {
            name: partial(worker.ask, "seconds") for name, worker in workers.items()
        }
        samples = interleave(timers, rounds=rounds, sample_seconds=SAMPLE_SECONDS)
    pairs = zip(samples["PyTorch"], samples["NNL"], strict=True)
    seconds = {name: median(times) for name, times in samples.items()}
    return Measured(case, seconds, median(a / b for a, b in pairs), memory, planned, errors)


def differences(path: Path, exact: Path) -> tuple[float, float]:
    """Return how far an output, and the worst gradient, are from the exact ones, over the largest.

    Infinite where something is not finite.
    """
    with np.load(path) as found, np.load(exact) as right:
        errors = {}
        for name in ("y", "dx", "dw", "db"):
            difference = np.abs(found[name] - right[name]).max() / np.abs(right[name]).max()
            errors[name] = float(difference) if np.isfinite(difference) else float("inf")
    return errors["y"], max(errors["dx"], errors["dw"], errors["db"])


def disagreement(case: Case, errors: tuple[float, float]) -> str:
    """Say what is further from the exact results than single precision explains, if anything."""
    for what, error, most in zip(("output", "gradient"), errors, tolerance(case), strict=True):
        if not error <= most:
            return f"its {what} is {error:.2g} from double precision, where {most:g} is allowed"
    return ""


def report(found: Sequence[Measured], backend: str) -> Report:
    """Put the table together, with each bar and what was reached."""
    notes = [
        f"NNL on {backend}, {TORCH.name} {TORCH.version}; {threads()} thread(s) each; wall-clock "
        "times of output and gradients of input, weight and bias. A ratio is PyTorch's over NNL's.",
        "Sizes, as batch x maps, output maps, images: "
        + "; ".join(
            f"({name}) {size.batch}x{size.inner}, {size.outer}, {size.side}x{size.side}"
            for name, size in SIZES.items()
        )
        + "; kernels are 3x3, activations tanh.",
        "Memory is the peak of the process over what it held with its inputs, after small layers "
        "of the kind; planned are the intermediates of NNL's program.",
        "Errors are NNL's before tanh, the largest difference from double precision over the "
        "largest value. They are checked before anything is timed, PyTorch's too; gradients go "
        "through pools that select only where no two taps nearly tie.",
    ]
    notes += [f"{one.case.size}: {one.case.name}: {one.problem}." for one in found if one.problem]
    return Report(
        "Operational layers beside FastONN's formulation in PyTorch",
        COLUMNS,
        [one.row() for one in found],
        notes + bars([one for one in found if not one.problem]),
    )


def bars(found: Sequence[Measured]) -> list[str]:
    """Return a line for each bar: what was asked, what was reached, and which cases miss it."""
    layers = [one for one in found if not one.case.order]
    counted = [one for one in layers if one.case.size != SMALL_SIZE]
    generative = [one for one in found if one.case.order]
    lines = []
    if counted:
        mean = geometric_mean([one.ratio for one in counted])
        lines += [
            f"Geometric mean of {len(counted)} ratios, without size ({SMALL_SIZE}): {mean:.3g}; "
            f"bar {MEAN_BAR:g}: {verdict(mean >= MEAN_BAR)}.",
            least("Least ratio", [(one, one.ratio) for one in counted], CASE_BAR),
            least("Least memory ratio", [(one, one.memory_ratio) for one in counted], MEMORY_BAR),
        ]
    if small := [one for one in layers if one.case.size == SMALL_SIZE]:
        mean = geometric_mean([one.ratio for one in small])
        lines.append(f"Geometric mean of size ({SMALL_SIZE}), which has no bar: {mean:.3g}.")
    if generative:
        lines.append(
            least("Least ratio of Self-ONN", [(one, one.ratio) for one in generative], SELF_BAR)
        )
    return lines


def least(what: str, values: Sequence[tuple[Measured, float]], bar: float) -> str:
    """Say which of the values is least, and which are below the bar."""
    worst, value = min(values, key=lambda pair: pair[1])
    line = f"{what}: {value:.3g} ({worst.case.size}: {worst.case.name}); bar {bar:g}: "
    missed = [f"{one.case.size}: {one.case.name}" for one, value in values if value < bar]
    if len(missed) < 2:
        return f"{line}{verdict(not missed)}."
    return f"{line}{verdict(False)} by {len(missed)} of {len(values)}: {'; '.join(missed)}."


def verdict(reached: bool) -> str:
    """Say whether a bar was reached."""
    return "reached" if reached else "missed"
