"""Threads and processes that take batches: equal bits, errors where they belong, nothing left."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
from multiprocessing import resource_tracker
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnl_core.data import (
    ArraySource,
    DataIterator,
    EachSample,
    FunctionSource,
    ImageFolder,
    TransformedSource,
    make_transforms,
)
from nnl_core.data.processes import WorkerTraceback
from nnl_core.errors import DataError

KINDS = ["thread", "process"]


def assert_same(first, second):
    for a, b in zip(first, second, strict=True):
        assert a.ids.tolist() == b.ids.tolist()
        assert a.count == b.count
        assert a.arrays.keys() == b.arrays.keys()
        for field in a.arrays:
            assert a[field].dtype == b[field].dtype
            np.testing.assert_array_equal(a[field], b[field])


def noisy(count):
    x = np.random.default_rng(1).integers(0, 256, (count, 3, 6, 5), np.uint8)
    source = ArraySource({"x": x, "y": np.arange(count)})
    names = ["to_float", "random_flip", {"name": "random_crop", "padding": 2}]
    return TransformedSource(source, make_transforms([*names, {"name": "noise", "deviation": 1}]))


# -------------------------------------------------------------------- the same bits


@given(
    count=st.integers(1, 30),
    batch_size=st.integers(1, 9),
    workers=st.integers(1, 4),
    prefetch=st.none() | st.integers(1, 5),
    last_batch=st.sampled_from(["keep", "pad"]),
    start=st.integers(0, 4),
)
def test_threads_give_the_batches_that_the_reader_would_take(
    count, batch_size, workers, prefetch, last_batch, start
):
    source = noisy(count)
    options = {"last_batch": last_batch, "seed": 3, "mask": "mask"}
    alone = DataIterator(source, batch_size, **options)
    helped = DataIterator(
        source, batch_size, workers=workers, worker_kind="thread", prefetch=prefetch, **options
    )
    for epoch in range(2):
        assert_same(alone.epoch(epoch, start), helped.epoch(epoch, start))
    helped.close()


@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (3, 2)])
def test_processes_give_the_batches_that_the_reader_would_take(functions, workers, prefetch):
    source = TransformedSource(noisy(23), [EachSample(functions.add_noise, size=0.5)])
    alone = DataIterator(source, 4, last_batch="pad")
    helped = DataIterator(source, 4, last_batch="pad", workers=workers, prefetch=prefetch)
    for epoch in range(2):
        assert_same(alone.epoch(epoch), helped.epoch(epoch))
    helped.close()


@pytest.mark.parametrize("kind", KINDS)
def test_two_epochs_may_be_read_at_the_same_time(functions, kind):
    source = FunctionSource(functions.square, 12)
    iterator = DataIterator(source, 4, workers=1, worker_kind=kind)
    expected = list(DataIterator(source, 4).epoch(0)), list(DataIterator(source, 4).epoch(1))
    read = list(zip(iterator.epoch(0), iterator.epoch(1), strict=True))
    assert_same([pair[0] for pair in read], expected[0])
    assert_same([pair[1] for pair in read], expected[1])
    iterator.close()


def test_a_batch_is_its_readers_own(functions):
    iterator = DataIterator(FunctionSource(functions.square, 8), 2, shuffle=False, workers=1)
    batches = []
    for batch in iterator.epoch():
        batch.arrays["x"] += 1
        batches.append(batch)
    assert [batch["x"][0, 0, 0] for batch in batches] == [1, 5, 17, 37]
    iterator.close()


# -------------------------------------------------------------------- ahead


class Watched:
    """A source that says when it was asked, and waits to be let on."""

    def __init__(self, let_on):
        self.source = ArraySource({"x": np.arange(40)})
        self.name, self.fields = "watched", self.source.fields
        self.asked = threading.Semaphore(0)
        self.let_on = let_on

    def __len__(self):
        return 40

    def take(self, ids):
        self.asked.release()
        assert self.let_on.wait(30)
        return self.source.take(ids)


def test_as_many_batches_are_taken_ahead_as_was_said_while_the_reader_is_busy():
    source = Watched(threading.Event())
    source.let_on.set()
    iterator = DataIterator(source, 4, workers=2, worker_kind="thread", prefetch=3)
    batches = iterator.epoch()
    next(batches)
    for _ in range(1 + 3):  # the one that is read, and those ahead, without being asked again
        assert source.asked.acquire(timeout=30)
    assert not source.asked.acquire(blocking=False)
    batches.close()


def test_workers_take_batches_at_the_same_time():
    source = Watched(threading.Event())
    iterator = DataIterator(source, 4, workers=2, worker_kind="thread")
    reader = threading.Thread(target=lambda: next(iterator.epoch()))
    reader.start()
    for _ in range(2):  # both wait in `take`
        assert source.asked.acquire(timeout=30)
    source.let_on.set()
    reader.join(30)
    assert not reader.is_alive()


# -------------------------------------------------------------------- errors


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_comes_when_its_batch_would_have_with_the_traceback_of_its_place(functions, kind):
    source = FunctionSource(functions.fail_at_5, 9)
    iterator = DataIterator(source, 2, shuffle=False, workers=2, worker_kind=kind)
    read = []
    with pytest.raises(KeyError, match="sample five") as raised:
        for batch in iterator.epoch():
            read.append(batch["y"].tolist())
    assert read == [[0, 1], [2, 3]]
    if kind == "process":
        assert isinstance(raised.value.__cause__, WorkerTraceback)
        assert "in fail_at_5" in str(raised.value.__cause__)
    else:
        assert "fail_at_5" in [entry.name for entry in raised.traceback]


def test_an_error_that_cannot_be_sent_comes_as_one_of_ours_that_describes_it(functions):
    iterator = DataIterator(FunctionSource(functions.fail_oddly, 4), 2, workers=1)
    with pytest.raises(DataError, match="OddError: 1 and 2"):
        list(iterator.epoch())


@pytest.mark.parametrize(
    ("function", "how"), [("be_killed_at_5", "was killed by SIGKILL"), ("exit_at_5", "status 3")]
)
def test_a_worker_that_dies_is_an_error_that_says_how(functions, function, how):
    source = FunctionSource(getattr(functions, function), 20, "squares")
    iterator = DataIterator(source, 2, shuffle=False, workers=2)
    with pytest.raises(DataError, match=rf"squares: nnl data worker \d \(process \d+\) .*{how}"):
        list(iterator.epoch())


def test_after_an_error_the_next_epoch_has_new_workers(functions):
    iterator = DataIterator(FunctionSource(functions.fail_at_5, 9), 2, shuffle=False, workers=1)
    for _ in range(2):
        with pytest.raises(KeyError):
            list(iterator.epoch())
    assert len(list(iterator.epoch(start=3))) == 2
    iterator.close()


def test_a_source_that_cannot_be_sent_says_so_and_works_with_threads():
    source = FunctionSource(lambda number: {"x": number}, 4, "local")
    with pytest.raises(DataError, match=r"local cannot be sent to another process: .*threads"):
        list(DataIterator(source, 2, workers=1).epoch())
    assert len(list(DataIterator(source, 2, workers=1, worker_kind="thread").epoch())) == 2


def test_a_source_that_breaks_its_promise_is_caught_before_it_writes(functions, tmp_path, picture):
    for name in "abc":
        picture(tmp_path / f"{name}.png", (4, 4))
    source = ImageFolder(tmp_path)
    picture(tmp_path / "c.png", (4, 6))
    with pytest.raises(DataError, match=r"c\.png is of 4 x 6 pixels, a\.png of 4 x 4"):
        list(DataIterator(source, 2, shuffle=False, workers=1).epoch())


# -------------------------------------------------------------------- nothing left


def shared_memory():
    """The segments of shared memory that this process has mapped."""
    return set(re.findall(r"/dev/shm/(\S+)", Path("/proc/self/maps").read_text()))


class Leftovers:
    """Counts what a process may leave lying about, at its beginning and when asked."""

    def __init__(self):
        resource_tracker.ensure_running()  # Python's own: one for the life of the process
        self.before = self.now()
        self.segments = set()

    def now(self):
        gc.collect()
        return (
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            len(multiprocessing.active_children()),
            len(shared_memory()),
        )

    def in_use(self):
        """Look while workers are there, so that it is known that there was something to leave."""
        self.segments |= shared_memory()
        assert self.now() > self.before

    def assert_none(self):
        assert self.now() == self.before
        assert not [name for name in self.segments if Path("/dev/shm", name).exists()]


@pytest.fixture
def leftovers():
    return Leftovers()


@pytest.fixture(params=KINDS)
def iterator(request, functions, leftovers):
    source = FunctionSource(functions.square, 40)
    return DataIterator(source, 4, workers=2, worker_kind=request.param)


def test_breaking_out_of_an_epoch_leaves_nothing(iterator, leftovers):
    for _ in iterator.epoch():
        leftovers.in_use()
        break
    leftovers.assert_none()


def test_an_exception_in_the_reader_leaves_nothing(iterator, leftovers):
    def read():
        for _ in iterator.epoch():
            leftovers.in_use()
            raise ZeroDivisionError

    try:
        read()
    except ZeroDivisionError:
        pass
    leftovers.assert_none()


def test_workers_wait_for_the_next_epoch_and_closing_ends_them(iterator, leftovers):
    list(iterator.epoch())
    leftovers.in_use()
    waiting = leftovers.now()
    list(iterator.epoch(1))
    assert leftovers.now() == waiting
    iterator.close()
    leftovers.assert_none()
    iterator.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_iterator_that_nobody_holds_leaves_nothing(functions, leftovers, kind):
    source = FunctionSource(functions.square, 40)
    iterator = DataIterator(source, 4, workers=2, worker_kind=kind)
    list(iterator.epoch())
    leftovers.in_use()
    del iterator
    leftovers.assert_none()


def test_an_epoch_that_fails_leaves_nothing(functions, leftovers):
    for function in (functions.fail_at_5, functions.be_killed_at_5):
        try:
            list(DataIterator(FunctionSource(function, 20), 2, workers=2).epoch())
        except (KeyError, DataError):
            pass
    leftovers.assert_none()


def run_script(tmp_path, text):
    script = tmp_path / "script.py"
    script.write_text(dedent(text), "utf-8")
    path = os.pathsep.join((str(Path(__file__).parents[2]), str(Path(__file__).parent)))
    return subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        start_new_session=True,
    )


def test_a_program_that_ends_in_the_middle_of_an_epoch_ends_at_once_and_quietly(tmp_path):
    done = run_script(
        tmp_path,
        """
        from worker_functions import square
        from nnl_core.data import DataIterator, FunctionSource

        if __name__ == "__main__":
            both = []
            for kind in ("thread", "process"):
                iterator = DataIterator(
                    FunctionSource(square, 40), 4, workers=1, worker_kind=kind
                )
                both.append(iterator.epoch())
                print(len(next(both[-1])))
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n4\n", "")


