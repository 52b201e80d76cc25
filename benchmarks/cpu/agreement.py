"""Whether two of NNL's backends train alike: ``python -m benchmarks.cpu.agreement A B``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import numpy as np

import nnl_core as nnl
from benchmarks.cpu.arrays import TRAINING, Array, Arrays
from benchmarks.cpu.workloads import build


def largest_difference(
    case: str, backends: tuple[str, str], steps: int, dtype: str, nudge: bool = False
) -> float:
    """Return the largest ``|a - b| / max|b|`` of all parameters after training on two backends.

    Both begin with the same parameters; with ``nudge``, those of the first lie one unit in the
    last place higher: how far training carries roundings. What is not finite on one of them is an
    infinite difference.
    """
    first = _trained(case, backends[0], steps, dtype, nudge)
    second = _trained(case, backends[1], steps, dtype)
    return max(difference(first[name], second[name]) for name in first)


def differences(
    backends: tuple[str, str],
    cases: Iterable[str] = TRAINING,
    steps: int = 100,
    dtype: str = "f4",
) -> dict[str, float]:
    """Return `largest_difference` of each workload."""
    return {case: largest_difference(case, backends, steps, dtype) for case in cases}


def _trained(case: str, backend: str, steps: int, dtype: str, nudge: bool = False) -> Arrays:
    with nnl.backend_scope(backend):
        workload = build(case, dtype=dtype)
        if nudge:
            values = workload.parameters()
            higher = {name: np.nextafter(value, np.inf) for name, value in values.items()}
            workload = build(case, higher, dtype=dtype)
        for _ in range(steps):
            workload.step()
        return workload.parameters()


def difference(a: Array, b: Array) -> float:
    """Return ``|a - b| / max|b|``, infinite where anything is not finite."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    return float(np.abs(a - b).max() / max(np.abs(b).max(), np.finfo(b.dtype).tiny))


def main() -> None:
    """Print a line for each workload."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu.agreement", description=__doc__)
    parser.add_argument("backends", nargs=2, metavar="BACKEND")
    parser.add_argument("--cases", default=",".join(TRAINING), help="separated by commas")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument(
        "--nudge", action="store_true", help="move the first's parameters by a unit in last place"
    )
    parser.add_argument("--dtype", choices=("f4", "f8"), default="f4")
    options = parser.parse_args()
    first, second = options.backends
    for case in options.cases.split(","):
        found = largest_difference(
            case, (first, second), options.steps, options.dtype, options.nudge
        )
        print(f"{case:10} {found:.3g}", flush=True)


if __name__ == "__main__":
    main()
