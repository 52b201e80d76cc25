"""PyTorch's process: ``python -m benchmarks.onn.torch_worker THREADS``."""

from __future__ import annotations

import sys

import torch

from benchmarks.cpu.serving import answer
from benchmarks.onn.cases import Case
from benchmarks.onn.serving import Worker, store
from benchmarks.onn.torch_layers import TorchLayer, exact


class TorchWorker(Worker):
    def exact(self, fields: list[str | int], results: str) -> float:
        """Write the results in double precision to a file; see `torch_layers.exact`."""
        found, left_out = exact(Case(*fields))  # type: ignore[arg-type]  # JSON keeps their kinds
        store(results, found)
        return left_out


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    answer(TorchWorker(TorchLayer))
