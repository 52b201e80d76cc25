"""Tests for random numbers on a GPU: those that NumPy's generators draw."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnl_core.gpu.families import stochastic
from nnl_core.graph.operator import Array

Compute = Callable[..., tuple[Array, ...]]

KEY = np.array([11, 2**63 + 5], np.uint64)


def generator() -> np.random.Generator:
    """Return NumPy's generator of the key."""
    return np.random.Generator(np.random.Philox(key=KEY))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 4099])
def test_uniform_numbers_are_those_of_numpy_bit_for_bit(compute: Compute, size: int) -> None:
    (y,) = compute("nnl::rand", KEY, shape=(size,))
    assert y.tolist() == generator().random(size, np.float32).tolist()


def test_dropout_keeps_what_numpy_draws_above_the_probability(compute: Compute) -> None:
    y, mask = compute("nnl::dropout", np.ones(2003, np.float16), KEY, p=0.25)
    kept = generator().random(2003, np.float32) >= 0.25
    assert mask.tolist() == kept.tolist()
    assert y.tolist() == np.where(kept, np.float16(4 / 3), 0).tolist()


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_choices_are_those_that_numpy_finds_among_running_totals(
    compute: Compute, dtype: str
) -> None:
    w = np.random.default_rng(3).integers(0, 3, (3, 1000)).astype(dtype)  # sums are exact
    y, places = compute(
        "nnl::random_choice", np.arange(3000).reshape(3, 1000), w, KEY, shape=(7, 50), replace=True
    )
    totals, numbers = w.cumsum(1), generator().random((3, 350))
    found = [
        np.searchsorted(row, u * row[-1], "right") for row, u in zip(totals, numbers, strict=True)
    ]
    np.testing.assert_array_equal(places.reshape(3, 350), found + 1000 * np.arange(3)[:, None])
    np.testing.assert_array_equal(y, places)


DRAWS: dict[str, tuple[str, dict[str, float], Callable[[np.random.Generator, int], Array]]] = {
    "normal": ("randn", {}, lambda g, n: g.standard_normal(n, np.float32)),
    "small integers": (
        "randint", {"low": -7, "high": 3}, lambda g, n: g.integers(-7, 3, n, np.int32)
    ),
    "integers, half of them rejected": (
        "randint", {"low": -(2**31), "high": 1}, lambda g, n: g.integers(-(2**31), 1, n, np.int32)
    ),
    "few successes": ("rand_binomial", {"n": 9, "p": 0.25}, lambda g, n: g.binomial(9, 0.25, n)),
    "few failures": ("rand_binomial", {"n": 40, "p": 0.9}, lambda g, n: g.binomial(40, 0.9, n)),
    "many successes": (
        "rand_binomial", {"n": 90, "p": 0.4}, lambda g, n: g.binomial(90, 0.4, n)
    ),
    "very many successes": (
        "rand_binomial", {"n": 90000, "p": 0.7}, lambda g, n: g.binomial(90000, 0.7, n)
    ),
    "gamma below 1": ("rand_gamma", {"k": 0.3, "theta": 2.0}, lambda g, n: g.gamma(0.3, 2, n)),
    "exponential": ("rand_gamma", {"k": 1.0, "theta": 2.0}, lambda g, n: g.gamma(1, 2, n)),
    "gamma above 1": ("rand_gamma", {"k": 2.5, "theta": 1.0}, lambda g, n: g.gamma(2.5, 1, n)),
    "beta below 1": (
        "rand_beta", {"alpha": 0.5, "beta": 0.4}, lambda g, n: g.beta(0.5, 0.4, n)
    ),
    "beta near 0": (
        "rand_beta", {"alpha": 1e-3, "beta": 2e-3}, lambda g, n: g.beta(1e-3, 2e-3, n)
    ),
    "beta above 1": ("rand_beta", {"alpha": 2.0, "beta": 0.7}, lambda g, n: g.beta(2, 0.7, n)),
}  # fmt: skip


@pytest.mark.parametrize("name, given, draw", DRAWS.values(), ids=DRAWS.keys())
def test_rejecting_draws_take_the_same_words_as_numpy(
    compute: Compute,
    name: str,
    given: dict[str, float],
    draw: Callable[[np.random.Generator, int], Array],
) -> None:
    """One word more or less would make all numbers after it others: three blocks agree."""
    (y,) = compute(f"nnl::{name}", KEY, shape=(5001,), **given)
    expected = draw(generator(), 5001).astype(y.dtype)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize(
    "name, given, value",
    [
        ("randint", {"low": -4, "high": -3}, -4),
        ("rand_binomial", {"n": 0}, 0),
        ("rand_binomial", {"n": 3, "p": 0.0}, 0),
    ],
)
def test_draws_of_one_result_have_it(
    compute: Compute, name: str, given: dict[str, float], value: int
) -> None:
    (y,) = compute(f"nnl::{name}", KEY, shape=(5,), **given)
    assert y.tolist() == [value] * 5


def test_bounds_of_integers_may_be_those_of_32_bits(compute: Compute) -> None:
    (y,) = compute("nnl::randint", KEY, shape=(300,), low=-(2**31), high=2**31)
    expected = generator().integers(-(2**31), 2**31, 300, np.int32)
    assert y.tolist() == expected.tolist()


@pytest.fixture
def blocks_begin_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stochastic, "WARM", 0)


@pytest.mark.usefixtures("blocks_begin_anywhere")
def test_blocks_that_begin_within_a_draw_are_walked_again(compute: Compute) -> None:
    (y,) = compute("nnl::rand_gamma", KEY, shape=(4000,), k=0.4, theta=1.0)
    np.testing.assert_allclose(y, generator().gamma(0.4, 1, 4000), rtol=1e-5)


@pytest.fixture
def too_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stochastic.Draw, "words_taken", lambda draw: 0.0)


@pytest.mark.usefixtures("too_few_words")
def test_numbers_beyond_the_words_that_were_walked_are_drawn_all_the_same(
    compute: Compute,
) -> None:
    (y,) = compute("nnl::randn", KEY, shape=(12000,))
    np.testing.assert_allclose(y, generator().standard_normal(12000, np.float32), rtol=1e-5)


def test_layers_of_normal_numbers_are_those_by_which_numpy_draws() -> None:
    """A number just below ``kept`` costs NumPy one word, and one just above costs more."""
    layers = stochastic.normal_layers(23)
    for layer in (1, 2, 3, 100, 254, 255):
        for size, at_once in ((layers.kept[layer] - 1, True), (layers.kept[layer], False)):
            if size < 0:
                continue
            source = np.random.Philox(key=0)
            state = source.state
            bits = layer | size << 9 | 0x80000000 << 32
            state["buffer"], state["buffer_pos"] = np.array([bits, 0, 0, 0], np.uint64), 0
            source.state = state
            np.random.Generator(source).standard_normal(dtype=np.float32)
            after = source.state
            assert ((after["buffer_pos"], after["has_uint32"]) == (1, 1)) == at_once
