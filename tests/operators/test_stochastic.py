"""Random numbers: their seeds, their keys, their distributions, and dropout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core import random
from nnl_core.errors import ConfigurationError, OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.execute import forward_all
from nnl_core.graph.modes import auto_forward, recompute
from nnl_core.graph.variable import Variable

COUNT = 40_000

DRAWS: dict[str, Callable[..., Variable]] = {
    "rand": F.rand,
    "randn": F.randn,
    "randint": lambda **given: F.randint(0, 1000, **given),
    "rand_binomial": lambda **given: F.rand_binomial(50, 0.5, **given),
    "rand_beta": F.rand_beta,
    "rand_gamma": F.rand_gamma,
}


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    before = random.get_state()
    random.seed(7)
    yield
    random.set_state(before)


def values(y: Variable) -> np.ndarray:
    y.forward()
    return np.array(y.d)


# Seeds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAWS)
def test_same_seed_gives_the_same_numbers_bit_for_bit(name: str) -> None:
    first = values(DRAWS[name](shape=(50,)))
    random.seed(7)
    np.testing.assert_array_equal(values(DRAWS[name](shape=(50,))), first)


@pytest.mark.parametrize("name", DRAWS)
def test_another_seed_gives_other_numbers(name: str) -> None:
    first = values(DRAWS[name](shape=(50,)))
    random.seed(8)
    assert (values(DRAWS[name](shape=(50,))) != first).any()


def test_each_run_draws_anew() -> None:
    y = F.rand(shape=(50,))
    assert len({values(y).tobytes() for _ in range(5)}) == 5


def test_two_nodes_draw_different_numbers_in_one_run() -> None:
    x, y = F.rand(shape=(50,)), F.rand(shape=(50,))
    forward_all([x, y])
    assert not (x.d == y.d).any()


def test_nodes_are_not_correlated() -> None:
    draws = [F.randn(shape=(COUNT,)) for _ in range(4)]
    forward_all(draws)
    correlations = np.corrcoef([y.d for y in draws]) - np.eye(4)
    assert abs(correlations).max() < 6 / np.sqrt(COUNT)


def test_runs_are_not_correlated() -> None:
    y = F.randn(shape=(COUNT,))
    correlations = np.corrcoef([values(y) for _ in range(4)]) - np.eye(4)
    assert abs(correlations).max() < 6 / np.sqrt(COUNT)


def test_nodes_of_one_run_share_one_step_of_the_counter() -> None:
    x, y, z = F.rand(shape=(3,)), F.randn(shape=(3,)), F.dropout(Variable((3,)))
    forward_all([x, y, z])
    assert int(random.counter.d) == 1
    z.forward()
    assert int(random.counter.d) == 2


def test_a_users_seed_gives_the_same_numbers_whatever_was_drawn_before() -> None:
    x = F.rand(shape=(50,), seed=3)
    first = [values(x) for _ in range(3)]
    random.seed(99)
    values(F.rand(shape=(5,)))
    y = F.rand(shape=(50,), seed=3)
    np.testing.assert_array_equal([values(y) for _ in range(3)], first)


def test_a_users_seed_is_another_sequence_than_the_global_seed_of_that_number() -> None:
    random.seed(3)
    x, y = F.rand(shape=(50,)), F.rand(shape=(50,), seed=3)
    forward_all([x, y])
    assert not (x.d == y.d).any()


def test_static_and_dynamic_graphs_give_the_same_numbers() -> None:
    def build() -> list[Variable]:
        x = F.rand(shape=(9,))
        return [x, F.add(x, F.randn(shape=(9,))), F.dropout(F.rand(1, 2, shape=(9,)))]

    static = build()
    forward_all(static)
    random.seed(7)
    with auto_forward():
        dynamic = build()
    for one, other in zip(static, dynamic, strict=True):
        np.testing.assert_array_equal(one.d, other.d)


def test_dynamic_nodes_differ_from_call_to_call() -> None:
    with auto_forward():
        draws = {np.array(F.rand(shape=(9,)).d).tobytes() for _ in range(5)}
    assert len(draws) == 5


def test_state_goes_through_json_and_resumes_every_sequence() -> None:
    y = F.rand(shape=(9,))
    values(y)
    random.prng.normal()
    state = json.loads(json.dumps(random.get_state()))

    def go_on() -> list[Any]:
        later = F.rand(shape=(9,))  # made after the state was taken
        return [values(y), values(later), values(y), random.prng.normal(size=3)]

    expected = go_on()
    random.set_state(state)
    for one, other in zip(go_on(), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_seed_resets_the_generator_that_was_already_handed_out() -> None:
    handed_out = random.prng
    random.seed(5)
    first = handed_out.normal(size=3)
    random.seed(5)
    np.testing.assert_array_equal(random.prng.normal(size=3), first)


@pytest.mark.parametrize("wrong", [-1, 1.5, "x", True, None])
def test_seed_refuses_what_is_no_number_of_at_least_0(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="at least 0"):
        random.seed(wrong)


@pytest.mark.parametrize("wrong", [{}, {"seed": 1, "nodes": 0, "counter": 0, "prng": {}}])
def test_a_wrong_state_is_refused_and_changes_nothing(wrong: dict[str, Any]) -> None:
    before = random.get_state()
    with pytest.raises(ConfigurationError, match="no random state"):
        random.set_state(wrong)
    assert random.get_state() == before


def test_a_negative_seed_of_a_node_is_refused() -> None:
    with pytest.raises(OperatorError, match="seed -2"):
        F.rand(seed=-2)


# Distributions: bounds of six standard errors ----------------------------------------------------


@pytest.mark.parametrize(
    ("y", "mean", "deviation"),
    [
        (lambda: F.rand(-1, 3, (COUNT,)), 1, 4 / np.sqrt(12)),
        (lambda: F.randn(2, 0.5, (COUNT,)), 2, 0.5),
        (lambda: F.randint(-2, 5, (COUNT,)), 1, 2),
        (lambda: F.rand_binomial(10, 0.2, (COUNT,)), 2, np.sqrt(1.6)),
        (lambda: F.rand_beta(2, 3, (COUNT,)), 0.4, 0.2),
        (lambda: F.rand_gamma(4, 0.5, (COUNT,)), 2, 1),
    ],
    ids=["rand", "randn", "randint", "rand_binomial", "rand_beta", "rand_gamma"],
)
def test_mean_and_deviation_are_those_of_the_distribution(
    y: Callable[[], Variable], mean: float, deviation: float
) -> None:
    drawn = values(y()).astype(np.float64)
    assert abs(drawn.mean() - mean) < 6 * deviation / np.sqrt(COUNT)
    assert abs(drawn.std() - deviation) < 0.05 * deviation


def test_rand_stays_below_its_upper_bound_where_rounding_would_reach_it() -> None:
    drawn = values(F.rand(1, 1 + 2**-22, (COUNT,)))
    assert drawn.min() >= 1
    assert drawn.max() < np.float32(1 + 2**-22)


def test_randint_takes_each_integer_of_its_range() -> None:
    y = F.randint(-1, 3, (1000,))
    assert sorted(set(values(y).tolist())) == [-1, 0, 1, 2]
    assert y.dtype == np.int32


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: F.rand(2, 1),
        lambda: F.randn(0, -1),
        lambda: F.randint(3, 3),
        lambda: F.randint(0, 2**40),
        lambda: F.rand_binomial(-1),
        lambda: F.rand_binomial(1, 1.5),
        lambda: F.rand_beta(0, 1),
        lambda: F.rand_gamma(1, -1),
        lambda: F.rand(shape=(-1,)),
        lambda: F.dropout(Variable((2,)), p=1),
        lambda: F.dropout(Variable((2,)), p=-0.1),
    ],
)
def test_parameters_outside_their_range_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(OperatorError, match=r"must|negative"):
        wrong()


# Dropout -----------------------------------------------------------------------------------------


def ones(*shape: int) -> Variable:
    return Variable.from_numpy_array(np.ones(shape, np.float32), need_grad=True)


def test_dropout_scales_what_stays_and_drops_the_rest() -> None:
    x = ones(COUNT)
    drawn = values(F.dropout(x, p=0.2))
    assert set(np.unique(drawn).tolist()) == {0.0, 1.25}
    dropped = (drawn == 0).mean()
    assert abs(dropped - 0.2) < 6 * np.sqrt(0.2 * 0.8 / COUNT)


def test_dropout_of_nothing_is_the_input() -> None:
    x = Variable.from_numpy_array(np.random.default_rng(0).normal(size=(7, 5)))
    np.testing.assert_array_equal(values(F.dropout(x, p=0)), x.d)


def test_dropout_gives_its_mask_as_zeros_and_ones() -> None:
    y, mask = F.dropout(ones(100), p=0.5, output_mask=True)
    forward_all([y, mask])
    assert mask.dtype == np.float32
    np.testing.assert_array_equal(y.d, 2 * mask.d)


def test_dropout_lets_nan_through_where_it_drops() -> None:
    x = Variable.from_numpy_array(np.full(100, np.nan, np.float32))
    assert np.isnan(values(F.dropout(x))).all()


def test_dropout_is_for_floating_numbers() -> None:
    with pytest.raises(ShapeError, match="int64"):
        F.dropout(Variable((2,), dtype=np.int64))


def test_gradient_of_dropout_drops_the_same_elements() -> None:
    x = ones(100)
    y = F.dropout(x, p=0.5)
    for _ in range(3):
        y.forward()
        x.grad.zero()
        y.backward()
        np.testing.assert_array_equal(x.g, y.d)


def test_gradient_of_the_gradient_of_dropout_drops_the_same_elements() -> None:
    x = ones(100)
    y = F.dropout(F.mul(F.mul(x, x), x), p=0.5)
    (first,) = grad(y, x)
    (second,) = grad(first, x)
    forward_all([y, first, second])
    np.testing.assert_array_equal(first.d, 3 * y.d)
    np.testing.assert_array_equal(second.d, 6 * y.d)


@pytest.mark.parametrize("clear", [{}, {"clear_no_need_grad": True}, {"clear_buffer": True}])
@pytest.mark.parametrize("dynamic", [False, True])
def test_dropout_that_is_recomputed_drops_the_same_elements(
    dynamic: bool, clear: dict[str, bool]
) -> None:
    x = ones(100)
    with auto_forward(dynamic):
        with recompute():
            y = F.dropout(F.mul_scalar(x, 1.0), p=0.5)
            z = F.mul(y, y)
        total = F.add_scalar(z, 1)
    for _ in range(3):
        total.forward(**clear)
        x.grad.zero()
        total.backward(clear_buffer=bool(clear))
        # z = y * y and dz/dx = 2 y * dy/dx, where y = 2 x or 0.
        np.testing.assert_array_equal(x.g, 2 * (total.d - 1))


def test_dropout_draws_anew_although_it_was_recomputed() -> None:
    x = ones(100)
    with recompute():
        y = F.mul_scalar(F.dropout(x), 1)
    z = F.add_scalar(y, 0.5)
    drawn = set()
    for _ in range(3):
        drawn.add(values(z).tobytes())
        z.backward()
    assert len(drawn) == 3
    assert int(random.counter.d) == 3
