"""A model with one weight and one bias, whose training NumPy can follow."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import PF, F
from nnl_core.data import ArraySource
from nnl_core.initializers import ConstantInitializer
from nnl_core.session import Session
from nnl_core.training import Model


@pytest.fixture
def session():
    with Session(discover=False, environment={}) as session:
        yield session


@pytest.fixture
def line():
    """Ten points near a line."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, 1)).astype(np.float32)
    y = 3 * x + 1 + rng.normal(scale=0.1, size=(10, 1)).astype(np.float32)
    return ArraySource({"x": x, "y": y.astype(np.float32)}, "line")


def squared(output, target):
    return F.pow_scalar(output - target, 2.0)


@pytest.fixture
def make_model(session):
    def make(function=fit, loss=squared, **keywords):
        return Model(function, loss=loss, session=session, **keywords)

    return make


def fit(x):
    return PF.affine(x, 1, w_init=ConstantInitializer(0), name="fit")
