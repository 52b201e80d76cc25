"""Every operator on a GPU held to what NumPy computes, in several processes and a given time.

``python -m benchmarks.gpu.correctness [--seconds N] [--processes N] [--save FILE] [NAME...]``
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "benchmarks.gpu.operator_worker")
STARTS = 3  # of a process that ends before it has checked anything

Answer = dict[str, Any]


class Checks:
    """Hands out operators to processes, and replaces those that end."""

    def __init__(self, names: Iterable[str], command: Sequence[str] = COMMAND) -> None:
        self.names = list(names)
        self.command = command
        self.answers: list[Answer] = []
        self.problems: list[str] = []  # of processes that do not start
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name in self.names:
            self._waiting.put(name)
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._over = False

    def run(self, processes: int, seconds: float) -> None:
        """Check all that can be checked in so many seconds."""
        until = monotonic() + seconds
        threads = [threading.Thread(target=self._serve) for _ in range(processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - monotonic()))
        with self._lock:
            self._over = True
            for process in self._running:
                process.kill()
        for thread in threads:
            thread.join()

    def left(self) -> list[str]:
        """Return the operators that were not checked in the time there was."""
        done = {answer["name"] for answer in self.answers}
        return [name for name in self.names if name not in done]

    def _serve(self) -> None:
        """Let one process after another check what is waiting."""
        unhappy = 0
        while unhappy < STARTS and not self._waiting.empty():
            process = self._start()
            if process is None:
                return
            unhappy = 0 if self._ask(process) else unhappy + 1
            process.kill()
            said = process.communicate()[1].strip().splitlines()
            with self._lock:
                self._running.discard(process)
                if unhappy and not self._over:
                    self.problems.append(said[-1] if said else f"status {process.returncode}")

    def _start(self) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._over:
                return None
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            self._running.add(process)
            return process

    def _ask(self, process: subprocess.Popen[str]) -> bool:
        """Let a process check until nothing waits or it breaks; tell whether it started."""
        assert process.stdin is not None and process.stdout is not None
        if not process.stdout.readline():
            return False
        while True:
            try:
                name = self._waiting.get_nowait()
            except queue.Empty:
                return True
            try:
                process.stdin.write(json.dumps(name) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            if not line and self._over:
                return True
            answer: Answer = (
                json.loads(line)
                if line
                else {
                    "name": name,
                    "problem": f"its process ended with status {process.wait()}",
                    "broken": True,
                    "seconds": None,
                }
            )
            with self._lock:
                self.answers.append(answer)
            if answer["broken"]:
                return True


def operators() -> list[str]:
    """Return the name of every operator that is registered."""
    from nnl_core.testing import operators as of_namespace

    import_module("nnl_core.functions")
    return [operator.name for operator in of_namespace("nnl")]


def summary(checks: Checks) -> list[str]:
    """Say how many were right, and name those that were not."""
    answers, left = checks.answers, checks.left()
    failed = sorted((a for a in answers if a["problem"]), key=lambda a: str(a["name"]))
    computed = Counter(str(a["computed_by"]) for a in answers if not a["problem"])
    lines = [f"FAILED {a['name']}: {a['problem'].splitlines()[0][:300]}" for a in failed]
    lines += [f"a process did not start: {problem}" for problem in dict.fromkeys(checks.problems)]
    if left:
        lines.append(f"not checked: {', '.join(left)}")
    numpy = sorted(str(a["name"]) for a in answers if "numpy" in str(a.get("computed_by")))
    if numpy:
        lines.append(f"computed by NumPy: {', '.join(numpy)}")
    by = ", ".join(f"{count} by {name or 'views alone'}" for name, count in computed.most_common())
    lines.append(
        f"operators: {len(answers) - len(failed)} agree ({by}), {len(failed)} failed, "
        f"{len(left)} not checked"
    )
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Check, print what was found, and exit with status 1 where anything failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.correctness")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: every operator")
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--save", type=Path, metavar="FILE", help="all answers, as JSON")
    options = parser.parse_args(arguments)
    checks = Checks(options.names or operators())
    checks.run(options.processes, options.seconds)
    if options.save:
        content = {"answers": checks.answers, "not checked": checks.left()}
        options.save.write_text(json.dumps(content, indent=1), "utf-8")
    print("\n".join(summary(checks)))
    sys.exit(bool(checks.left() or any(answer["problem"] for answer in checks.answers)))


if __name__ == "__main__":
    main()
