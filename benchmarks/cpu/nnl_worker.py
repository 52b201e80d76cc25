"""NNL's process: ``python -m benchmarks.cpu.nnl_worker [BACKEND]``."""

from __future__ import annotations

import sys

import numpy as np

import nnl_core as nnl
from benchmarks.cpu.arrays import Arrays
from benchmarks.cpu.serving import serve
from benchmarks.cpu.workloads import Training, build


class Served:
    """A workload that says what its programs plan to hold."""

    def __init__(self, case: str, given: Arrays, values: Arrays) -> None:
        self.workload = build(case, values, given=given)
        self.step = self.workload.step

    def result(self) -> list[float]:
        if isinstance(self.workload, Training):
            return self.workload.each_loss()
        found: list[float] = np.ravel(self.workload.loss()).tolist()
        return found

    @property
    def planned(self) -> int | None:
        """Bytes of intermediates of the largest program; those of a forward pass are not public."""
        if isinstance(self.workload, Training):
            return max(step.memory.peak for step in self.workload.steps)
        return None


if __name__ == "__main__":
    if len(sys.argv) > 1:
        nnl.set_backend(sys.argv[1])
    nnl.current_backend()
    serve(Served)
