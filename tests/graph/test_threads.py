"""Threads: equal graphs at the same time, graphs run from within a run, scopes of names."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable

SIZE = 60_000  # two blocks of a fused group, and NumPy lets other threads run


def leaf(values, need_grad=True):
    return Variable.from_numpy_array(np.array(values, np.float32), need_grad=need_grad)


def network(x):
    hidden = F.tanh(x * 2 + 1) * x
    return F.sum(F.sort(hidden) * hidden + F.exp(-hidden))


def in_threads(work, count):
    failures = []
    barrier = threading.Barrier(count)

    def run(number):
        try:
            barrier.wait(30)
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_threads_may_run_equal_graphs_at_the_same_time():
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=SIZE).astype(np.float32) for _ in range(4)]
    expected = []
    for array in inputs:
        x = leaf(array)
        y = network(x)
        y.forward(clear_no_need_grad=True)
        y.backward(clear_buffer=True)
        expected.append((y.d.copy(), x.g.copy()))

    def work(number):
        x = leaf(inputs[number])
        y = network(x)
        for _ in range(5):
            x.g = 0
            y.forward(clear_no_need_grad=True)
            y.backward(clear_buffer=True)
            np.testing.assert_array_equal(y.d, expected[number][0])
            np.testing.assert_array_equal(x.g, expected[number][1])

    in_threads(work, len(inputs))


def test_threads_may_train_models_of_one_form_at_the_same_time():
    def train(start):
        weight = nnl.Parameter((SIZE,))
        weight.d = np.linspace(start, 1, SIZE, dtype=np.float32)
        solver = nnl.S.Adam(0.01)
        solver.set_parameters({"weight": weight})
        step = nnl.compile_step(network(weight), solver)
        for _ in range(4):
            step.run()
        return weight.d.copy()

    expected = [train(start) for start in (-1.0, -0.5)]
    in_threads(lambda n: np.testing.assert_array_equal(train((-1.0, -0.5)[n]), expected[n]), 2)


@pytest.mark.parametrize("when", ["function_pre_hook", "function_post_hook"])
def test_a_hook_may_run_an_equal_graph(when):
    first, second = leaf(np.ones(5)), leaf(np.full(5, 3))
    y, other = network(first), network(second)
    y.forward(**{when: lambda node: None})
    expected = y.d.copy()
    seen = []

    def hook(node):
        if not seen:
            seen.append(node)
            other.forward(**{when: lambda node: None})

    y.forward(**{when: hook})
    np.testing.assert_array_equal(y.d, expected)


def test_threads_name_their_parameters_apart():
    names = {}

    def work(number):
        with nnl.parameter_scope(f"thread{number}", {}):
            for step in range(200):
                with nnl.parameter_scope(f"layer{step}", {}):
                    x = leaf([1.0]) * 2
                    names.setdefault(number, set()).add(x.parent.name.split("/")[0])

    in_threads(work, 2)
    assert names == {0: {"thread0"}, 1: {"thread1"}}