def test_a_parent_that_is_killed_takes_its_workers_along(tmp_path):
    done = run_script(
        tmp_path,
        """
        import os, signal
        from multiprocessing import active_children
        from pathlib import Path
        from worker_functions import square
        from nnl_core.data import DataIterator, FunctionSource

        if __name__ == "__main__":
            iterator = DataIterator(FunctionSource(square, 40), 4, workers=2)
            next(batches := iterator.epoch())
            print(*(process.pid for process in active_children()), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    # The workers hold the other end of standard output: reading it to its end waited for theirs.
    assert done.returncode == -9
    assert len(done.stdout.split()) == 2
    assert not [pid for pid in done.stdout.split() if is_running(pid)]


def is_running(pid):
    """Whether there is such a process, and it is no zombie that nobody has waited for."""
    stat = Path("/proc", pid, "stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_script_without_a_guard_is_told_of_it(tmp_path):
    done = run_script(
        tmp_path,
        """
        from worker_functions import square
        from nnl_core.data import DataIterator, FunctionSource

        list(DataIterator(FunctionSource(square, 40), 4, workers=1).epoch())
        """,
    )
    assert done.returncode == 1
    assert "under: if __name__ == '__main__':" in done.stderr.splitlines()[-1]


def test_a_source_in_memory_can_be_sent():
    source = ArraySource({"x": np.arange(3)}, "three")
    copy = pickle.loads(pickle.dumps(source))
    assert (copy.name, copy.take(np.array([2]))["x"].tolist()) == ("three", [2])


def test_ctrl_c_is_for_the_reader_alone(tmp_path):
    done = run_script(
        tmp_path,
        """
        import os, signal
        from worker_functions import square
        from nnl_core.data import DataIterator, FunctionSource

        if __name__ == "__main__":
            caught = []
            signal.signal(signal.SIGINT, lambda *_: caught.append(True))
            iterator = DataIterator(FunctionSource(square, 40), 4, workers=2)
            count = 0
            for batch in iterator.epoch():
                os.killpg(0, signal.SIGINT)  # what a terminal does
                count += 1
            print(count, len(caught))
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "10 10\n", "")
