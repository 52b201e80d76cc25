"""One process at a time writes into the folder of a run."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nnl_core.errors import TrainingError

FILE_NAME = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the one process that writes into a folder, until the block or the process ends.

    Raises TrainingError, naming who does, where another one is.
    """
    path = folder / FILE_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise TrainingError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        if not _acquire(descriptor):
            who = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
            raise TrainingError(f"{folder} is being written by {who}; wait for it, or end it")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)  # which is what unlocks; the file stays, since others may wait on it


def _acquire(descriptor: int) -> bool:
    """Take the lock, unless somebody else writes.

    Who only looks, with `is_locked`, shares it for a moment: that is no reason to give up.
    """
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_locked(folder: Path) -> bool:
    """Whether a process is writing into a run's folder."""
    try:
        descriptor = os.open(folder / FILE_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
