"""How long it takes until a library, or the command line, answers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers import NNABLA, TORCH, PeerUnavailableError, peer_python
from benchmarks.report import Cell, Report
from benchmarks.timing import TIMING_COLUMNS, Timer, interleave, timer, timing_row

BASELINE = "import nnl_core"
USE = "from nnl_core import F, PF, S, Variable; F.relu(Variable((2, 3)))"


def run(rounds: int) -> Report:
    """Time whole processes from start to end, in turn."""
    python = sys.executable
    commands = {
        BASELINE: [python, "-c", "import nnl_core"],
        "python": [python, "-c", "pass"],
        "import numpy": [python, "-c", "import numpy"],
        "use nnl_core": [python, "-c", USE],
        "nnl --help": [str(Path(python).with_name("nnl")), "--help"],
    }
    descriptions = {
        BASELINE: "loads nothing that is not asked for: compare 'use nnl_core' with the peers",
        "python": "an interpreter that does nothing: contained in all of these",
        "use nnl_core": "all functions, parametric functions and solvers, and one call",
    }
    for peer in (TORCH, NNABLA):
        name = f"import {peer.name}"
        version = peer.python or f"{sys.version_info.major}.{sys.version_info.minor}"
        descriptions[name] = f"{peer.name} {peer.version} on Python {version}"
        try:
            commands[name] = [str(peer_python(peer)), "-c", f"import {peer.name}"]
        except PeerUnavailableError as error:
            descriptions[name] = str(error)

    cases: dict[str, Timer] = {}
    failed: list[tuple[Cell, ...]] = []
    with tempfile.TemporaryDirectory() as folder:  # no checkout and no project file in sight
        for name, command in commands.items():
            if reason := _why_it_fails(command, folder):
                failed.append((name, None, None, None, None, reason))
            else:
                cases[name] = timer(_process(command, folder))
        samples = interleave(cases, rounds=rounds, sample_seconds=0.0)
    failed += [
        (name, None, None, None, None, reason)
        for name, reason in descriptions.items()
        if name not in commands
    ]
    baseline = BASELINE if BASELINE in cases else None
    timed = [
        timing_row(name, samples, baseline=baseline, description=descriptions.get(name, ""))
        for name in cases
    ]
    notes = [f"Whole processes with warm file caches; ratios are to `{BASELINE}`."]
    return Report("Start-up", TIMING_COLUMNS, [*timed, *failed], notes)


def _why_it_fails(command: list[str], folder: str) -> str | None:
    """Run a command once, which also leaves its bytecode behind, as an installation would."""
    try:
        _process(command, folder)()
    except FileNotFoundError:
        return f"no {Path(command[0]).name} beside the interpreter: install nnl-core first"
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {error.returncode}"
    return None


def _process(command: list[str], folder: str) -> Callable[[], object]:
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return lambda: subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, check=True
    )
