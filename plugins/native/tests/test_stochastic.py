"""Random numbers in C: the very bits that NumPy's generator draws, by any number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core.graph.ir import Graph, Instruction
from nnl_core.graph.operator import Array, lookup
from nnl_core.graph.spec import Spec
from nnl_native import program as programs

keys = st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=2).map(
    lambda numbers: np.array(numbers, np.uint64)
)
KEY = np.array([7, 2**63 + 5], np.uint64)


def run(name: str, inputs: Sequence[Array], **attributes: Any) -> list[Array]:
    """Run one operator as a program in which nothing is left to NumPy."""
    operator, graph = lookup(name), Graph()
    attributes = operator.bind_attributes(attributes)
    specs = operator.infer_specs([Spec.of(one) for one in inputs], attributes)
    leaves = tuple(graph.add_leaf(Spec.of(one)) for one in inputs)
    values = tuple(graph.new_value(spec) for spec in specs)
    graph.instructions = [Instruction(operator, leaves, values, attributes)]
    graph.outputs = list(values)
    program = programs.NativeProgram(graph)
    assert program.is_native
    results = [np.empty(spec.shape, spec.dtype) for spec in specs]
    program.run(list(inputs), results)
    return results


def generator(key: Array) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


@settings(deadline=None)
@given(key=keys, size=st.integers(0, 1100))
def test_uniform_numbers_are_those_of_philox(key, size):
    (numbers,) = run("nnl::rand", [key], shape=(size,))
    np.testing.assert_array_equal(numbers, generator(key).random(size, np.float32))


@pytest.mark.parametrize(("low", "high"), [(-3.0, -1.0), (0.1, 0.7), (-1e-3, 1e6)])
def test_a_range_is_scaled_and_shifted_with_two_roundings_as_in_numpy(low, high):
    (numbers,) = run("nnl::rand", [KEY], shape=(700,), low=low, high=high)
    drawn = generator(KEY).random(700, np.float32)
    wanted = drawn * np.float32(high - low) + np.float32(low)
    np.testing.assert_array_equal(numbers, np.minimum(wanted, np.nextafter(np.float32(high), 0)))


def test_a_range_of_one_number_gives_that_number():
    (numbers,) = run("nnl::rand", [KEY], shape=(9,), low=2.0, high=2.0)
    assert set(numbers.tolist()) == {2.0}


def test_rounding_never_reaches_the_upper_bound():
    # Three numbers of single precision lie in the range: half of all draws would round up to 2^24.
    low, high = 2.0**24 - 3, 2.0**24
    (numbers,) = run("nnl::rand", [KEY], shape=(999,), low=low, high=high)
    assert set(numbers.tolist()) == {low, low + 1, low + 2}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5])
def test_dropout_keeps_what_the_draws_say_and_scales_it(dtype, p):
    x = np.linspace(-2, 2, 1300, dtype=dtype).reshape(13, 100)
    y, mask = run("nnl::dropout", [x, KEY], p=p)
    stays = generator(KEY).random(x.shape, np.float32) >= np.float32(p)
    np.testing.assert_array_equal(mask, stays)
    np.testing.assert_array_equal(y, np.where(stays, x * dtype(1 / (1 - p)), 0))


def test_the_number_of_threads_changes_no_draw(monkeypatch: pytest.MonkeyPatch):
    results = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(programs, "threads_in_use", lambda threads=threads: threads)
        results.append(run("nnl::rand", [KEY], shape=(70_001,))[0])
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])


def test_a_key_is_the_seed_and_the_number_of_the_draw():
    start, counter = np.array([9, 2**64 - 2], np.uint64), np.array(3, np.uint64)
    (key,) = run("nnl::random_key", [start, counter])
    assert key.tolist() == [9, 5]
