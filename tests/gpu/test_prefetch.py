"""Batches copied to a GPU while it computes, and results read when they are known."""

from __future__ import annotations

import gc
import math
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, S
from nnl_core.data import ArraySource, DataIterator
from nnl_core.errors import NotFiniteError
from nnl_core.gpu.device import device
from nnl_core.gpu.prefetch import Prefetcher
from nnl_core.graph.spec import Spec
from nnl_core.schedules import CosineScheduler
from nnl_core.session import current_session
from nnl_core.training import Model, Trainer
from tools import cuemu

STEPS = 5  # of an epoch: the last batch is shorter


@pytest.fixture(scope="module")
def points():
    """Nearly linear data: 70 points, 5 batches of 16 of which the last has 6."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(70, 3)).astype(np.float32)
    y = (x @ np.array([[1], [-2], [3]], np.float32) + 0.1).astype(np.float32)
    return ArraySource({"x": x, "y": y, "unused": np.arange(70)}, "points")


def network(x):
    return PF.affine(F.tanh(PF.affine(x, 8, name="first")), 1, name="second")


class Writer:
    """Listens to the start of steps, as what may write to batches does: nothing is prefetched."""

    def nnl_on_step_start(self, event):
        pass


class Seen:
    """What a listener hears of the steps."""

    def __init__(self, look=lambda event: None):
        self.losses, self.looks, self._look = [], [], look

    def nnl_on_metric(self, event):
        if event.name == "loss":
            self.losses.append((event.step, event.value))

    def nnl_on_step_end(self, event):
        self.looks.append(self._look(event))


class Looker:
    """Looks at the end of each step, without interest in metrics."""

    def __init__(self, look):
        self.looks, self._look = [], look

    def nnl_on_step_end(self, event):
        self.looks.append(self._look(event))


def train(points, backend, *listeners, **options):
    """Train two epochs; return the trainer and its parameters."""
    options = {"epochs": 2, "batch_size": 16, **options}
    with nnl.backend_scope(backend), nnl.parameter_scope("", {}):
        model = Model(network, loss="squared_error", metrics=["absolute_error"])
        trainer = Trainer(model, points, S.Adam(0.05), **options)
        with ExitStack() as stack:
            for listener in listeners:
                stack.enter_context(current_session().listen(listener))
            trainer.run()
        return trainer, {name: np.array(p.d) for name, p in model.parameters.items()}


# -------------------------------------------------------------------- the same results


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accumulate": 3},
        {"last_batch": "pad"},
        {"workers": 2, "worker_kind": "thread"},
        {"steps": 7},
        {"schedule": CosineScheduler(0.05, 10)},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_prefetching_changes_no_bit(points, options):
    ahead, with_it = train(points, "cuda", **options)
    plain, without = train(points, "cuda", Writer(), **options)
    assert with_it.keys() == without.keys()
    for name, array in with_it.items():
        np.testing.assert_array_equal(array, without[name])
    assert ahead.history == plain.history


def test_metrics_are_those_of_numpy(points):
    found, _ = train(points, "cuda", accumulate=2)
    expected, _ = train(points, "numpy", accumulate=2)
    for ours, theirs in zip(found.history, expected.history, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


def test_every_loss_is_reported_once_in_order_with_its_step(points):
    on_device, on_host = Seen(), Seen()
    train(points, "cuda", on_device)
    train(points, "numpy", on_host)
    assert [step for step, _ in on_device.losses] == list(range(1, 2 * STEPS + 1))
    values = [value for _, value in on_device.losses]
    np.testing.assert_allclose(values, [value for _, value in on_host.losses], rtol=1e-5)


def test_a_step_that_has_ended_counts_in_what_is_asked_for_then(points):
    def metrics(event):
        return event.trainer.running_metrics()["loss"]

    on_device, on_host = Looker(metrics), Looker(metrics)
    train(points, "cuda", on_device)
    train(points, "numpy", on_host)
    np.testing.assert_allclose(on_device.looks, on_host.looks, rtol=1e-5)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_loss_of_a_step_can_be_had_at_its_end(points, accumulate):
    on_device = Looker(lambda event: float(event.loss))
    on_host = Looker(lambda event: float(event.loss))
    train(points, "cuda", on_device, accumulate=accumulate)
    train(points, "numpy", on_host, accumulate=accumulate)
    np.testing.assert_allclose(on_device.looks, on_host.looks, rtol=1e-5)


def test_inputs_hold_the_batch_of_a_step_at_its_end(points):
    def differs(event):
        (_, network) = event.trainer.parts(event.batch)[0]
        return not np.array_equal(network.inputs["x"].d, event.batch["x"])

    looker = Looker(differs)
    train(points, "cuda", looker)
    assert looker.looks == [False] * (2 * STEPS)


def test_evaluation_is_that_of_numpy(points):
    found, _ = train(points, "cuda", evaluate={"test": points})
    expected, _ = train(points, "numpy", evaluate={"test": points})
    assert found.history[-1]["test/absolute_error"] == pytest.approx(
        expected.history[-1]["test/absolute_error"], 1e-4
    )


def test_a_run_that_is_stopped_has_counted_all_its_steps(points):
    def stop(event):
        if event.step == 2:
            event.trainer.request_stop("enough")

    found, _ = train(points, "cuda", Looker(stop))
    expected, _ = train(points, "numpy", Looker(stop))
    assert found.history[0] == pytest.approx(expected.history[0], rel=1e-5)


# -------------------------------------------------------------------- what goes wrong


@pytest.fixture
def poisoned(points):
    """The data with a value in the third batch of the first epoch that is not finite."""
    arrays = points.take(np.arange(70))
    bad = DataIterator(points, 16, seed=0).order(0)[2 * 16 + 3]
    x = arrays["x"].copy()
    x[bad] = np.nan
    return ArraySource({"x": x, "y": arrays["y"]}, "poisoned")


def test_a_loss_that_is_not_finite_names_the_step_it_is_of(poisoned):
    with pytest.raises(NotFiniteError, match=r"loss is nan at step 2 .*: field 'x' of the batch"):
        train(poisoned, "cuda")


def test_no_checkpoint_holds_a_loss_that_is_not_finite(poisoned):
    def save(event):
        if event.step == 2:
            event.trainer.checkpoint()
            raise AssertionError("a checkpoint was made")

    with pytest.raises(NotFiniteError, match="at step 2 "):
        train(poisoned, "cuda", Looker(save))


def test_a_trainer_may_go_on_after_an_epoch_that_broke_off(points):
    def fail(event):
        if event.step == 3 and not heard:
            heard.append(event.step)
            raise RuntimeError("a plugin fails")

    heard = []
    looker = Looker(fail)
    with nnl.backend_scope("cuda"), nnl.parameter_scope("", {}):
        model = Model(network, loss="squared_error")
        trainer = Trainer(model, points, S.Adam(0.05), epochs=2, batch_size=16)
        with current_session().listen(looker):
            with pytest.raises(RuntimeError, match="a plugin fails"):
                trainer.run()
            trainer.run()
    _, expected = train(points, "cuda")
    for name, parameter in model.parameters.items():
        np.testing.assert_array_equal(parameter.d, expected[name])


# -------------------------------------------------------------------- nobody waits


def costs(points, *listeners, **options):
    """What the driver was asked to do in each step but the first, by the emulator's count."""
    before = []

    def count(event):
        numbers = cuemu.stats()
        before.append(numbers)

    train(points, "cuda", Looker(count), *listeners, **options)
    names = ("launches", "copies", "syncs", "allocs")
    return [
        {name: after[name] - first[name] for name in names} for first, after in pairwise(before)
    ]


