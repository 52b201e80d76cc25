"""Errors name the function that was called, not one that it is made of."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F
from nnl_core.errors import NnlError

X = np.zeros((2, 3))
SCALAR = np.zeros(())

WRONG = {
    "cosine_similarity": lambda: F.cosine_similarity(SCALAR, SCALAR),
    "cosine_embedding_loss": lambda: F.cosine_embedding_loss(SCALAR, SCALAR, SCALAR),
    "contrastive_loss": lambda: F.contrastive_loss(X, np.zeros((2, 4)), np.zeros(2)),
    "triplet_loss": lambda: F.triplet_loss(SCALAR, SCALAR, SCALAR),
    "focal_loss": lambda: F.focal_loss(X, np.zeros((2, 4))),
    "nll_loss": lambda: F.nll_loss(X, np.array([[0], [7]])),
    "clip_by_norm": lambda: F.clip_by_norm(X, 1.0, axis=2),
    "rms_norm": lambda: F.rms_norm(SCALAR),
    "ifft": lambda: F.ifft(X, 1),
    "warp_by_grid": lambda: F.warp_by_grid(np.zeros((1, 1, 3, 3)), np.zeros((2, 2, 2, 2))),
    "leaky_relu": lambda: F.leaky_relu(X, "a"),
    "dropout": lambda: F.dropout(X, "a"),
    "add": lambda: F.add(X, "a"),
    "affine": lambda: PF.affine(X, 3.0),
    "embed": lambda: PF.embed(np.zeros(2), "a", 3),
    "batch_normalization": lambda: PF.batch_normalization(X, axes="a"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("dynamic", [False, True])
def test_an_error_begins_with_the_name_of_what_was_called(name: str, dynamic: bool) -> None:
    with nnl.auto_forward(dynamic), pytest.raises(NnlError, match=f"^{name}: ") as told:
        WRONG[name]().forward()
    assert str(told.value).count(f"{name}: ") == 1


def test_an_error_keeps_the_name_of_the_node() -> None:
    with nnl.parameter_scope("block"), pytest.raises(NnlError, match=r"^mul2 'block/mul': shapes"):
        F.mul2(X, np.zeros(4))


def test_a_value_that_is_refused_is_shown_with_its_argument() -> None:
    with pytest.raises(NnlError, match=r"^affine: n_outmaps=3\.0 is not a whole number"):
        PF.affine(X, 3.0)
    with pytest.raises(NnlError, match=r"^embed: parameter 'embed/W': shape\[1\]=2\.5 is not"):
        PF.embed(np.zeros(2), 4, 2.5)


def test_functions_keep_their_signatures_and_can_be_pickled() -> None:
    assert [*inspect.signature(F.dropout).parameters] == ["x", "p", "seed", "output_mask"]
    for function in (F.relu, F.sum, PF.affine):
        assert pickle.loads(pickle.dumps(function)) is function
