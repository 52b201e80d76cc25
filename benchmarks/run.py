"""Run one benchmark: ``python -m benchmarks.run NAME [--json] [--rounds N] [--threads N]``."""

from __future__ import annotations

import argparse
import os
from importlib import import_module

BENCHMARKS = {
    "cpu": "benchmarks.cpu.compare",
    "data": "benchmarks.data",
    "eager": "benchmarks.eager.compare",
    "gpu": "benchmarks.gpu.measure",
    "hooks": "benchmarks.hooks",
    "import": "benchmarks.imports",
    "lines": "benchmarks.lines",
    "onn": "benchmarks.onn.compare",
    "operators": "benchmarks.operators",
    "resume": "benchmarks.resume",
}
WITH_OPTIONS = {"cpu", "gpu", "onn"}  # whose run takes further arguments
THREAD_VARIABLES = (
    "MKL_NUM_THREADS",
    "NNL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, run the benchmark and print its report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("name", choices=BENCHMARKS)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=21, help="samples of each case (default 21)")
    parser.add_argument("--threads", type=int, default=1, help="threads for all (default 1)")
    options, more = parser.parse_known_args(arguments)
    if more and options.name not in WITH_OPTIONS:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if options.rounds < 2 or options.threads < 1:
        parser.error("--rounds must be at least 2 and --threads at least 1")
    # Before anything imports NumPy, and inherited by the peers' processes.
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(options.threads)))
    report = import_module(BENCHMARKS[options.name]).run(options.rounds, *([more] if more else []))
    print(report.as_json() if options.json else report.as_text())


if __name__ == "__main__":
    main()
