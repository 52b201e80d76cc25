"""FastONN's names, indices and weights, against its formulation written in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import Variable
from nnl_core.errors import OperatorError, ShapeError, UnknownComponentError
from nnl_onn import (
    OperatorSet,
    fastonn_library,
    fastonn_operators,
    fastonn_tier,
    fastonn_weight,
)

NODAL = ["mul", "cubic", "sine", "expp", "sinh", "chirp"]
POOL = ["summ", "medd", "maxx"]
ACTIVATION = ["tanh", "lincut", "myrelu"]
LIBRARY = fastonn_library(NODAL, POOL, ACTIVATION)

PSI = {
    "mul": lambda x, w: w * x,
    "cubic": lambda x, w: 100 * w * x**3,
    "sine": lambda x, w: np.sin(100 * w * x),
    "expp": lambda x, w: np.exp(w * x) - 1,
    "sinh": lambda x, w: np.sinh(0.1 * w * x),
    "chirp": lambda x, w: np.sin(10000 * w * x * x),
}
POOLED = {
    "summ": lambda z: z.sum(axis=3),
    "medd": lambda z: np.median(z, axis=3),  # of an odd number
    "maxx": lambda z: z.max(axis=3),
}
ACTIVATED = {
    "tanh": np.tanh,
    "lincut": lambda z: np.clip(z / 10, -1, 1),
    "myrelu": lambda z: np.maximum(z, 0),
}


def block(x, weight, bias, nodal, pool, activation):
    """One block: unfold, nodal operator, pool, sum over channels, scaling, bias, activation."""
    batch, channels, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = [padded[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    unfolded = np.stack(taps, axis=2).reshape(batch, channels, 1, 9, height * width)
    values = PSI[nodal](unfolded, weight[np.newaxis, ..., np.newaxis])
    summed = POOLED[pool](values).sum(axis=1)
    largest = np.abs(summed).max(axis=(1, 2), keepdims=True)
    scaled = summed * np.minimum(1, 4 / largest)
    y = ACTIVATED[activation](scaled - bias[np.newaxis, :, np.newaxis])
    return y.reshape(batch, -1, height, width)


def numbers(seed, *shape, bound=1.0):
    return np.random.default_rng(seed).uniform(-bound, bound, shape)


@pytest.mark.parametrize("index", range(len(LIBRARY)))
def test_a_tier_computes_what_fastonn_does(index):
    pool, rest = divmod(index, len(ACTIVATION) * len(NODAL))
    activation, nodal = divmod(rest, len(NODAL))
    x = numbers(0, 2, 3, 6, 6)
    weight, bias = numbers(1, 3, 4, 9, bound=1 / 9), numbers(2, 4, bound=1 / 9)
    y = fastonn_tier(
        Variable.from_numpy_array(x),
        4,
        3,
        fastonn_operators(index, LIBRARY),
        w_init=fastonn_weight(weight, (3, 3)),
        b_init=bias,
    )
    y.forward()
    right = block(x, weight, bias, NODAL[nodal], POOL[pool], ACTIVATION[activation])
    # Parameters are kept in float32: of a chirp, that is a part in a thousand of a turn.
    np.testing.assert_allclose(y.d, right, atol=5e-3 if NODAL[nodal] == "chirp" else 2e-5)


def test_indices_of_neurons_are_sorted_as_fastonn_sorts_its_maps():
    found = fastonn_operators([7, 0, 7, 2], LIBRARY)
    assert found == [LIBRARY[0], LIBRARY[2], LIBRARY[7], LIBRARY[7]]


def test_names_are_those_of_fastonn():
    assert LIBRARY[3] == OperatorSet("exp", "sum", "tanh")
    assert LIBRARY[-1] == OperatorSet("chirp", "max", "relu")
    with pytest.raises(UnknownComponentError, match="sinc2"):
        fastonn_library(["sinc2"], ["summ"], ["tanh"])


def test_an_index_beyond_the_library_is_named():
    with pytest.raises(OperatorError, match="operator set 54 is not one of 0 to 53"):
        fastonn_operators([0, 54], LIBRARY)


def test_images_need_not_be_square_and_kernels_not_odd():
    x = Variable.from_numpy_array(numbers(0, 1, 2, 5, 8))
    assert fastonn_tier(x, 3, 4, LIBRARY[2]).shape == (1, 3, 5, 8)


@pytest.mark.parametrize(("factor", "shape"), [(1, (4, 6)), (2, (2, 3)), (-2, (8, 12))])
def test_a_sampling_factor_pools_or_repeats(factor, shape):
    x = Variable.from_numpy_array(numbers(0, 1, 2, 4, 6))
    full = fastonn_tier(x, 3, 3, LIBRARY[0], name="same")
    y = fastonn_tier(x, 3, 3, LIBRARY[0], factor, name="same")
    nnl.forward_all([full, y])
    assert y.shape == (1, 3, *shape)
    if factor == 2:
        right = full.d.reshape(1, 3, 2, 2, 3, 2).max(axis=(3, 5))
    else:
        right = full.d.repeat(max(1, -factor), 2).repeat(max(1, -factor), 3)
    np.testing.assert_array_equal(y.d, right)


def test_a_weight_of_another_layout_is_named():
    with pytest.raises(ShapeError, match=r"\(3, 4, 9\) should be .* 4 taps"):
        fastonn_weight(np.zeros((3, 4, 9)), (2, 2))