def test_a_step_allocates_nothing_and_is_launched_as_a_whole(points, emulator):
    steps = costs(points, last_batch="drop", batch_size=8, epochs=2)
    assert len(steps) == 15
    for step in steps[3:]:
        assert step["allocs"] == 0
        assert step["launches"] == 0  # one captured graph


def test_a_step_waits_for_steps_before_the_last_one_alone(points, emulator):
    """Twice at most, for what two steps before came to, and for the memory of its batch's copy."""
    steps = costs(points, last_batch="drop", batch_size=8, epochs=1)
    assert max(step["syncs"] for step in steps[2:]) <= 2


def test_nothing_is_read_for_whoever_does_not_ask(points, emulator):
    """A step copies its batch (two fields), a rate, its two results, and whether one failed."""
    options = {"last_batch": "drop", "batch_size": 8, "epochs": 1}
    assert {step["copies"] for step in costs(points, **options)[2:-1]} == {6}
    reader = Looker(lambda event: float(event.loss))
    assert min(step["copies"] for step in costs(points, reader, **options)[2:-1]) > 6


def test_at_the_end_of_a_step_the_device_has_yet_to_compute_it(points, emulator):
    """The emulator computes when somebody waits."""

    def is_done(event):
        with device(0) as gpu:
            return gpu.stream.is_done()

    looker = Looker(is_done)
    train(points, "cuda", looker)
    assert looker.looks == [False] * (2 * STEPS)


