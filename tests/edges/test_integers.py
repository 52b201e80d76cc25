"""Integers at both ends of each width, beyond what floating numbers hold; narrow positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnl_core import F, Variable

SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
each_integer = pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])

Evaluate = Callable[[Callable[[], Any]], np.ndarray]


def ends(dtype: str) -> np.ndarray:
    """Return the smallest and the largest integer of a width."""
    return np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)


def exactly(result: np.ndarray, expected: list[int]) -> None:
    """Compare as Python's integers, which have no width."""
    assert [int(one) for one in result.ravel()] == expected


@each_integer
@pytest.mark.parametrize("name", ["relu", "floor", "ceil", "round", "identity", "cummax", "sort"])
def test_what_changes_no_integer_changes_none_at_the_ends(
    name: str, dtype: str, evaluate: Evaluate
) -> None:
    result = evaluate(lambda: getattr(F, name)(ends(dtype)))
    lowest, highest = map(int, ends(dtype))
    assert result.dtype == dtype
    exactly(result, [max(0, lowest) if name == "relu" else lowest, highest])


# Of the last number but one, the last, the first and the second.
EXTREMES: dict[str, tuple[Callable[[Variable], Any], str]] = {
    "max": (F.max, "H"),
    "min": (F.min, "L"),
    "sort": (F.sort, "LlhH"),
    "sort down": (lambda x: F.sort(x, reverse=True), "HhlL"),
    "topk": (lambda x: F.topk(x, 2)[0], "Hh"),
    "topk of the smallest": (lambda x: F.topk(x, 2, largest=False)[0], "Ll"),
    "cummax": (F.cummax, "hHHH"),
    "cummin": (F.cummin, "hhLL"),
    "unique": (F.unique, "LlhH"),
    "maximum2": (lambda x: F.maximum2(x[:2], x[2:]), "hH"),
    "minimum2": (lambda x: F.minimum2(x[:2], x[2:]), "Ll"),
    "where": (lambda x: F.where(F.greater(x, x[0]), x, x[3]), "lHll"),
    "gather": (lambda x: F.gather(x, F.argmax(x), axis=0), "H"),
}


@pytest.mark.parametrize(("build", "expected"), EXTREMES.values(), ids=EXTREMES)
@each_integer
def test_extremes_are_exact(
    dtype: str, build: Callable[[Variable], Any], expected: str, evaluate: Evaluate
) -> None:
    """Float64 would merge the two largest numbers of 64 bits."""
    lowest, highest = map(int, ends(dtype))
    named = {"h": highest - 1, "H": highest, "L": lowest, "l": lowest + 1}
    x = np.array([named[letter] for letter in "hHLl"], dtype)
    result = evaluate(lambda: build(Variable.from_numpy_array(x)))
    exactly(result, [named[letter] for letter in expected])


@each_integer
def test_clipping_to_within_the_ends_is_exact(dtype: str, evaluate: Evaluate) -> None:
    lowest, highest = map(int, ends(dtype))
    result = evaluate(lambda: F.clip(ends(dtype), lowest + 1, highest - 1))
    exactly(result, [lowest + 1, highest - 1])


@each_integer
def test_neighbours_at_the_ends_compare_exactly(dtype: str, evaluate: Evaluate) -> None:
    highest = int(ends(dtype)[1])
    x, y = np.array([highest - 1], dtype), np.array([highest], dtype)
    for name, expected in (("less", 1), ("less_equal", 1), ("greater", 0), ("greater_equal", 0)):
        assert evaluate(lambda name=name: getattr(F, name)(x, y)) == expected
        assert evaluate(lambda name=name: getattr(F, name + "_scalar")(x, highest)) == expected
    assert not evaluate(lambda: F.equal(x, y)) and evaluate(lambda: F.not_equal(x, y))
    assert not evaluate(lambda: F.equal_scalar(x, highest))


def test_signed_and_unsigned_compare_as_the_numbers_they_are(evaluate: Evaluate) -> None:
    minus_one, huge = np.array([-1]), np.array([2**64 - 1], np.uint64)
    assert evaluate(lambda: F.less(minus_one, huge))
    assert not evaluate(lambda: F.equal(minus_one, huge))


