"""A polynomial whose coefficients are learnt, written with an operator of a plugin."""

from __future__ import annotations

import nnl_core as nnl
from nnl_core import functions as F
from nnl_core import parametric_functions as PF

power = nnl.lookup("powers::power")


def polynomial(x: nnl.Variable, degree: int) -> nnl.Variable:
    """Return the polynomial of ``x``, shape (batch, 1)."""
    terms = F.concatenate(*[power(x, p=p) for p in range(1, degree + 1)], axis=1)
    return PF.affine(terms, 1)
