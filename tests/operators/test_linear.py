"""Products of matrices, and sums of products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.operator import lookup
from nnl_core.graph.variable import Variable


def leaf(*shape: int, dtype: Any = np.float64, seed: int = 0) -> Variable:
    """Return random numbers, the gradient wanted."""
    values = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return Variable.from_numpy_array(values, need_grad=True)


def gradients(y: Variable, weights: np.ndarray, *xs: Variable) -> list[np.ndarray]:
    y.forward()
    y.backward(weights)
    return [np.array(x.g) for x in xs]


# Matrix products ---------------------------------------------------------------------------------

LENGTHS = st.integers(0, 4)


@st.composite
def matmul_shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    inner = draw(LENGTHS)
    batch = draw(st.lists(LENGTHS, max_size=3))
    first = [draw(st.sampled_from((n, 1))) for n in batch][draw(st.integers(0, len(batch))) :]
    second = [draw(st.sampled_from((n, 1))) for n in batch][draw(st.integers(0, len(batch))) :]
    left = (inner,) if draw(st.booleans()) and not first else (*first, draw(LENGTHS), inner)
    right = (inner,) if draw(st.booleans()) and not second else (*second, inner, draw(LENGTHS))
    return left, right


@settings(deadline=None, max_examples=60)
@given(matmul_shapes())
def test_matmul_is_numpys(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = (leaf(*shape, seed=n) for n, shape in enumerate(shapes))
    z = x @ y
    np.testing.assert_allclose(z.d, np.matmul(x.d, y.d), rtol=1e-12, atol=1e-12)
    assert z.shape == np.matmul(x.d, y.d).shape


@settings(deadline=None, max_examples=60)
@given(matmul_shapes())
def test_the_gradient_of_matmul_is_adjoint_to_it(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    x, y = (leaf(*shape, seed=n) for n, shape in enumerate(shapes))
    z = x @ y
    g = np.random.default_rng(5).normal(size=z.shape)
    dx, dy = gradients(z, g, x, y)
    # z is linear in x and in y: <g, z> = <dx, x> = <dy, y>
    product = (g * z.d).sum()
    np.testing.assert_allclose([(dx * x.d).sum(), (dy * y.d).sum()], product, rtol=1e-9, atol=1e-9)


def test_matmul_takes_an_array_on_either_side() -> None:
    x, a = leaf(2, 3), np.arange(6.0).reshape(3, 2)
    np.testing.assert_allclose((x @ a).d, x.d @ a)
    np.testing.assert_allclose((a @ x).d, a @ x.d)


@pytest.mark.parametrize("shapes", [((), (2, 2)), ((2,), ())])
def test_matmul_of_a_scalar_says_to_multiply(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ShapeError, match=r"multiply a scalar with \*"):
        leaf(*shapes[0]) @ leaf(*shapes[1])


def test_matmul_names_the_lengths_that_differ() -> None:
    with pytest.raises(ShapeError, match=r"length 3, .* 4: input shapes \(2, 3\), \(4, 5\)"):
        leaf(2, 3) @ leaf(4, 5)


@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_batch_matmul_broadcasts_transposed_operands(transpose_a: int, transpose_b: int) -> None:
    a = leaf(2, 1, *((4, 3) if transpose_a else (3, 4)))
    b = leaf(1, 5, *((6, 4) if transpose_b else (4, 6)), seed=1)
    left = a.d.swapaxes(-1, -2) if transpose_a else a.d
    right = b.d.swapaxes(-1, -2) if transpose_b else b.d
    y = F.batch_matmul(a, b, bool(transpose_a), bool(transpose_b))
    np.testing.assert_allclose(y.d, left @ right)


def test_batch_matmul_needs_matrices() -> None:
    with pytest.raises(ShapeError, match=r"matrices need two axes or more, got \(3,\)"):
        F.batch_matmul(leaf(3), leaf(3, 2))


def test_integer_products_do_not_overflow_their_inputs_width() -> None:
    x = Variable.from_numpy_array(np.full((1, 300), 100, np.int8))
    y = x @ np.full((300, 1), 100, np.int8)
    assert (y.dtype, y.d.item()) == (np.int64, 3_000_000)


def test_half_precision_products_are_summed_in_single_precision() -> None:
    # 4096 ones would stop at 2048 in half precision, where 2048 + 1 is 2048.
    ones = Variable.from_numpy_array(np.ones((1, 4096), np.float16))
    y = F.batch_matmul(ones, ones, transpose_b=True)
    assert (y.dtype, y.d.item()) == (np.float16, 4096)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_products_keep_the_floating_dtype(dtype: Any) -> None:
    x, w = leaf(2, 3, dtype=dtype), leaf(3, 2, dtype=dtype)
    assert F.affine(x, w, leaf(2, dtype=dtype)).dtype == dtype
    assert F.einsum(x, w, equation="ij,jk").dtype == dtype


def test_a_gradient_that_repeats_one_number_multiplies_like_any_other() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    total = F.sum_to(F.affine(x, w), shape=())
    dx, dw = gradients(total, np.array(2.0), x, w)
    np.testing.assert_allclose(dx, 2 * np.broadcast_to(w.d.sum(1), (3, 4)))
    np.testing.assert_allclose(dw, 2 * np.broadcast_to(x.d.sum(0)[:, None], (4, 5)))


# Affine ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base_axis", [0, 1, 2, -1, -2])
def test_affine_flattens_the_axes_from_base_axis_on(base_axis: int) -> None:
    x = leaf(2, 3, 4)
    axis = base_axis % 3
    inputs = int(np.prod(x.shape[axis:]))
    w, b = leaf(inputs, 5, 2, seed=1), leaf(5, 2, seed=2)
    expected = np.tensordot(x.d.reshape(*x.shape[:axis], inputs), w.d, 1) + b.d
    np.testing.assert_allclose(F.affine(x, w, b, base_axis).d, expected)


def test_affine_passes_gradients_to_input_weight_and_bias() -> None:
    x, w, b = leaf(3, 4), leaf(4, 5, seed=1), leaf(5, seed=2)
    g = np.random.default_rng(3).normal(size=(3, 5))
    dx, dw, db = gradients(F.affine(x, w, b), g, x, w, b)
    np.testing.assert_allclose(dx, g @ w.d.T)
    np.testing.assert_allclose(dw, x.d.T @ g)
    np.testing.assert_allclose(db, g.sum(0))


def test_affine_of_an_empty_batch_gives_a_weight_gradient_of_zero() -> None:
    x, w, b = leaf(0, 4), leaf(4, 2), leaf(2)
    y = F.affine(x, w, b)
    dw, db = gradients(y, np.zeros((0, 2)), w, b)
    assert y.shape == (0, 2)
    assert not dw.any()
    assert not db.any()


@pytest.mark.parametrize(
    ("shapes", "sentence"),
    [
        (((2, 3), (4, 5)), "input has 3 elements from axis 1 on, weight expects 4"),
        (((2, 3), (3,)), r"weight has shape \(3,\)"),
        (((2, 3), (3, 5), (4,)), r"bias has shape \(4,\), weight expects \(5,\)"),
    ],
)
def test_affine_names_what_does_not_fit(shapes: tuple[tuple[int, ...], ...], sentence: str) -> None:
    with pytest.raises(ShapeError, match=sentence):
        F.affine(*(leaf(*shape) for shape in shapes))


def test_affine_counts_a_multiply_add_for_each_weight_and_row() -> None:
    node = F.affine(leaf(7, 3), leaf(3, 5)).parent
    assert node is not None
    count = node.operator.count_multiply_adds(node.input_specs, node.specs, node.attributes)
    assert count == 7 * 3 * 5


# Dot ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shapes",
    [
        ((), ()),
        ((), (2, 3)),
        ((2, 3), ()),
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 2)),
        ((3,), (4, 3, 2)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (4, 3, 2)),
        ((5, 2, 3), (6, 4, 3, 2)),
    ],
)
def test_dot_is_numpys(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (leaf(*shape, seed=n) for n, shape in enumerate(shapes))
    np.testing.assert_allclose(F.dot(a, b).d, np.dot(a.d, b.d))


def test_dot_makes_a_given_variable_the_result() -> None:
    out = Variable((2, 4), dtype=np.float64)
    a, b = leaf(2, 3), leaf(3, 4)
    assert F.dot(a, b, out) is out
    np.testing.assert_allclose(out.d, a.d @ b.d)


def test_dot_rejects_an_output_of_another_shape() -> None:
    with pytest.raises(ShapeError, match=r"out is float32\(4, 2\) and the result float64\(2, 4\)"):
        F.dot(leaf(2, 3), leaf(3, 4), Variable((4, 2)))


# Einsum ------------------------------------------------------------------------------------------


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """Draw an equation over few letters, so that they repeat, and shapes for it."""
    sizes = {letter: draw(st.integers(1, 3)) for letter in "abcd"}
    dots = draw(st.lists(st.integers(1, 3), max_size=2))
    terms, shapes = [], []
    for _ in range(draw(st.integers(1, 3))):
        letters = draw(st.lists(st.sampled_from("abcd"), max_size=3))
        shape = [sizes[letter] for letter in letters]
        term = "".join(letters)
        if draw(st.booleans()):
            at = draw(st.integers(0, len(letters)))
            own = [draw(st.sampled_from((n, 1))) for n in dots]
            term = f"{term[:at]}...{term[at:]}"
            shape[at:at] = own[draw(st.integers(0, len(own))) :]
        terms.append(term)
        shapes.append(tuple(shape))
    inputs = ",".join(terms)
    if draw(st.booleans()):
        return inputs, shapes
    present = sorted({letter for letter in inputs if letter.isalpha()})
    output = "".join(draw(st.lists(st.sampled_from(present), unique=True)) if present else [])
    return f"{inputs}->{'...' if '...' in inputs else ''}{output}", shapes


@settings(deadline=None, max_examples=60)
@given(equations())
def test_einsum_is_numpys(case: tuple[str, list[tuple[int, ...]]]) -> None:
    equation, shapes = case
    xs = [leaf(*shape, seed=n) for n, shape in enumerate(shapes)]
    y = F.einsum(*xs, equation=equation)
    expected = np.einsum(equation, *(x.d for x in xs))
    assert y.shape == expected.shape
    np.testing.assert_allclose(y.d, expected, rtol=1e-10, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(equations())
def test_the_gradient_of_einsum_is_adjoint_to_it(case: tuple[str, list[tuple[int, ...]]]) -> None:
    equation, shapes = case
    xs = [leaf(*shape, seed=n) for n, shape in enumerate(shapes)]
    y = F.einsum(*xs, equation=equation)
    g = np.random.default_rng(9).normal(size=y.shape)
    for x, dx in zip(xs, gradients(y, g, *xs), strict=True):
        # y is linear in each operand, so the change along any direction is <dx, direction>.
        direction = np.random.default_rng(8).normal(size=x.shape)
        operands = [direction if v is x else v.d for v in xs]
        change = (g * np.einsum(equation, *operands)).sum()
        np.testing.assert_allclose((dx * direction).sum(), change, rtol=1e-8, atol=1e-10)


def test_einsum_puts_the_gradient_of_a_trace_on_the_diagonal() -> None:
    x = leaf(3, 3)
    (dx,) = gradients(F.einsum(x, equation="ii"), np.array(2.0), x)
    np.testing.assert_array_equal(dx, 2 * np.eye(3))


def test_einsum_has_a_gradient_of_its_gradient() -> None:
    # y = (sum of the diagonal)^2, so that d2y / dx_ii dx_jj = 2 and all else is 0.
    x = leaf(2, 2)
    trace = F.einsum(x, equation="ii->")
    (dx,) = grad(trace * trace, x)
    (second,) = grad(F.getitem(dx, (0, 0)), x)
    np.testing.assert_array_equal(second.d, 2 * np.eye(2))


def test_einsum_takes_the_equation_first_and_ignores_spaces() -> None:
    x, y = leaf(2, 3), leaf(3, 4)
    np.testing.assert_allclose(F.einsum("i j, j k -> k i", x, y).d, (x.d @ y.d).T)


def test_einsum_sums_over_an_ellipsis_that_the_result_leaves_out() -> None:
    x = leaf(2, 3, 4)
    np.testing.assert_allclose(F.einsum(x, equation="...i->i").d, x.d.sum((0, 1)))


@pytest.mark.parametrize(
    ("equation", "shapes", "sentence"),
    [
        ("ij", [(2, 3), (3, 4)], "has 1 operands and 2 are given"),
        ("ij,jk", [(2, 3), (4, 5)], "'j' stands for 3 and, in operand 1, for 4"),
        ("ii", [(2, 3)], "lengths 2 and 3 under one letter, 'i'"),
        ("ijk", [(2, 3)], "'ijk' of equation 'ijk' does not fit an operand of 2 axes"),
        ("ij->k", [(2, 3)], "'k' of the result is in no operand"),
        ("ij->ii", [(2, 3)], "'i' is in the result twice"),
        ("i+j", [(2, 3)], "may hold letters and one ellipsis"),
        ("...i...", [(2, 3)], "may hold letters and one ellipsis"),
    ],
)
def test_einsum_names_what_does_not_fit(
    equation: str, shapes: list[tuple[int, ...]], sentence: str
) -> None:
    with pytest.raises(ShapeError, match=sentence):
        F.einsum(*(leaf(*shape) for shape in shapes), equation=equation)


def test_einsum_without_operands_is_an_error() -> None:
    with pytest.raises(ShapeError, match="needs an operand"):
        F.einsum(equation="ij")


def test_einsum_counts_the_products_of_its_cheapest_order() -> None:
    # (2 x 100)(100 x 100)(100 x 1) from the right: 100 * 100 + 2 * 100
    operator = lookup("nnl::einsum")
    specs = [leaf(*shape).spec for shape in ((2, 100), (100, 100), (100, 1))]
    attributes = {"equation": "ij,jk,kl->il"}
    outputs = operator.infer_specs(specs, attributes)
    assert operator.count_multiply_adds(specs, outputs, attributes) == 10_200
