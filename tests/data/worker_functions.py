"""Functions that the tests let worker processes call: they import this module by its name."""

from __future__ import annotations

import os
import signal

import numpy as np


class OddError(Exception):
    """One that pickles, but cannot be unpickled: it takes two arguments, and keeps one."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def square(number):
    return {"x": np.full((2, 3), number**2, np.float32), "y": np.int64(number)}


def fail_at_5(number):
    if number == 5:
        raise KeyError("sample five")
    return square(number)


def fail_oddly(number):
    if number:
        raise OddError(1, 2)
    return square(number)


def be_killed_at_5(number):
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return square(number)


def exit_at_5(number):
    if number == 5:
        os._exit(3)
    return square(number)


def add_noise(sample, generator, size=1.0):
    return {**sample, "x": sample["x"] + np.float32(size) * generator.random(dtype=np.float32)}
