"""Sharing blocks of work among threads, and how many threads BLAS uses meanwhile."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from nnl_core.cpu import threads


@pytest.fixture(params=[1, 2, 3])
def count(request, monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: request.param)
    threads._pool.cache_clear()
    yield request.param
    threads._pool.cache_clear()


def test_results_come_in_the_order_of_the_items(count):
    parts = threads.share(list, list(range(10)))
    assert [item for part in parts for item in part] == list(range(10))
    assert len(parts) == count


def test_fewer_items_than_threads_are_one_run_each(count):
    assert len(threads.share(list, [7])) == 1
    assert threads.share(list, []) == []


def test_what_a_run_raises_is_raised_and_the_others_finish(count):
    finished = []

    def work(run):
        if 0 in run:
            raise ZeroDivisionError("first")
        finished.append(run)

    with pytest.raises(ZeroDivisionError, match="first"):
        threads.share(work, [0, 1, 2])
    assert len(finished) == count - 1
    with pytest.raises(ZeroDivisionError):
        threads.share(lambda run: 1 // (2 - run[-1]), [0, 1, 2])


def test_overflow_in_a_worker_is_quiet(count):
    big = np.full(4, 3e38, np.float32)
    with np.errstate(all="ignore"):
        parts = threads.share(lambda run: [big * big for _ in run], [0, 1, 2, 3])
    assert all(np.isinf(array).all() for part in parts for array in part)


def test_runs_are_shared_by_several_threads(count):
    barrier = threading.Barrier(count, timeout=10)

    def work(run):
        barrier.wait()
        return threading.get_ident()

    assert len(set(threads.share(work, range(count)))) == count


def test_blas_has_its_threads_back_afterwards(count):
    control = threads._openblas()
    if control is None:
        pytest.skip("this NumPy does not bring its own OpenBLAS")
    before = control[0]()
    inside = threads.share(lambda run: control[0](), [0, 1, 2])
    assert control[0]() == before
    assert count == 1 or set(inside) == {1}
    with pytest.raises(KeyError), threads.blas_threads(1):
        raise KeyError
    assert control[0]() == before


@pytest.mark.parametrize("size", [3, 600])
def test_products_are_those_of_matmul(size):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(size, size)), rng.normal(size=(size, size))
    np.testing.assert_allclose(threads.product(a, b), np.einsum("ij,jk->ik", a, b), rtol=1e-9)
    assert threads.product(a, b[0]).shape == (size,)


@pytest.mark.parametrize(
    ("size", "told"), [(2, []), (64, [1, 4]), (256, [])], ids=["small", "middling", "large"]
)
def test_blas_uses_one_thread_for_products_that_several_only_slow_down(monkeypatch, size, told):
    """Small ones are BLAS's own business, and large ones worth its threads."""
    heard = []
    monkeypatch.setattr(threads, "_openblas", lambda: (lambda: 4, heard.append))
    threads.product(np.ones((size, size)), np.ones((size, size)))
    assert heard == told


def test_the_number_of_threads_may_be_set_from_outside(monkeypatch):
    monkeypatch.setenv("NNL_NUM_THREADS", "5")
    assert threads.thread_count.__wrapped__() == 5
    monkeypatch.setenv("NNL_NUM_THREADS", "many")
    assert threads.thread_count.__wrapped__() >= 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_process_shares_work_too():
    threads.share(list, [1, 2, 3, 4])
    import multiprocessing
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads: the point here
        with multiprocessing.get_context("fork").Pool(1) as pool:
            result = pool.apply_async(threads.share, (list, [1, 2, 3, 4]))
            assert [i for part in result.get(timeout=60) for i in part] == [1, 2, 3, 4]