@pytest.mark.parametrize("dtype", SIGNED)
def test_the_lowest_number_has_no_opposite_and_wraps_as_in_numpy(
    dtype: str, evaluate: Evaluate
) -> None:
    lowest, highest = map(int, ends(dtype))
    exactly(evaluate(lambda: F.neg(ends(dtype))), [lowest, -highest])
    exactly(evaluate(lambda: F.abs(ends(dtype))), [lowest, highest])


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_numbers_are_their_own_magnitude_and_negate_modulo_their_range(
    dtype: str, evaluate: Evaluate
) -> None:
    exactly(evaluate(lambda: F.neg(ends(dtype))), [0, 1])
    exactly(evaluate(lambda: F.abs(ends(dtype))), [0, int(ends(dtype)[1])])
    exactly(evaluate(lambda: F.sign(ends(dtype))), [1, 1])  # that of 0 is alpha


@each_integer
def test_sums_reach_beyond_the_width(dtype: str, evaluate: Evaluate) -> None:
    wide = "uint64" if dtype[0] == "u" else "int64"
    highest = int(ends(dtype)[1]) if dtype[-2:] != "64" else 2**61
    x = np.full(3, highest, dtype)
    for build, expected in (
        (F.sum, [3 * highest]),
        (F.cumsum, [highest, 2 * highest, 3 * highest]),
        (lambda x: F.cumsum(x, reverse=True, exclusive=True), [2 * highest, highest, 0]),
        (lambda x: F.matmul(x, np.ones((3, 1), dtype)), [3 * highest]),
        (lambda x: F.einsum("i->", x), [3 * highest]),
    ):
        result = evaluate(lambda build=build: build(x))
        assert result.dtype == wide
        exactly(result, expected)


def test_sums_of_both_ends_cancel_exactly(evaluate: Evaluate) -> None:
    for dtype in SIGNED:
        exactly(evaluate(lambda dtype=dtype: F.sum(ends(dtype))), [-1])
        exactly(evaluate(lambda dtype=dtype: F.cumsum(ends(dtype))), [int(ends(dtype)[0]), -1])


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_means_and_deviations_beyond_what_float32_tells_apart(
    dtype: str, evaluate: Evaluate
) -> None:
    x = ends(dtype)
    lowest, highest = map(int, x)
    assert evaluate(lambda: F.mean(x)) == np.float32((lowest + highest) / 2)
    close = np.array([highest, highest - 2], dtype)
    assert evaluate(lambda: F.var(close)) == 1
    assert evaluate(lambda: F.std(close)) == 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_means_and_deviations_are_those_of_the_numbers(dtype: str, evaluate: Evaluate) -> None:
    lowest, highest = map(int, ends(dtype))
    assert evaluate(lambda: F.mean(ends(dtype))) == np.float32((lowest + highest) / 2)
    assert evaluate(lambda: F.std(ends(dtype))) == np.float32((highest - lowest) / 2)
    assert evaluate(lambda: F.average_pooling(ends(dtype).reshape(1, 1, 2), (2,))) == np.float32(
        (lowest + highest) / 2
    )


def test_windows_of_integers_hold_what_their_width_does_not(evaluate: Evaluate) -> None:
    x = np.full((1, 1, 2, 2), 255, np.uint8)
    assert evaluate(lambda: F.sum_pooling(x, (2, 2))) == 4 * 255
    assert evaluate(lambda: F.convolution(x, x)) == 4 * 255**2
    low = np.full((1, 1, 2, 2), -128, np.int8)
    assert (evaluate(lambda: F.max_pooling(low, (2, 2), pad=(1, 1))) == -128).all()


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@each_integer
def test_floating_numbers_are_cast_towards_zero(
    dtype: str, source: str, evaluate: Evaluate
) -> None:
    values = [-1.9, -0.5, 0.5, 1.9, 100.0] if dtype in SIGNED else [0.5, 1.9, 100.0]
    exactly(evaluate(lambda: F.cast(np.array(values, source), dtype)), [int(v) for v in values])


@each_integer
def test_integers_are_cast_modulo_the_range(dtype: str, evaluate: Evaluate) -> None:
    values = [-1, 300, 2**40 + 7]
    lowest, count = int(ends(dtype)[0]), 2 ** np.iinfo(dtype).bits
    expected = [(value - lowest) % count + lowest for value in values]
    exactly(evaluate(lambda: F.cast(np.array(values), dtype)), expected)


