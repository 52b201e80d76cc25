"""A long run needs no more memory than a short one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 5_000_000  # bytes, of which the history of epochs is a part

PROGRAM = """
import gc, os, sys
from pathlib import Path
import numpy as np
from nnl_core import F, PF, S
from nnl_core.data import ArraySource
from nnl_core.session import Session
from nnl_core.training import CheckpointPolicy, Model, Trainer

rng = np.random.default_rng(0)
x = rng.normal(size=(20, 4)).astype(np.float32)
data = ArraySource({"x": x, "y": (x[:, :1] > 0).astype(np.int32)})

def network(x, training):
    h = PF.batch_normalization(PF.affine(x, 8, name="a"), batch_stat=training)
    return PF.affine(F.dropout(F.relu(h), 0.2) if training else F.relu(h), 2, name="b")

def resident():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")

class Memory:
    def nnl_on_epoch_end(self, event):
        if event.epoch in (49, 999):
            print(resident())

with Session(["metrics_log"], discover=False, environment={}) as session:
    solver = S.Adam()
    solver.keep_average(0.9)
    model = Model(network, loss="softmax_cross_entropy", metrics=["accuracy"], session=session)
    trainer = Trainer(
        model, data, solver, epochs=1000, batch_size=10, evaluate={"validation": data},
        folder=Path(sys.argv[1]), session=session,
        checkpoints=CheckpointPolicy(every_epochs=10, keep=2, best="validation/accuracy"),
    )
    with session.listen(Memory()):
        trainer.run()
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc here")
def test_a_thousand_epochs_need_no_more_memory_than_fifty(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    after_50, after_1000 = map(int, done.stdout.split())
    assert after_1000 - after_50 < LIMIT
