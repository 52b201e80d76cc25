"""What holds for the whole suite."""

from __future__ import annotations

import os

from hypothesis import settings

# Before anything imports NumPy, and inherited by subprocesses. The arrays of the tests are small:
# threads of BLAS that wait for a core of a busy machine cost far more than they save.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# No test is timed: how long an example takes says more of the machine than of the code.
settings.register_profile("untimed", parent=settings(), deadline=None)
settings.load_profile("untimed")
