"""Tests for losses over alignments, and for packed sequences, on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnl_core.graph.operator import Array, lookup

Compute = Callable[..., tuple[Array, ...]]


@pytest.mark.parametrize("joined", [False, True], ids=["padded", "joined"])
def test_long_sequences_have_the_loss_and_gradient_of_the_reference(
    compute: Compute, joined: bool
) -> None:
    rng = np.random.default_rng(1)
    steps, batch, classes, most = 90, 2, 5, 40
    logits = rng.normal(size=(steps, batch, classes))
    x = logits - np.log(np.exp(logits).sum(2, keepdims=True))
    targets, lengths = rng.integers(1, classes, (batch, most)), np.array([most, 25])
    if joined:
        targets = np.concatenate([row[:n] for row, n in zip(targets, lengths, strict=True)])
    given = (targets, np.array([steps, 80]), lengths)
    (loss,) = compute("nnl::ctc_loss", x, *given)
    np.testing.assert_allclose(loss, lookup("nnl::ctc_loss").reference(x, *given), rtol=1e-10)
    g = np.array([1.0, -0.5])
    (dx,) = compute("nnl::ctc_loss_gradient", x, g, *given)
    target = lookup("nnl::ctc_loss_gradient").reference(x, g, *given)
    np.testing.assert_allclose(dx, target, rtol=1e-9, atol=1e-12)
