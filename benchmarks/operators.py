"""The NumPy backend beside PyTorch, operator family by operator family, on the same arrays."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

import nnl_core as nnl
from benchmarks.operator_cases import CASES, Case
from benchmarks.peers import TORCH, PeerUnavailableError, peer_python
from benchmarks.report import Cell, Report
from benchmarks.timing import Samples, Timer, interleave, timer

COLUMNS = ("family", "case", "forward, ms", "over PyTorch", "with gradient, ms", "over PyTorch ")
TOLERANCE = 1e-3
SAMPLE_SECONDS = 0.004

Array = npt.NDArray[Any]


class Worker:
    """A process of PyTorch's environment that computes cases when asked to."""

    def __init__(self, python: Path) -> None:
        self.process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("torch_worker.py")), _threads()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *command: Any) -> Any:
        """Send a command and wait for the answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        if not (line := self.process.stdout.readline()):
            raise PeerUnavailableError(f"PyTorch's process ended at {command}")
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


def _threads() -> str:
    return os.environ.get("OMP_NUM_THREADS", "1")


def run(rounds: int) -> Report:
    """Compare every case's results with PyTorch's, then time both in turn."""
    notes = [
        f"torch {TORCH.version}. Ratios are NNL's time over PyTorch's: below 1 NNL is faster. The "
        "family's line is the geometric mean.",
        f"Processor time, {_threads()} thread(s). Static graphs; 'with gradient' is forward and "
        "backward of all inputs that have one.",
    ]
    families: defaultdict[str, list[tuple[Cell, ...]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, Worker(peer_python(TORCH)) as torch:
        for case in CASES:
            samples = measure(case, torch, Path(folder), rounds)
            families[case.family].append((case.family, case.name, *summary(samples)))
    rows = [
        row
        for family, members in families.items()
        for row in [*members, (family, "**all**", None, mean(members, 3), None, mean(members, 5))]
    ]
    return Report("Operators, NumPy backend beside PyTorch", COLUMNS, rows, notes)


def summary(samples: Samples) -> tuple[Cell, ...]:
    """Return milliseconds and ratio, forward and with gradient."""
    cells: list[Cell] = []
    for what in ("forward", "both"):
        found = f"nnl {what}" in samples
        cells += (
            [1e3 * median(samples[f"nnl {what}"]), ratio(samples, what)] if found else [None] * 2
        )
    return tuple(cells)


def ratio(samples: Samples, what: str) -> float:
    """Return the median of NNL's time over PyTorch's, round by round."""
    pairs = zip(samples[f"nnl {what}"], samples[f"torch {what}"], strict=True)
    return median(ours / theirs for ours, theirs in pairs)


def mean(rows: list[tuple[Cell, ...]], column: int) -> float | None:
    """Return the geometric mean of a column, leaving out what could not be had."""
    ratios = [cell for row in rows if isinstance(cell := row[column], float)]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def measure(case: Case, torch: Worker, folder: Path, rounds: int) -> Samples:
    """Check that both compute the same, then time them."""
    inputs = case.inputs(np.random.default_rng(0))
    label = f"{case.family}: {case.name}"
    given = folder / "given.npz"
    np.savez(given, *inputs)
    torch.ask("define", label, case.torch, str(given), case.differentiable)
    forward, both, gradients = graph_of(case, inputs)
    check(label, case, forward(), gradients, torch, folder / "found.npz")
    timers: dict[str, Timer] = {"nnl forward": timer(forward, process_time)}
    timers["torch forward"] = lambda repeats: torch.ask("seconds", label, "forward", repeats)
    if case.differentiable:
        timers["nnl both"] = timer(both, process_time)
        timers["torch both"] = lambda repeats: torch.ask("seconds", label, "both", repeats)
    return interleave(timers, rounds=rounds, sample_seconds=SAMPLE_SECONDS)


Graph = tuple[Callable[[], Array], Callable[[], object], Callable[[], dict[int, Array]]]


def graph_of(case: Case, inputs: list[Array]) -> Graph:
    """Return the case as a static graph: forward, both ways, and one pass's gradients."""
    variables = [
        nnl.Variable.from_numpy_array(array, need_grad=position in case.differentiable)
        for position, array in enumerate(inputs)
    ]
    y = case.nnl(*variables)

    def forward() -> Array:
        y.forward(clear_no_need_grad=True)
        return np.asarray(y.d)

    def both() -> None:
        y.forward(clear_no_need_grad=True)
        y.backward(1.0, clear_buffer=True)

    def gradients() -> dict[int, Array]:
        for position in case.differentiable:
            variables[position].grad.zero()
        if case.differentiable:
            both()
        return {position: variables[position].g for position in case.differentiable}

    return forward, both, gradients


def check(
    label: str,
    case: Case,
    y: Array,
    gradients: Callable[[], dict[int, Array]],
    torch: Worker,
    path: Path,
) -> None:
    """Raise unless PyTorch gives the same output and gradients."""
    ours = {"y": np.array(y)} | {f"g{i}": np.array(g) for i, g in gradients().items()}
    torch.ask("result", label, str(path), case.differentiable)
    with np.load(path) as theirs:
        for name, value in ours.items():
            scale = max(1.0, float(np.abs(theirs[name]).max()))
            if not np.allclose(value, theirs[name], rtol=TOLERANCE, atol=TOLERANCE * scale):
                worst = float(np.abs(value - theirs[name]).max())
                raise AssertionError(f"{label}: {name} differs from PyTorch's by up to {worst:.2g}")
