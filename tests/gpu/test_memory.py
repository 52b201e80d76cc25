"""A GPU whose memory is full: an error that says so, after which everything goes on."""

from __future__ import annotations

import gc
import json
import re

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, S, Variable
from nnl_core.cli import main
from nnl_core.gpu import blas
from nnl_core.gpu.device import DeviceMemoryError, device
from nnl_core.gpu.memory import LEAST, Pool, rounded
from nnl_core.graph.program import clear_cache
from tools import cuemu

MIB = 1 << 20


@pytest.fixture
def small(emulator):
    """A device with room for 24 MiB, besides what tests before have left there."""
    gpu = device(0)
    blas.find(gpu)  # keeps memory of its own
    clear_cache()
    gc.collect()
    gpu.release()
    with gpu:
        free, total = gpu.cuda.mem_get_info()
    with cuemu.option(memory=total - free + 24 * MIB), nnl.backend_scope("cuda"):
        yield gpu


def ones(mebibytes):
    return Variable.from_numpy_array(np.ones(mebibytes * MIB // 4, np.float32))


def test_the_error_names_what_was_asked_what_is_held_and_what_is_free(small):
    held = ones(5)
    held.data.buffer(nnl.current_backend())
    with pytest.raises(DeviceMemoryError) as caught:
        ones(20).data.buffer(nnl.current_backend())
    message = str(caught.value)
    assert "has no room for 20 MiB" in message
    assert re.search(r"values of this process hold [\d.]+ MiB", message)
    assert re.search(r"[\d.]+ [KM]iB of [\d.]+ MiB are free", message)
    assert "use smaller batches" in message


def test_what_was_there_is_as_it_was_and_computing_goes_on(small):
    x = Variable.from_numpy_array(np.arange(4, dtype=np.float32))
    y = x + 1.0
    y.forward()
    big = ones(20)
    with pytest.raises(DeviceMemoryError):
        (big * 2.0).forward()
    np.testing.assert_array_equal(y.d, [1, 2, 3, 4])
    z = y.get_unlinked_variable() * 2.0
    z.forward()
    np.testing.assert_array_equal(z.d, [2, 4, 6, 8])
    np.testing.assert_array_equal(big.d[:3], [1, 1, 1])


def test_an_output_that_could_not_be_had_is_computed_when_it_can(small):
    x = ones(14)
    y = x + 1.0
    with pytest.raises(DeviceMemoryError):
        y.forward()
    with cuemu.option(memory=256 * MIB):
        y.forward()
        assert y.d.min() == y.d.max() == 2


def test_memory_that_nobody_has_any_more_is_used_again(small):
    for _ in range(6):
        y = ones(5) + 1.0
        y.forward()
        assert float(y.d[0]) == 2


def test_blocks_of_other_sizes_make_room(small):
    for size in (3, 5, 7, 16):  # 31 MiB in all, each of which is kept for its like
        buffer = ones(size).data.buffer(nnl.current_backend())
        assert buffer.spec.nbytes == size * MIB


def test_arenas_of_idle_programs_make_room(small):
    x = Variable.from_numpy_array(np.ones((512, 512), np.float32))
    y = F.sum(F.softmax(x, axis=0) * F.softmax(x, axis=1))
    y.forward(clear_buffer=True)
    value = float(y.d)
    big = ones(20)
    big.data.buffer(nnl.current_backend())
    y.forward(clear_buffer=True)
    assert float(y.d) == value


def train_step():
    x = Variable.from_numpy_array(np.ones((64, 8), np.float32))
    loss = F.mean(F.pow_scalar(PF.affine(x, 4), 2.0))
    solver = S.Adam(0.1)
    solver.set_parameters(nnl.get_parameters())
    return loss, nnl.compile_step(loss, solver)


def test_a_training_step_that_found_no_room_can_be_made_later(small):
    with nnl.parameter_scope("", {}):
        nnl.random.seed(0)
        loss, step = train_step()
        step.run()
        held = [ones(8) for _ in range(4)]
        with pytest.raises(DeviceMemoryError):
            for one in held:
                one.data.buffer(nnl.current_backend())
        step.run()
        found = float(loss.d)
    with nnl.parameter_scope("", {}), nnl.backend_scope("numpy"):
        nnl.random.seed(0)
        loss, step = train_step()
        step.run()
        step.run()
        assert found == pytest.approx(float(loss.d), rel=1e-5)


PROJECT = """
[model]
function = "model:wide"
loss = "squared_error"

[data.train]
source = "points.npz"

[train]
epochs = 1
batch_size = 8
"""
MODEL = """
from nnl_core import F, PF

def wide(x):
    return PF.affine(F.tanh(PF.affine(x, 6144, name="a")), 512, name="b")
"""


def test_training_ends_in_one_line_and_leaves_nothing_half_written(
    small, tmp_path, capsys, monkeypatch
):
    (tmp_path / "nnl.toml").write_text(PROJECT, "utf-8")
    (tmp_path / "model.py").write_text(MODEL, "utf-8")
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "points.npz",
        x=rng.normal(size=(16, 4)).astype(np.float32),
        y=np.zeros((16, 512), np.float32),
    )
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--device", "cuda"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(r"nnl: error: GPU 0 \(.*\) has no room for \d+", line)
    (run,) = (tmp_path / "runs").iterdir()
    names = {path.name for path in run.iterdir()}
    assert "has no room" in json.loads((run / "failure.json").read_text("utf-8"))["error"]
    assert not [name for name in names if name.endswith((".safetensors", ".npz"))]
    assert "result.json" not in names
    x = Variable.from_numpy_array(np.ones(3, np.float32))
    y = x * 3.0
    y.forward()
    np.testing.assert_array_equal(y.d, [3, 3, 3])


# -------------------------------------------------------------------- the pool


class Memory:
    """Counts what it makes."""

    def __init__(self):
        self.made = []

    def make(self, size):
        self.made.append(size)
        return object()


def test_a_block_is_handed_out_again_to_who_asks_for_as_much():
    memory = Memory()
    pool = Pool(memory.make)
    first = pool.allocate(1000).memory
    assert pool.allocate(1001).memory is first
    assert memory.made == [rounded(1000)]


def test_a_block_that_somebody_has_is_not_handed_out():
    pool = Pool(Memory().make)
    first, second = pool.allocate(1000), pool.allocate(1000)
    assert first.memory is not second.memory


def test_a_pool_knows_what_is_in_use_and_what_it_keeps():
    pool = Pool(Memory().make)
    block = pool.allocate(5000)
    assert (pool.active, pool.held) == (block.size, 0)
    size = block.size
    del block
    assert (pool.active, pool.held) == (0, size)
    pool.clear()
    assert (pool.active, pool.held) == (0, 0)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 640, 641, 1 << 20, (1 << 20) + 1, 10**9])
def test_blocks_are_at_most_a_quarter_larger_than_asked_for(size):
    assert size <= rounded(size) <= max(LEAST, size * 5 / 4)
