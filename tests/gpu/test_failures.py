"""Tests for kernels that meet values that their operators refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from nnl_core.errors import OperatorError
from nnl_core.graph.operator import Array, lookup

Compute = Callable[..., tuple[Array, ...]]


class Bad(NamedTuple):
    """A call that fails, and what is said of it."""

    operator: str
    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any]
    message: str


SCORES, LABELS = np.ones((4, 3)), np.array([[0], [3], [-1], [2]])
CLASSES = "a label is not one of the 3 classes"
PATHS, TARGETS = np.full((4, 2, 3), -1.0), np.array([[1, 2], [1, 2]])
STEPS, LENGTHS = np.array([4, 4]), np.array([2, 2])
STATES = {"classes": 3, "steps": 4, "blank": 0}
PACKED = {"steps": 4, "count": 5, "batch_first": False}
PADDED = {"steps": 4, "batch": 3, "count": 5, "batch_first": False}
REGULAR = 2 * np.eye(3)

CASES = {
    "label of no class": Bad("softmax_cross_entropy", (SCORES, LABELS, None), {}, CLASSES),
    "label of no class along a middle axis": Bad(
        "softmax_cross_entropy", (np.ones((2, 3, 4)), np.full((2, 1, 4), 3), None), {"axis": 1},
        CLASSES,
    ),
    "label that is no whole number": Bad(
        "softmax_cross_entropy", (SCORES, LABELS / 2, None), {}, CLASSES
    ),
    "label that is infinite": Bad(
        "softmax_cross_entropy", (np.ones((1, 3)), np.array([[np.inf]]), None), {}, CLASSES
    ),
    "label of a gradient": Bad(
        "softmax_cross_entropy_gradient", (np.ones((4, 1)), SCORES, LABELS, None), {}, CLASSES
    ),
    "label of a probability": Bad("categorical_cross_entropy", (SCORES, LABELS), {}, CLASSES),
    "label of an error": Bad("top_n_error", (SCORES, LABELS), {}, CLASSES),
    "label of a share": Bad("class_targets", (LABELS, None), {"classes": 3, "axis": 1}, CLASSES),
    "label of a count": Bad("confusion_matrix", (SCORES, LABELS), {}, CLASSES),
    "too many steps": Bad("ctc_loss", (PATHS, TARGETS, STEPS + 1, LENGTHS), {}, "from 0 to 4"),
    "too many labels": Bad("ctc_loss", (PATHS, TARGETS, STEPS, LENGTHS + 1), {}, "from 0 to 2"),
    "label behind the classes": Bad(
        "ctc_loss", (PATHS, TARGETS + 1, STEPS, LENGTHS), {}, "labels from 0 to 2"
    ),
    "label that is the blank": Bad(
        "ctc_loss", (PATHS, TARGETS, STEPS, LENGTHS), {"blank": 1}, "without the blank, 1"
    ),
    "labels that are left over": Bad(
        "ctc_loss", (PATHS, np.array([1, 2, 1, 2]), STEPS, np.array([2, 1])), {}, "sum to 4"
    ),
    "label of a sequence's gradient": Bad(
        "ctc_loss_gradient", (PATHS, np.ones(2), TARGETS + 1, STEPS, LENGTHS), {}, "labels from 0"
    ),
    "label of a state": Bad("ctc_states", (TARGETS + 1, STEPS, LENGTHS), STATES, "labels from 0"),
    "negative length": Bad("ctc_states", (TARGETS, STEPS, -LENGTHS), STATES, "from 0 to 2"),
    "lengths of another sum": Bad("packed_places", (np.array([3, 1]),), PACKED, "sum to 5"),
    "lengths that increase": Bad("packed_places", (np.array([2, 3]),), PACKED, "longest first"),
    "length behind the steps": Bad("packed_places", (np.array([5, 0]),), PACKED, "from 0 to 4"),
    "length that is no whole number": Bad(
        "packed_places", (np.array([3.5, 1.5]),), PACKED, "whole"
    ),
    "no steps for a length": Bad(
        "packed_places", (np.array([1]),), {**PACKED, "steps": 0, "count": 1}, "from 0 to 0"
    ),
    "sizes of another sum": Bad("padded_places", (np.array([3, 1]),), PADDED, "5 packed elements"),
    "sizes of another batch": Bad("padded_places", (np.array([4, 1]),), PADDED, "the first 3"),
    "sizes that increase": Bad("padded_places", (np.array([3, 0, 2]),), PADDED, "not increase"),
    "shift that is no whole number": Bad(
        "bit_shift", (np.ones(3, np.uint8), np.array([1, 0.5, 2])), {"direction": "LEFT"},
        "give from 0 to 7",
    ),
    **{
        f"weights {weights}": Bad(
            "random_choice", (np.ones((1, 2)), np.array([weights]), np.ones(2, np.uint64)),
            {"shape": (3,), "replace": True}, "weights must be numbers of at least 0",
        )
        for weights in ((-1.0, 3.0), (0.0, 0.0), (1.0, np.nan), (1.0, np.inf))
    },
    "singular matrix": Bad(
        "batch_inv", (np.stack([REGULAR, np.ones((3, 3))]),), {}, "a matrix is singular"
    ),
    "indefinite matrix": Bad(
        "batch_cholesky", (np.stack([REGULAR, -REGULAR]),), {}, "not positive definite"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_the_reference_refuses_is_an_error_when_the_value_is_read(
    compute: Compute, case: Bad
) -> None:
    name = f"nnl::{case.operator}"
    with pytest.raises(OperatorError):
        lookup(name).reference(*case.inputs, **case.attributes)
    with pytest.raises(OperatorError, match=case.message):
        compute(name, *case.inputs, **case.attributes)


def test_the_next_computation_is_fine(compute: Compute) -> None:
    with pytest.raises(OperatorError):
        compute("nnl::batch_inv", np.zeros((1, 2, 2)))
    (y,) = compute("nnl::batch_inv", np.eye(2)[None])
    np.testing.assert_array_equal(y, np.eye(2)[None])


def test_labels_that_are_ignored_are_no_error(compute: Compute) -> None:
    labels = np.array([[7], [-3], [0], [0]])
    y, _ = compute("nnl::softmax_cross_entropy", SCORES, labels, None, ignore_index=7)
    np.testing.assert_allclose(y, [[0], [0], [np.log(3)], [np.log(3)]])