def test_a_step_by_itself_waits_for_nothing(emulator):
    with nnl.backend_scope("cuda"), nnl.parameter_scope("", {}):
        x = nnl.Variable.from_numpy_array(np.ones((4, 3), np.float32))
        loss = F.mean(F.pow_scalar(network(x), 2.0))
        solver = S.Momentum(0.01)
        solver.set_parameters(nnl.get_parameters())
        step = nnl.compile_step(loss, solver)
        step.run()
        step.run()
        before = cuemu.stats()
        for _ in range(5):
            step.run()
        after = cuemu.stats()
        assert after["syncs"] == before["syncs"]
        assert after["allocs"] == before["allocs"]
        assert math.isfinite(float(loss.d))


# -------------------------------------------------------------------- the prefetcher itself


def batch(start):
    return {"x": np.arange(start, start + 6, dtype=np.float32).reshape(2, 3)}


def test_batches_take_turns_in_two_sets_of_buffers():
    prefetcher = Prefetcher(device(0))
    addresses = [
        prefetcher.take(prefetcher.place([batch(number)]))[0]["x"].address for number in range(5)
    ]
    assert addresses[0] == addresses[2] == addresses[4]
    assert addresses[1] == addresses[3] != addresses[0]


def test_what_was_enqueued_reads_a_batch_before_the_next_but_one_takes_its_place():
    gpu = device(0)
    prefetcher = Prefetcher(gpu)
    kept = []
    placed = [prefetcher.place([batch(0)])]
    for number in range(6):
        placed.append(prefetcher.place([batch(10 * (number + 1))]))
        (buffers,) = prefetcher.take(placed[number])
        copy = gpu.buffer(buffers["x"].spec)
        with gpu:
            gpu.copy(copy.address, buffers["x"].address, copy.spec.nbytes)
        kept.append(copy)
    for number, copy in enumerate(kept):
        np.testing.assert_array_equal(gpu.read(copy), batch(10 * number)["x"])


def test_arrays_may_change_as_soon_as_they_are_placed():
    gpu = device(0)
    prefetcher = Prefetcher(gpu)
    arrays = batch(0)
    placed = prefetcher.place([arrays])
    arrays["x"][:] = -1
    np.testing.assert_array_equal(gpu.read(prefetcher.take(placed)[0]["x"]), batch(0)["x"])


def test_parts_dtypes_and_empty_arrays_are_placed_as_they_are():
    from ml_dtypes import bfloat16

    gpu = device(0)
    prefetcher = Prefetcher(gpu)
    parts = [
        {"a": np.ones((2, 2), bfloat16), "b": np.zeros((0, 3), np.int64)},
        {"a": np.asfortranarray(np.arange(6, dtype=bfloat16).reshape(2, 3)), "b": np.array(True)},
    ]
    for buffers, arrays in zip(prefetcher.take(prefetcher.place(parts)), parts, strict=True):
        for name, array in arrays.items():
            found = gpu.read(buffers[name])
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)


def test_memory_goes_back_when_its_copy_has_ended():
    gpu = device(0)
    gc.collect()
    active, _, _ = gpu.memory
    prefetcher = Prefetcher(gpu)
    prefetcher.place([{"x": np.ones(1000, np.float32)}])
    prefetcher.close()
    del prefetcher
    gc.collect()
    assert gpu.memory[0] == active


def test_what_is_fetched_is_as_it_was_then():
    gpu = device(0)
    buffers = [gpu.buffer(Spec((3,), np.dtype(np.float32))) for _ in range(2)]
    for number, buffer in enumerate(buffers):
        gpu.write(buffer, np.full(3, number, np.float32))
    fetched = gpu.fetch(buffers)
    for buffer in buffers:
        gpu.write(buffer, np.full(3, 9, np.float32))
    first, second = fetched()
    np.testing.assert_array_equal(first, np.zeros(3))
    np.testing.assert_array_equal(second, np.ones(3))
