"""Choices from populations: how often each element comes, and where its gradient goes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core import random
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.modes import auto_forward, recompute
from nnl_core.graph.variable import Variable

COUNT = 40_000


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    before = random.get_state()
    random.seed(7)
    yield
    random.set_state(before)


def value(y: Variable) -> np.ndarray:
    y.forward()
    return np.array(y.d)


def leaf(array: Any) -> Variable:
    return Variable.from_numpy_array(np.asarray(array, np.float32), need_grad=True)


@pytest.mark.parametrize("replace", [True, False])
def test_elements_come_as_often_as_their_weights_say(replace: bool) -> None:
    weights = np.array([1.0, 0.0, 2.0, 5.0])
    x = np.repeat([[0, 1, 2, 3]], COUNT, axis=0)
    y = value(F.random_choice(x, np.repeat(weights[None], COUNT, axis=0), replace=replace))
    assert y.shape == (COUNT, 1)
    share = np.bincount(y.ravel(), minlength=4) / COUNT
    probability = weights / weights.sum()
    assert (abs(share - probability) <= 6 * np.sqrt(probability / COUNT)).all()


def test_many_draws_from_one_population_are_independent() -> None:
    y = value(F.random_choice(np.arange(2), np.ones(2), (COUNT, 2)))
    pairs = np.bincount(y[:, 0] * 2 + y[:, 1], minlength=4) / COUNT
    assert (abs(pairs - 0.25) < 6 * np.sqrt(0.25 / COUNT)).all()


def test_draws_without_replacement_come_in_the_order_of_successive_draws() -> None:
    weights = np.array([1.0, 2.0, 5.0])
    x = np.repeat([[0, 1, 2]], COUNT, axis=0)
    y = value(F.random_choice(x, np.repeat(weights[None], COUNT, axis=0), (3,), replace=False))
    assert (np.sort(y, axis=1) == [0, 1, 2]).all()
    for order in itertools.permutations(range(3)):
        first, second = order[:2]
        probability = weights[first] / 8 * weights[second] / (8 - weights[first])
        share = (y == order).all(axis=1).mean()
        assert abs(share - probability) < 6 * np.sqrt(probability / COUNT)


def test_draws_from_several_populations_have_the_asked_shape() -> None:
    x = np.array([[1.0, 2, 3], [-1, -2, -3]])
    y = value(F.random_choice(x, np.ones((2, 3)), (4, 5)))
    assert y.shape == (2, 4, 5)
    assert (y[0] > 0).all()
    assert (y[1] < 0).all()


def test_whole_numbers_are_chosen_with_whole_weights() -> None:
    y = value(F.random_choice(np.arange(3, dtype=np.int32), np.array([0, 3, 0]), (2,)))
    assert y.dtype == np.int32
    assert y.tolist() == [1, 1]


def test_each_run_draws_anew_and_a_seed_repeats_the_draws() -> None:
    def build(seed: int) -> Variable:
        return F.random_choice(np.arange(100), np.ones(100), (20,), seed=seed)

    y = build(5)
    first = [value(y) for _ in range(3)]
    assert len({draw.tobytes() for draw in first}) == 3
    again = build(5)
    np.testing.assert_array_equal([value(again) for _ in range(3)], first)


def test_elements_and_weights_get_the_gradients_of_their_draws() -> None:
    x, w = leaf([[1, 2, 3], [4, 5, 6]]), leaf([[1, 1, 1], [0, 1, 0]])
    y = F.random_choice(x, w, (50,))
    y.forward()
    y.backward(np.full((2, 50), 2.0))
    counts = [[(row == number).sum() for number in of] for row, of in zip(y.d, x.d, strict=True)]
    np.testing.assert_array_equal(x.g, 2.0 * np.array(counts))
    np.testing.assert_array_equal(w.g, x.g)


def test_what_is_recomputed_chooses_the_same() -> None:
    x = leaf(np.arange(1, 9))
    with recompute():
        y = F.random_choice(F.mul_scalar(x, 1.0), np.ones(8), (5,))
        z = F.mul(y, y)
    total = F.sum(z)
    total.forward(clear_buffer=True)
    total.backward()
    assert float((x.g * x.d).sum()) == 2 * float(total.d)


def test_dynamic_graph_gives_the_numbers_of_the_static_one() -> None:
    static = value(F.random_choice(np.arange(100), np.ones(100), (20,)))
    random.seed(7)
    with auto_forward():
        np.testing.assert_array_equal(
            F.random_choice(np.arange(100), np.ones(100), (20,)).d, static
        )


@pytest.mark.parametrize(
    ("weights", "given", "text"),
    [
        ([1, -2, 1], {}, r"weight -2\.0 must"),
        ([1, np.nan, 1], {}, "weight nan must"),
        ([0, 0, 0], {}, r"sum to 0\.0"),
        ([1, 1, 0], {"shape": (3,), "replace": False}, "a population has 2"),
    ],
)
def test_weights_that_allow_no_choice_are_named(
    weights: list[float], given: dict[str, Any], text: str
) -> None:
    y = F.random_choice(np.arange(3), Variable.from_numpy_array(np.array(weights)), **given)
    with pytest.raises(OperatorError, match=text):
        y.forward()


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="same shape"):
        F.random_choice(np.ones(3), np.ones(4))
    with pytest.raises(ShapeError, match="4 draws exceed the population of 3"):
        F.random_choice(np.ones(3), np.ones(3), (2, 2), replace=False)
    with pytest.raises(OperatorError, match="negative length"):
        F.random_choice(np.ones(3), np.ones(3), (-1,))
