"""The lock of a run's folder: one process writes, others may look."""

from __future__ import annotations

import fcntl

import pytest

from nnl_core.errors import TrainingError
from nnl_core.training import run_lock
from nnl_core.training.run_lock import is_locked, locked


def test_one_at_a_time_holds_it_and_the_other_is_told_who(tmp_path):
    with locked(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(TrainingError, match=r"is being written by process \d+ on"):
            locked(tmp_path).__enter__()
    assert not is_locked(tmp_path)


def test_somebody_who_looks_at_that_moment_keeps_nobody_from_it(tmp_path, monkeypatch):
    flock, looking = fcntl.flock, [True, True]

    def looked_at(descriptor, operation):
        if operation & fcntl.LOCK_EX and looking:
            looking.pop()
            raise BlockingIOError
        flock(descriptor, operation)

    monkeypatch.setattr(run_lock.fcntl, "flock", looked_at)
    with locked(tmp_path):
        assert is_locked(tmp_path)
    assert not looking
