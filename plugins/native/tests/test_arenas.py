"""Programs that do not run at once have their intermediates in the same memory."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_native import memory


@pytest.fixture(autouse=True)
def no_blocks():
    nnl.graph.program.clear_cache()
    gc.collect()
    yield
    nnl.graph.program.clear_cache()


def network(rows, seed):
    """Return a sum of a long chain of products, and its value by NumPy."""
    rng = np.random.default_rng(seed)
    array = rng.normal(size=(rows, 512)).astype(np.float32)
    weight = np.eye(512, dtype=np.float32)[rng.permutation(512)] * np.float32(0.5)
    h, wanted = Variable.from_numpy_array(array), array.astype(np.float64)
    for _ in range(4):
        h, wanted = F.tanh(F.matmul(h, Variable.constant(weight))), np.tanh(wanted @ weight)
    return F.sum(h, axis=0), wanted.sum(axis=0)


def check(case):
    y, wanted = case
    y.forward(clear_buffer=True)
    np.testing.assert_allclose(y.d, wanted, rtol=1e-3, atol=1e-3)


def blocks():
    gc.collect()
    return [block for reference in memory._idle if (block := reference()) is not None]


def test_programs_that_run_in_turn_share_one_block():
    cases = [network(rows, rows) for rows in (1024, 4096, 2048)]
    for _ in range(3):
        for case in cases:
            check(case)
    assert len(blocks()) == 1


def test_a_block_ends_with_the_last_program_that_used_it():
    case = network(2048, 0)
    check(case)
    assert blocks()
    del case
    nnl.graph.program.clear_cache()
    assert not blocks()


def test_threads_never_have_one_block_at_once():
    cases = [network(rows, rows) for rows in (1024, 1536, 2048, 2560)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            list(pool.map(check, cases))
    assert 1 <= len(blocks()) <= 4


def test_the_largest_idle_block_is_lent_and_nobody_else_gets_it():
    small, large = memory.Block(1000), memory.Block(2000)
    memory.give_back(small)
    memory.give_back(large)
    assert memory.borrow(500, small) is large
    assert memory.borrow(500, large) is small
    assert memory.borrow(500, None) not in (small, large)


def test_a_larger_block_replaces_smaller_ones_that_are_idle():
    small = memory.Block(1000)
    memory.give_back(small)
    assert memory.borrow(2000, small).size == 2000
    assert memory.borrow(1000, small) is not small
