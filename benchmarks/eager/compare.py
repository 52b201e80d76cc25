"""What a small operator costs in a dynamic graph, library by library, on the same elements."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.cpu.workers import threads
from benchmarks.eager.worker import ENGINES, cases_of, nnl_engine
from benchmarks.peers import NNABLA, TORCH, PeerUnavailableError, peer_python
from benchmarks.report import Cell, Report
from benchmarks.timing import Samples, interleave

PEERS = {"PyTorch": TORCH, "nnabla": NNABLA}
BASELINE = "NNL"
TOLERANCE = 1e-5
SAMPLE_SECONDS = 0.01
ROOT = Path(__file__).parents[2]


class Worker:
    """A process that computes the cases in one library."""

    def __init__(self, name: str) -> None:
        self.name = name
        python = str(peer_python(PEERS[name])) if name in PEERS else sys.executable
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.eager.worker", name, threads()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )

    def ask(self, case: str, repeats: int = 0) -> Any:
        """Return the seconds of a call, or without ``repeats`` the case's results."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([case, repeats]) + "\n")
        self.process.stdin.flush()
        if not (line := self.process.stdout.readline()):
            raise PeerUnavailableError(f"{self.name}'s process ended at {case!r}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.communicate()


def run(rounds: int) -> Report:
    """Compare every case's results, then time the libraries in turn."""
    notes = [
        f"{threads()} thread(s), processor time, microseconds. Arrays of (32, 16) float32. A ratio "
        "is the library's time over NNL's: above 1 NNL is faster.",
        "The network is three affine layers of 16 with tanh, and the mean of the squares.",
        f"torch {TORCH.version}, nnabla {NNABLA.version}.",
    ]
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name in ENGINES:
            try:
                workers[name] = stack.enter_context(Worker(name))
            except PeerUnavailableError as error:
                notes.append(f"{name}: {error}")
        rows = []
        for case in cases_of(nnl_engine(1)):
            check(case, workers)
            timers = {name: partial(worker.ask, case) for name, worker in workers.items()}
            found = interleave(timers, rounds=rounds, sample_seconds=SAMPLE_SECONDS)
            rows.append((case, *summary(found)))
    columns = ["case"]
    for name in ENGINES:
        columns += [name] if name == BASELINE else [name, f"{name} over {BASELINE}"]
    return Report("Small operators in a dynamic graph", columns, rows, notes)


def check(case: str, workers: dict[str, Worker]) -> None:
    """Raise unless all libraries give the same."""
    results = {name: worker.ask(case) for name, worker in workers.items()}
    for name, arrays in results.items():
        for ours, theirs in zip(results[BASELINE], arrays, strict=True):
            if not np.allclose(np.ravel(ours), np.ravel(theirs), rtol=TOLERANCE, atol=TOLERANCE):
                raise AssertionError(f"{case}: {name} gives something else than {BASELINE}")


def summary(samples: Samples) -> tuple[Cell, ...]:
    """Return the median microseconds of each library, and their ratios to NNL's."""
    cells: list[Cell] = []
    for name in ENGINES:
        times = samples.get(name)
        if times is None:
            cells += [None, None]
            continue
        cells.append(1e6 * median(times))
        if name != BASELINE:
            pairs = zip(times, samples[BASELINE], strict=True)
            cells.append(median(theirs / ours for theirs, ours in pairs))
    return tuple(cells)
