"""Expressions are read without running them, and mean the same in every form."""

from __future__ import annotations

import math
import shutil
import subprocess

import numpy as np
import pytest
import sympy

from nnl_core.errors import OperatorError
from nnl_onn import expressions
from nnl_onn.expressions import (
    W,
    X,
    differentiate,
    evaluate_at,
    monotone,
    numpy_function,
    parse,
    planes,
    separated,
    statements,
)

TEXTS = [
    "w * x",
    "100 * w * x**3 - x / 7",
    "sin(3 * w * x) * exp(-w * x**2)",
    "w * log(maximum(1.5 + x, 0.01))",
    "abs(w - x) / (1 + abs(w * x))",
    "sqrt(x**2 + w**2) ** 1.5",
    "tanh(w) * cosh(x) - sinh(w * x) + tan(x / 4) - cos(pi * w)",
    "where(x > w / 3, x * w, minimum(x, w))",
    "heaviside(x - w) + sign(w) * e",
    "sinc(20 * w * x)",
]
PLACES = [(0.3, 0.7), (-0.8, 0.45), (0.9, -0.35), (-0.15, -0.6)]


@pytest.mark.parametrize("text", TEXTS)
def test_numpy_computes_what_the_expression_says(text):
    expression = parse(text)
    found = numpy_function(expression)(*np.array(PLACES).T)
    np.testing.assert_allclose(found, [evaluate_at(expression, at) for at in PLACES], rtol=1e-13)


@pytest.mark.parametrize("path", ["x", "w", "xw", "xx", "ww"])
@pytest.mark.parametrize("text", TEXTS)
def test_derivatives_are_limits_of_differences(text, path):
    outer = numpy_function(differentiate(parse(text), path[:-1]))
    inner = numpy_function(differentiate(parse(text), path))
    x, w = np.array(PLACES).T
    by_x, by_w = (1e-5, 0.0) if path[-1] == "x" else (0.0, 1e-5)
    numeric = (outer(x + by_x, w + by_w) - outer(x - by_x, w - by_w)) / 2e-5
    np.testing.assert_allclose(inner(x, w), numeric, rtol=1e-6, atol=1e-6)


def test_a_constant_has_the_shape_of_both():
    x, w = np.ones((2, 1)), np.ones(3)
    assert numpy_function(parse("2"))(x, w).shape == (2, 3)


def test_steps_have_no_slope():
    assert differentiate(parse("heaviside(w * x - 0.5) + sign(x)"), "x") == 0


def test_sinc_is_exact_where_its_quotient_is_not():
    t = np.array([0.0, 1e-9, -1e-4, 0.03, 0.999999, 1.000001, 40.0])
    value, slope, curve = (
        numpy_function(differentiate(parse("sinc(x)"), path))(t, t) for path in ("", "x", "xx")
    )
    exact = [sympy.sinc(X).diff(X, n) for n in range(3)]
    for found, n in zip((value, slope, curve), range(3), strict=True):
        limits = (1.0, 0.0, -1 / 3)
        right = [
            limits[n] if at == 0 else float(exact[n].subs(X, sympy.Float(at, 60)).evalf(60))
            for at in t
        ]
        np.testing.assert_allclose(found, right, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "x.real",
        "y * x",
        "lambda: 1",
        "x[0]",
        "sin(x, w)",
        "open('file')",
        "sin",
        "x >",
        "'x'",
        "9**9**9**9",
        "",
    ],
)
def test_nothing_but_formulas_is_read(text):
    with pytest.raises(OperatorError, match="expression"):
        parse(text)


@pytest.mark.parametrize("text", ["1 / 0", "log(-1)", "x > w", "sqrt(-4) * x"])
def test_a_formula_has_a_real_value(text):
    with pytest.raises(OperatorError, match="no real value"):
        parse(text)


