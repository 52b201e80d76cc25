"""What holds for the whole suite."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# Before anything imports NumPy, and inherited by subprocesses. The arrays of the tests are small:
# threads of BLAS that wait for a core of a busy machine cost far more than they save.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# What the engine means is what NumPy computes. Better backends that are installed are held to it by
# the tests that take the fixture `backend`, and by tests of their own. Subprocesses inherit this.
os.environ.setdefault("NNL_BACKEND", "numpy")

# No test is timed: how long an example takes says more of the machine than of the code.
settings.register_profile("untimed", parent=settings(), deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def signals_as_at_a_terminal():
    """Take signals that the suite was started to ignore, as a shell's background jobs are.

    Runs that ignore them, as they should, are what some tests would wait for in vain.
    """
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    for number, handler in usual.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
