"""NNL's process: ``python -m benchmarks.onn.nnl_worker [BACKEND]``."""

from __future__ import annotations

import sys

import nnl_core as nnl
from benchmarks.cpu.serving import answer
from benchmarks.onn.cases import Arrays, Case
from benchmarks.onn.serving import Worker
from nnl_core import functions as F
from nnl_core.hooks.events import GraphCompiled
from nnl_onn.functions import operate
from nnl_onn.self_onn import self_operate


class NnlLayer:
    """A layer whose output and gradients are computed by one program."""

    def __init__(self, case: Case, given: Arrays, activated: bool) -> None:
        x, w, b, g = (nnl.Variable.from_numpy_array(given[name]) for name in "xwbg")
        bias = F.reshape(b, (1, -1, 1, 1))
        if case.order:
            y = self_operate(x, w, pad="same") + bias
        else:
            y = operate(x, w, case.nodal, case.pool, pad="same") - bias
        y = F.tanh(y) if activated else y
        self.found = {
            "y": y,
            **dict(zip(("dx", "dw", "db"), nnl.grad(y, [x, w, b], g), strict=True)),
        }

    def step(self) -> None:
        nnl.forward_all(list(self.found.values()), clear_buffer=True)

    def results(self) -> Arrays:
        return {name: value.d for name, value in self.found.items()}


class NnlWorker(Worker):
    """A worker that also tells what its largest program plans to hold."""

    largest = 0

    def nnl_on_graph_compiled(self, event: GraphCompiled) -> None:
        self.largest = max(self.largest, event.program.memory.peak)

    def planned(self) -> int:
        """Return the bytes of that program's intermediates."""
        return self.largest


if __name__ == "__main__":
    if len(sys.argv) > 1:
        nnl.set_backend(sys.argv[1])
    nnl.current_backend()
    worker = NnlWorker(NnlLayer)
    with nnl.current_session().listen(worker):
        answer(worker)
