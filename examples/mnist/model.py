"""A LeNet for grey images of ten classes."""

from __future__ import annotations

from nnl_core import PF, F, Variable


def lenet(x: Variable, training: bool) -> Variable:
    h = F.relu(F.max_pooling(PF.convolution(x, 16, (5, 5), name="conv1"), (2, 2)))
    h = F.relu(F.max_pooling(PF.convolution(h, 32, (5, 5), name="conv2"), (2, 2)))
    if training:
        h = F.dropout(h, 0.5)
    h = F.relu(PF.affine(h, 128, name="hidden"))
    return PF.affine(h, 10, name="output")
