"""PyTorch's training steps on a GPU: eager, and the whole step captured and replayed."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.cpu import torch_worker
from benchmarks.cpu.arrays import Arrays


class Eager(torch_worker.Training):
    """The workload of the CPU's benchmark with everything on the GPU, in ``bfloat16`` if asked."""

    def __init__(self, case: str, given: Arrays, values: Arrays, half: bool) -> None:
        with torch.device("cuda"):
            super().__init__(case, given, values)
        self.x, self.y = self.x.cuda(), self.y.cuda()
        exact = self.loss_of

        def loss_of(x: Any, y: Any) -> Any:
            with torch.autocast("cuda", torch.bfloat16):
                return exact(x, y)

        if half:
            self.loss_of = loss_of


class Replayed:
    """A step of the same kind in one CUDA graph, captured as PyTorch recommends."""

    def __init__(self, eager: Eager) -> None:
        for group in eager.optimizer.param_groups:
            if "capturable" in group:  # Adam counts its steps on the device then
                group["capturable"] = True
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                eager.step()
        torch.cuda.current_stream().wait_stream(stream)
        eager.optimizer.zero_grad()
        self.eager = eager  # whose memory the graph uses
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            eager.step()

    def step(self) -> None:
        self.graph.replay()
