"""Signals that end a training: after the step that is being made, or at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnl_core.training import Trainer

REASONS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "the terminal has gone",
}


class Interruption:
    """What has come so far: ``status`` is the exit status of a process that it ends, or 0."""

    def __init__(self) -> None:
        self.status = 0


@contextmanager
def interruptible(trainer: Trainer) -> Iterator[Interruption]:
    """Let Ctrl-C, SIGTERM and SIGHUP end a run with its step, and a second one at once.

    Signals that the process was told to ignore, as by ``nohup``, are ignored.
    """
    interruption = Interruption()

    def stop(number: int, frame: FrameType | None) -> None:
        if interruption.status:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        interruption.status = 128 + number
        trainer.request_stop(REASONS[signal.Signals(number)])

    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield interruption
        return
    before = {number: signal.getsignal(number) for number in REASONS}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, stop)
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
