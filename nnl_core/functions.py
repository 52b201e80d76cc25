"""``F``: the functions that users call, under nnabla's names. One line per family of operators."""

from __future__ import annotations

from nnl_core.operators.arithmetic import *
from nnl_core.operators.einsum import *
from nnl_core.operators.flat import *
from nnl_core.operators.linear import *
