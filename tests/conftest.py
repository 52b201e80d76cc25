"""What holds for the whole suite."""

from __future__ import annotations

import os

# Before anything imports NumPy, and inherited by subprocesses. The arrays of the tests are small:
# threads of BLAS that wait for a core of a busy machine cost far more than they save.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