def test_what_is_not_zero_is_true(evaluate: Evaluate) -> None:
    x = np.array([0.0, -0.0, 0.5, np.nan, -np.inf, 5e-324])
    np.testing.assert_array_equal(evaluate(lambda: F.cast(x, "bool")), [0, 0, 1, 1, 1, 1])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_bits_are_lost_or_shifted_in_as_zeros(dtype: str, evaluate: Evaluate) -> None:
    if dtype in UNSIGNED:
        highest = int(ends(dtype)[1])
        x, bits = np.array([highest], dtype), np.iinfo(dtype).bits
        for shift in (0, 1, bits - 1, bits, 200):
            left = evaluate(lambda shift=shift: F.bit_shift(x, shift))
            right = evaluate(lambda shift=shift: F.bit_shift(x, shift, "RIGHT"))
            exactly(left, [(highest << shift) % (highest + 1)])
            exactly(right, [highest >> shift])


@each_integer
def test_remainders_have_the_sign_of_the_divisor_or_of_the_dividend(
    dtype: str, evaluate: Evaluate
) -> None:
    x = ends(dtype)
    lowest, highest = map(int, x)
    seven = np.array([7], dtype)
    exactly(evaluate(lambda: F.mod2(x, seven)), [lowest % 7, highest % 7])
    exactly(evaluate(lambda: F.mod2(x, seven, fmod=True)), [-(-lowest % 7), highest % 7])


# Positions in integers too narrow for where they lead --------------------------------------------

NARROW: dict[str, tuple[str, Callable[[str], Any], int]] = {
    # The place among 90,000 elements is beyond the 8 bits of each position.
    "gather_nd": (
        "uint8",
        lambda d: F.gather_nd(np.arange(90_000).reshape(300, 300), np.array([[255], [254]], d)),
        255 * 300 + 254,
    ),
    "gather_nd of 16 bits": (
        "int16",
        lambda d: F.gather_nd(np.arange(90_000).reshape(300, 300), np.array([[299], [298]], d)),
        299 * 300 + 298,
    ),
    "scatter_nd": (
        "uint8",
        lambda d: F.argmax(F.scatter_nd(np.ones(1), np.array([[255], [254]], d), shape=(300, 300))),
        255 * 300 + 254,
    ),
    "getitem": (
        "uint8",
        lambda d: Variable.from_numpy_array(np.arange(90_000).reshape(300, 300))[
            np.array([255], d), np.array([254], d)
        ],
        255 * 300 + 254,
    ),
    "one_hot": (
        "uint8",
        lambda d: F.argmax(F.one_hot(np.array([[255, 254]], d), (300, 300))),
        255 * 300 + 254,
    ),
    "gather": (
        "uint8",
        lambda d: F.gather(np.arange(90_000).reshape(300, 300), np.array([255], d), axis=0)[0, 299],
        255 * 300 + 299,
    ),
    "gather_elements": (
        "uint8",
        lambda d: F.gather_elements(np.arange(90_000).reshape(300, 300), np.full((1, 300), 255, d))[
            0, 299
        ],
        255 * 300 + 299,
    ),
    "embed": (
        "uint8",
        lambda d: F.embed(np.array([255], d), np.arange(90_000).reshape(300, 300))[0, 299],
        255 * 300 + 299,
    ),
    "scatter_elements": (
        "uint8",
        lambda d: F.argmax(
            F.scatter_elements(np.zeros((300, 300)), np.array([[255]], d), np.ones((1, 1)))
        ),
        255 * 300,
    ),
    "scatter_add": (
        "uint8",
        lambda d: F.argmax(
            F.scatter_add(np.zeros((300, 300)), np.array([[255]], d), np.ones((1, 1)), axis=0)
        ),
        255 * 300,
    ),
    "bool_gather": (
        "uint8",
        lambda d: F.bool_gather(np.arange(512), np.where(np.arange(512) == 511, 255, 0).astype(d)),
        511,
    ),
    "confusion_matrix": (
        "uint8",
        lambda d: F.argmax(F.confusion_matrix(np.eye(300)[[254]], np.array([[255]], d))),
        255 * 300 + 254,
    ),
}


@pytest.mark.parametrize(("dtype", "build", "place"), NARROW.values(), ids=NARROW)
def test_narrow_positions_lead_to_the_right_place(
    dtype: str, build: Callable[[str], Any], place: int, evaluate: Evaluate
) -> None:
    assert int(evaluate(lambda: build(dtype)).item()) == place


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_lengths_in_narrow_integers_sum_beyond_their_width(dtype: str, evaluate: Evaluate) -> None:
    packed = evaluate(lambda: F.pack_padded_sequence(np.ones((100, 4)), np.full(4, 100, dtype)))
    assert packed.shape == (400,)
