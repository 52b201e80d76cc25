"""Losses: what training minimises, by name."""

from __future__ import annotations

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.training.metrics.base import Comparison
from nnl_core.training.metrics.shapes import alike, class_labels


def softmax_cross_entropy(output: Variable, target: Variable) -> Variable:
    """Compare logits along axis 1 with labels."""
    return F.softmax_cross_entropy(output, class_labels(output, target), axis=1)


def sigmoid_cross_entropy(output: Variable, target: Variable) -> Variable:
    """Compare logits with 0 and 1."""
    return F.sigmoid_cross_entropy(output, alike(output, target))


def squared_error(output: Variable, target: Variable) -> Variable:
    """Square the difference."""
    return F.squared_error(output, alike(output, target))


def absolute_error(output: Variable, target: Variable) -> Variable:
    """Return the difference without its sign."""
    return F.absolute_error(output, alike(output, target))


def huber_loss(output: Variable, target: Variable) -> Variable:
    """Square small differences; large ones (over 1) count linearly."""
    return F.huber_loss(output, alike(output, target))


LOSSES: dict[str, Comparison] = {
    function.__name__: function
    for function in (
        softmax_cross_entropy,
        sigmoid_cross_entropy,
        squared_error,
        absolute_error,
        huber_loss,
    )
}
