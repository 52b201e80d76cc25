"""NumPy kernels of remainders."""

from __future__ import annotations

import numpy as np

from nnl_core.operators import integers as family

family.fmod_operator.kernel("numpy", np.fmod)
family.mod_operator.kernel("numpy", np.mod)
