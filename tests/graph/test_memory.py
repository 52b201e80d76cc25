"""What stays in memory: nothing of a graph that is gone, and no more after many steps than few."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.graph import program


@pytest.fixture(autouse=True)
def no_programs():
    program.clear_cache()
    yield
    program.clear_cache()


def inputs():
    return Variable.from_numpy_array(np.ones((16, 8), np.float32))


def model(x, weight):
    return F.mean(F.dropout(F.tanh(F.matmul(x, weight)), 0.5) ** 2)


def training(kind):
    """Return a function that does one step."""
    weight = nnl.Parameter((8, 8))
    weight.d = 1
    solver = nnl.S.Adam(1e-3)
    solver.set_parameters({"weight": weight})
    x = inputs()
    static = model(x, weight)
    compiled = nnl.compile_step(static, solver, clip_grad_norm=1.0)

    def step():
        if kind == "compiled":
            x.d = np.ones((16, 8))
            compiled.run()
            return
        with nnl.auto_forward(kind == "dynamic"):
            loss = static if kind == "static" else model(inputs(), weight)
            if kind != "dynamic":
                loss.forward(clear_no_need_grad=True)
            solver.zero_grad()
            loss.backward(clear_buffer=True)
            solver.update()

    return step


@pytest.mark.parametrize("kind", ["static", "static anew", "dynamic", "compiled"])
def test_steps_do_not_add_up_in_memory(kind):
    step = training(kind)
    for _ in range(20):
        step()
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(20):
            step()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            step()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100 * 100, "a hundred bytes a step would be a leak"


def test_the_cache_of_programs_holds_no_array_of_a_graph():
    x = Variable.from_numpy_array(np.ones((100, 100)), need_grad=True)
    constant = Variable.constant(np.ones(100))
    y = F.sum(x * constant)
    y.forward()
    y.backward()
    gone = [weakref.ref(thing) for thing in (x, x.data, x.grad, constant.data, y, y.data, y.parent)]
    del x, constant, y
    gc.collect()
    assert [reference() for reference in gone] == [None] * len(gone)


def test_a_graph_that_ran_is_released_without_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        x = Variable.from_numpy_array(np.ones((100, 100)), need_grad=True)
        hidden = F.exp(x)
        y = F.sum(hidden * hidden)
        y.forward()
        y.backward()
        gone = [weakref.ref(thing) for thing in (hidden.data, y.data, x.data)]
        del x, hidden, y
        assert [reference() for reference in gone] == [None] * len(gone)
    finally:
        gc.enable()


def test_programs_of_many_shapes_hold_a_bounded_number_of_bytes(monkeypatch):
    monkeypatch.setattr(program, "CACHE_BYTES", 100_000)
    for length in range(1000, 1030):
        x = Variable.from_numpy_array(np.ones(length, np.float32))
        F.sum(F.sort(F.sort(x) * 2)).forward(clear_buffer=True)
    held = [one.memory.peak for one in program._cache.values()]
    assert 1 < len(held) < 30 and sum(held) <= 100_000


def test_a_program_larger_than_all_that_may_be_held_still_runs(monkeypatch):
    monkeypatch.setattr(program, "CACHE_BYTES", 1)
    x = Variable.from_numpy_array(np.ones(1000, np.float32))
    assert F.sum(F.sort(x) * 2).d == 2000
