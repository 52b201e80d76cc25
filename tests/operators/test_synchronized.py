"""Batch normalisation over workers, here threads, against that of the joined batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.modes import auto_forward, modes
from nnl_core.graph.variable import Variable


class Meeting:
    """Where threads exchange arrays."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=30)
        self.given: list[np.ndarray | None] = [None] * size
        self.calls: list[tuple[int, str, tuple[int, ...]]] = []


class Worker:
    """The communicator of one thread."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting, self.rank = meeting, rank

    def all_reduce(self, array: np.ndarray, group: str = "world") -> np.ndarray:
        self.meeting.calls.append((self.rank, group, array.shape))
        self.meeting.given[self.rank] = array
        self.meeting.barrier.wait()
        total = np.sum(np.stack([one for one in self.meeting.given if one is not None]), axis=0)
        self.meeting.barrier.wait()
        return np.asarray(total, array.dtype)


def at_work(size: int, task: Callable[[int, Worker], Any]) -> tuple[list[Any], Meeting]:
    """Run a task in several threads, and return what each gave."""
    meeting = Meeting(size)
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = task(rank, Worker(meeting, rank))
        except Exception as error:
            results[rank] = error
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results, meeting


def leaf(array: Any, need_grad: bool = True) -> Variable:
    return Variable.from_numpy_array(np.array(array, np.float64), need_grad=need_grad)


RNG = np.random.default_rng(0)
BATCH = RNG.normal(2, 3, size=(7, 3, 4))
WEIGHTS = RNG.normal(size=(7, 3, 4))
GAMMA, BETA = RNG.normal(size=(1, 3, 1)), RNG.normal(size=(1, 3, 1))
PARTS = {"even": [slice(0, 3), slice(3, 6)], "uneven": [slice(0, 2), slice(2, 7)],
         "one empty": [slice(0, 0), slice(0, 7)], "three": [slice(0, 1), slice(1, 3), slice(3, 7)],
         }  # fmt: skip


class Found:
    """What a worker found."""

    def __init__(self, x: np.ndarray, weights: np.ndarray, make: Callable[..., Any]) -> None:
        self.x, self.gamma, self.beta = leaf(x), leaf(GAMMA), leaf(BETA)
        self.mean, self.variance = (leaf(np.full((1, 3, 1), v), False) for v in (0.5, 2.0))
        y, mean, variance = make(self.x, self.beta, self.gamma, self.mean, self.variance)
        loss = F.sum(y * weights) + F.sum(mean * 0.3) + F.sum(variance * 0.2)
        self.outputs = [y, mean, variance]
        if not modes.auto_forward:  # there, everything was computed as it was built
            nnl.forward_all([*self.outputs, loss])
        loss.backward()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_workers_find_what_one_finds_on_the_joined_batch(parts: list[slice], dynamic: bool) -> None:
    def task(rank: int, comm: Worker) -> Found:
        with auto_forward(dynamic):
            return Found(
                BATCH[parts[rank]],
                WEIGHTS[parts[rank]],
                lambda *given: F.sync_batch_normalization(
                    *given, comm, decay_rate=0.8, eps=1e-3, output_stat=True
                ),
            )

    workers, _ = at_work(len(parts), task)
    size = parts[-1].stop
    # Each worker adds its statistics to its loss.
    alone = Found(
        BATCH[:size],
        WEIGHTS[:size],
        lambda *given: F.batch_normalization(*given, decay_rate=0.8, eps=1e-3, output_stat=True),
    )
    extra = Found(
        BATCH[:size],
        0 * WEIGHTS[:size],
        lambda *given: F.batch_normalization(*given, decay_rate=0.8, eps=1e-3, output_stat=True),
    )
    close = {"rtol": 1e-9, "atol": 1e-12}
    for part, found in zip(parts, workers, strict=True):
        np.testing.assert_allclose(found.outputs[0].d, alone.outputs[0].d[part], **close)
        for position in (1, 2):
            np.testing.assert_allclose(
                found.outputs[position].d, alone.outputs[position].d, **close
            )
        np.testing.assert_allclose(found.mean.d, alone.mean.d, **close)
        np.testing.assert_allclose(found.variance.d, alone.variance.d, **close)
        expected = alone.x.g[part] + (len(parts) - 1) * extra.x.g[part]
        np.testing.assert_allclose(found.x.g, expected, **close)
    for name in ("gamma", "beta"):
        total = sum(getattr(found, name).g for found in workers)
        np.testing.assert_allclose(total, getattr(alone, name).g, **close)


def test_four_exchanges_are_made_a_step_in_the_group_that_was_named() -> None:
    def task(rank: int, comm: Worker) -> None:
        x = leaf(BATCH)
        y = F.sync_batch_normalization(x, None, None, None, None, comm, "mine")
        y.forward()
        y.backward(WEIGHTS)

    _, meeting = at_work(2, task)
    assert {group for _, group, _ in meeting.calls} == {"mine"}
    assert [shape for rank, _, shape in meeting.calls if rank == 0] == [
        (4,), (1, 3, 1), (1, 3, 1), (4,),
    ]  # fmt: skip


def test_static_graphs_exchange_at_each_run() -> None:
    def task(rank: int, comm: Worker) -> list[float]:
        x = leaf([[0.0], [rank]])
        mean = F.sync_batch_normalization(x, None, None, None, None, comm, output_stat=True)[1]
        found = []
        for shift in (0.0, 1.0):
            x.d = x.d + shift
            mean.forward()
            found.append(float(mean.d.item()))
        return found

    results, _ = at_work(2, task)
    assert results == [[0.25, 1.25]] * 2


def test_constants_are_summed_at_each_run_too() -> None:
    class Counting:
        calls = 0

        def all_reduce(self, array: np.ndarray, group: str = "world") -> np.ndarray:
            self.calls += 1
            return array * self.calls

    y = F.all_reduce(np.array([1.0]), Counting())
    for times in (1, 2, 3):
        y.forward()
        assert y.d.item() == times


def test_without_communicator_it_is_batch_normalization() -> None:
    given = [leaf(BATCH), leaf(BETA), leaf(GAMMA)]
    running = [leaf(np.zeros((1, 3, 1)), False) for _ in range(4)]
    y = F.sync_batch_normalization(*given, *running[:2], None)
    z = F.batch_normalization(*given, *running[2:])
    nnl.forward_all([y, z])
    np.testing.assert_array_equal(y.d, z.d)
    np.testing.assert_array_equal(running[0].d, running[2].d)
    np.testing.assert_array_equal(running[1].d, running[3].d)


def test_running_statistics_are_used_without_an_exchange() -> None:
    meeting = Meeting(2)
    mean, variance = leaf(np.ones((1, 3, 1)), False), leaf(np.full((1, 3, 1), 4.0), False)
    y = F.sync_batch_normalization(
        leaf(BATCH), None, None, mean, variance, Worker(meeting, 0), eps=0, batch_stat=False
    )
    y.forward()
    np.testing.assert_allclose(y.d, (BATCH - 1) / 2)
    assert meeting.calls == []


def test_half_precision_is_summed_in_single() -> None:
    x = np.full((64, 1), 300.0, np.float16)
    x[::2] = -300

    def task(rank: int, comm: Worker) -> np.ndarray:
        y = F.sync_batch_normalization(x, None, None, None, None, comm, eps=0)
        y.forward()
        assert y.dtype == np.float16
        return np.array(y.d)

    results, _ = at_work(2, task)
    np.testing.assert_array_equal(results[0], np.sign(x))


def test_an_empty_joined_batch_leaves_running_statistics_alone() -> None:
    def task(rank: int, comm: Worker) -> list[np.ndarray]:
        mean, variance = leaf([[0.5]], False), leaf([[2.0]], False)
        y = F.sync_batch_normalization(np.zeros((0, 1)), None, None, mean, variance, comm)
        y.forward()
        return [mean.d, variance.d]

    results, _ = at_work(2, task)
    np.testing.assert_array_equal(results, [[[[0.5]], [[2.0]]]] * 2)


def test_the_parametric_function_makes_the_parameters_of_batch_normalization() -> None:
    with nnl.parameter_scope("", {}):
        x = leaf(BATCH)
        y = nnl.PF.sync_batch_normalization(x, None, axes=[1], name="one")
        z = nnl.PF.batch_normalization(x, name="other")
        nnl.forward_all([y, z])
        np.testing.assert_array_equal(y.d, z.d)
        found = nnl.get_parameters(grad_only=False)
    shapes = {name: parameter.shape for name, parameter in found.items()}
    for name in ("beta", "gamma", "mean", "var"):
        assert shapes[f"one/bn/{name}"] == shapes[f"other/bn/{name}"] == (1, 3, 1)
    assert not found["one/bn/mean"].need_grad


def test_what_cannot_reduce_is_refused() -> None:
    with pytest.raises(OperatorError, match="'world' is no communicator"):
        F.sync_batch_normalization(BATCH, None, None, None, None, "world")  # type: ignore[arg-type]


def test_a_sum_of_another_shape_is_refused() -> None:
    class Wrong:
        def all_reduce(self, array: np.ndarray, group: str = "world") -> np.ndarray:
            return array[:1]

    with pytest.raises(OperatorError, match=r"returned shape \(1,\)"):
        F.all_reduce(np.ones(3), Wrong()).forward()


def test_shapes_that_do_not_fit_are_refused() -> None:
    comm = Worker(Meeting(1), 0)
    with pytest.raises(ShapeError, match=r"gamma has shape \(3,\), and \(1, 3, 1\) fits"):
        F.sync_batch_normalization(BATCH, None, np.ones(3), None, None, comm)


def test_running_statistics_that_are_computed_are_refused() -> None:
    comm = Worker(Meeting(1), 0)
    with pytest.raises(OperatorError, match="mean is computed"):
        F.sync_batch_normalization(BATCH, None, None, leaf(BETA) * 2.0, None, comm)


def test_compiled_steps_of_workers_meet_in_one_order() -> None:
    def task(rank: int, comm: Worker) -> list[np.ndarray]:
        with nnl.parameter_scope("", {}):
            x = Variable.from_numpy_array(BATCH[rank::2][:3])
            h = F.tanh(nnl.PF.sync_batch_normalization(x, comm, name="one"))
            h = nnl.PF.sync_batch_normalization(h, comm, name="two")
            solver = nnl.S.Sgd(0.1)
            solver.set_parameters(nnl.get_parameters())
            step = nnl.compile_step(F.mean(h * WEIGHTS[rank::2][:3]), solver)
            for _ in range(3):
                step.run()
            return [
                np.array(p.d)
                for name, p in nnl.get_parameters(grad_only=False).items()
                if name.endswith(("mean", "var")) and name.startswith("one/")
            ]

    (first, second), meeting = at_work(2, task)
    np.testing.assert_array_equal(first, second)
    assert np.abs(first[0]).max() > 0.1
    by_rank = [[shape for rank, _, shape in meeting.calls if rank == one] for one in (0, 1)]
    assert by_rank[0] == by_rank[1]
    assert len(by_rank[0]) % 3 == 0
