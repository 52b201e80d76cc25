"""Whole training steps and inference on a CPU, NNL beside its peers, from the same parameters."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import numpy as np

import nnl_core as nnl
from benchmarks.cpu import workloads
from benchmarks.cpu.arrays import CASES
from benchmarks.cpu.workers import KINDS, Worker, threads
from benchmarks.peers import PeerUnavailableError, peer_python
from benchmarks.report import Cell, Report
from benchmarks.timing import Samples, interleave

COLUMNS = (
    "workload",
    "library",
    "step, ms",
    "middle half",
    "over NNL",
    "first step, s",
    "memory, MiB",
    "planned, MiB",
)
TOLERANCE = 1e-3
COMPARED_STEPS = 3
SAMPLE_SECONDS = 0.2
MIB = 1 << 20


class Started(NamedTuple):
    """What a worker's first step took, what came of it, and what NNL planned to hold."""

    seconds: float
    planned: int | None
    results: list[list[float]]


def run(rounds: int, arguments: Sequence[str] = ()) -> Report:
    """Compare losses and outputs, then time all in turn, workload by workload."""
    options = parse(arguments)
    nnl.set_backend(options.backend)
    backend = nnl.current_backend().name
    rows: list[tuple[Cell, ...]] = []
    notes = [
        f"{threads()} thread(s) for everyone; wall-clock times. A ratio is the library's time over "
        "NNL's: above 1 NNL is faster.",
        "The first step includes building the model and compiling it, with empty caches of "
        "compiled code. Memory is the peak of the process while it steps, over what it held after "
        "its imports; planned are the intermediates of NNL's largest program.",
        f"Losses of {COMPARED_STEPS} steps, and inferred outputs, agree to {TOLERANCE:g}.",
    ]
    peers, problems = available(options.peers)
    notes += problems
    for case in options.cases:
        print(f"measuring {case}", file=sys.stderr)
        measured, problems = measure(case, peers, rounds, backend)
        rows += measured
        notes += problems
    versions = [f"{peer.name} {peer.version}" for name in peers if (peer := KINDS[name].peer)]
    notes.insert(0, f"{', '.join(['NNL on ' + backend, *dict.fromkeys(versions)])}.")
    return Report("NNL on a CPU beside its peers", COLUMNS, rows, notes)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the options that this benchmark has beyond everyone's."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run cpu")
    peers = [name for name in KINDS if name != "NNL"]
    for name, known in (("cases", list(CASES)), ("peers", peers)):
        parser.add_argument(
            f"--{name}",
            type=partial(_chosen, known),
            default=known,
            metavar="A,B",
            help=f"some of {', '.join(known)}",
        )
    parser.add_argument("--backend", help="NNL's backend, by default its own choice")
    options = parser.parse_args(arguments)
    return options


def _chosen(known: Sequence[str], text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"unknown {name!r}; there are {', '.join(known)}")
    return names


def available(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return which peers can be had, installing them if need be, and why others cannot."""
    found: list[str] = []
    problems: list[str] = []
    for name in names:
        try:
            if peer := KINDS[name].peer:
                peer_python(peer)
            found.append(name)
        except PeerUnavailableError as error:
            problems.append(f"{name}: {error}")
    return found, problems


def measure(
    case: str, peers: Sequence[str], rounds: int, backend: str
) -> tuple[list[tuple[Cell, ...]], list[str]]:
    """Return the rows of one workload, and why a peer has none."""
    problems: list[str] = []
    started: dict[str, Started] = {}
    workers: dict[str, Worker] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        values = folder / "values.npz"
        first_values: dict[str, Any] = workloads.build(case).parameters()
        np.savez(values, **first_values)
        for name in ("NNL", *peers):
            if case not in KINDS[name].cases:
                continue
            cache = folder / name
            cache.mkdir()
            try:
                worker = stack.enter_context(Worker(name, cache, backend))
                started[name] = start(worker, case, values)
            except PeerUnavailableError as error:
                if name == "NNL":
                    raise PeerUnavailableError(f"{case}, NNL: {error}") from error
                problems.append(f"{case}, {name}: {error}")
                continue
            workers[name] = worker
            check(case, name, started[name].results, started["NNL"].results)
        memory = {name: worker.ask("memory") for name, worker in workers.items()}
        timers: dict[str, Callable[[int], float]] = {
            name: partial(worker.ask, "seconds") for name, worker in workers.items()
        }
        samples = interleave(timers, rounds=rounds, sample_seconds=SAMPLE_SECONDS)
    return [row(case, name, samples, started[name], memory[name]) for name in workers], problems


def start(worker: Worker, case: str, values: Path) -> Started:
    """Let a worker do the steps that are compared."""
    first: dict[str, Any] = worker.ask("first", case, str(values))
    more = worker.ask("more", COMPARED_STEPS - 1)
    return Started(first["seconds"], first["planned"], [first["result"], *more])


def check(case: str, name: str, theirs: list[list[float]], ours: list[list[float]]) -> None:
    """Raise unless a peer's results are NNL's."""
    a, b = np.array(theirs), np.array(ours)
    # Losses each for itself; of many outputs, the largest is the measure.
    scale = np.abs(b) if b.shape[1] <= 2 else np.abs(b).max()
    if a.shape != b.shape or not (np.abs(a - b) <= TOLERANCE * scale).all():
        found = ", ".join(f"{one:.6g}" for one in a.ravel()[:6])
        wanted = ", ".join(f"{one:.6g}" for one in b.ravel()[:6])
        raise AssertionError(f"{case}: {name} computes {found}, and NNL {wanted}")


def row(case: str, name: str, samples: Samples, started: Started, memory: int) -> tuple[Cell, ...]:
    """Summarise what was measured of one worker."""
    times = samples[name]
    low, _, high = (1e3 * value for value in quantiles(times, n=4))
    ratio = median(a / b for a, b in zip(times, samples["NNL"], strict=True))
    planned = None if started.planned is None else started.planned / MIB
    return (
        case,
        name,
        1e3 * median(times),
        f"{low:.4g} to {high:.4g}",
        ratio,
        started.seconds,
        memory / MIB,
        planned,
    )