def test_an_error_names_what_there_is():
    with pytest.raises(OperatorError, match=r"no function 'sine'.*sin"):
        parse("sine(x)")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_c_computes_what_numpy_does(tmp_path):
    dialect = expressions.c_dialect(suffix="")
    lines = []
    for text in TEXTS:
        named = {"value": parse(text), "slope": differentiate(parse(text), "w")}
        body = " ".join(statements(named, dialect, "const double "))
        lines.append(f"{{ {body} put(value, slope); }}")
    text = """
        #include <math.h>
        #include <stdio.h>
        static void put(double value, double slope) { printf("%.17g %.17g\\n", value, slope); }
        static void all(const double x, const double w) { LINES }
        int main(void) { CALLS return 0; }
    """
    calls = "".join(f"all({x!r}, {w!r}); " for x, w in PLACES)
    main = text.replace("LINES", "\n".join(lines)).replace("CALLS", calls)
    (tmp_path / "main.c").write_text(main, "utf-8")
    command = ["cc", "main.c", "-o", "main", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, check=True, timeout=60)
    found = np.array(printed.stdout.split(), float).reshape(len(PLACES), len(TEXTS), 2)
    x, w = np.array(PLACES).T
    for at, text in enumerate(TEXTS):
        for which, path in enumerate(("", "w")):
            right = numpy_function(differentiate(parse(text), path))(x, w)
            np.testing.assert_allclose(found[:, at, which], right, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("text", TEXTS)
def test_planes_put_back_give_the_expression(text):
    core, parts = planes(parse(text))
    assert not core.has(X)
    assert not any(part.has(W) for part in parts.values())
    assert sympy.simplify(core.xreplace(parts) - parse(text)) == 0


def test_parts_in_x_alone_become_planes():
    core, parts = planes(parse("sin(10000 * w * x**2) + cos(x) * w"))
    assert set(parts.values()) == {X**2, sympy.cos(X)}
    assert core.has(W)


def test_several_expressions_share_planes():
    core, parts = planes(sympy.Tuple(parse("sin(w * x**2)"), parse("x**2"), parse("w")))
    assert list(parts.values()) == [X**2]
    ((plane, _),) = parts.items()
    assert core == sympy.Tuple(sympy.sin(W * plane), plane, W)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("w * x", 1),
        ("100 * w * x**3", 1),
        ("w * log(maximum(1.5 + 1.2 * x, 0.01))", 1),
        ("(w * x)**2 + w * x", 2),
        ("exp(w + x)", 1),
        ("w * x + w**2 * x + w**3 * x", 1),
        ("w + x", 2),
    ],
)
def test_sums_of_products_are_taken_apart(text, count):
    terms = separated(parse(text))
    assert len(terms) == count
    assert not any(of_x.has(W) or of_w.has(X) for of_x, of_w in terms)
    total = sum(of_x * of_w for of_x, of_w in terms)
    assert sympy.simplify(total - parse(text)) == 0


@pytest.mark.parametrize("text", ["sin(w * x)", "exp(w * x) - 1", "abs(w - x)"])
def test_what_is_no_sum_of_products_is_left(text):
    assert separated(parse(text)) is None


@pytest.mark.parametrize("text", ["exp(w * x) - 1", "sinh(w * x / 10)", "tanh(w * x**3)"])
def test_increasing_functions_of_a_product_are_recognised(text):
    plane, u, g = monotone(parse(text))
    assert sympy.simplify(g.subs(u, W * plane) - parse(text)) == 0


@pytest.mark.parametrize(
    "text", ["sin(w * x)", "exp(-w * x)", "w * exp(x * w)", "heaviside(w * x)"]
)
def test_other_functions_are_not(text):
    assert monotone(parse(text)) is None


def test_the_series_of_sinc_is_as_long_as_float64_needs():
    """Its first omitted term, where the series ends, is below half a unit in the last place."""
    assert 1 / math.factorial(19) < np.finfo(float).eps / 2
