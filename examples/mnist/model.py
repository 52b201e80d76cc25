"""A LeNet for 28 x 28 grey images of ten classes."""

from __future__ import annotations

import nnl_core.functions as F
import nnl_core.parametric_functions as PF
from nnl_core import Variable


def lenet(x: Variable) -> Variable:
    h = PF.convolution(x, 16, (5, 5), name="conv1")
    h = F.relu(F.max_pooling(h, (2, 2)))
    h = PF.convolution(h, 32, (5, 5), name="conv2")
    h = F.relu(F.max_pooling(h, (2, 2)))
    h = F.relu(PF.affine(h, 128, name="hidden"))
    return PF.affine(h, 10, name="output")
