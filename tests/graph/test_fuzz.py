"""Random graphs of real operators: every way of running them agrees, and gradients are slopes."""

from __future__ import annotations

import contextlib
import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import ShapeError

SHAPES = [(), (0,), (3,), (1,), (0, 3), (2, 3), (3, 1), (1, 3), (2, 0, 3), (2, 1, 3), (2, 3, 4)]


def axis_of(x, number):
    return number % x.ndim if x.ndim else None


def as_images(x):
    """Return ``x`` as images of one channel, four wide."""
    return F.reshape(x[..., None] * np.ones(4), (-1, 1, max(1, x.shape[-1]) if x.ndim else 1, 4))


def rows(x):
    """Return ``x`` as a matrix."""
    return F.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1] if x.ndim else 1))


# What is bounded stays so: products and powers end in tanh. A function takes two variables and a
# number, and may ignore some of them.
SMOOTH = {
    "add": lambda x, y, n: x + y,
    "sub": lambda x, y, n: x - y,
    "mul": lambda x, y, n: F.tanh(x * y),
    "div": lambda x, y, n: x / (y * y + 1),
    "scale": lambda x, y, n: x * (n / 4) - n / 3,
    "reverse": lambda x, y, n: (n + 1) / (x * x + 2) - (2 - x),
    "square": lambda x, y, n: F.tanh(x**2),
    "exp": lambda x, y, n: F.tanh(F.exp(x * 0.5)),
    "log": lambda x, y, n: F.log(x * x + 1),
    "sqrt": lambda x, y, n: F.sqrt(x * x + 0.5),
    "sin": lambda x, y, n: F.sin(x),
    "sigmoid": lambda x, y, n: F.sigmoid(x),
    "softplus": lambda x, y, n: F.softplus(x),
    "gelu": lambda x, y, n: F.gelu(x),
    "sum": lambda x, y, n: F.sin(F.sum(x, axis_of(x, n), keepdims=bool(n % 2))),
    "mean": lambda x, y, n: F.mean(x, axis_of(x, n), keepdims=bool(n % 2)),
    "logsumexp": lambda x, y, n: F.tanh(F.logsumexp(x, axis_of(x, n))),
    "var": lambda x, y, n: F.tanh(F.var(x, axis_of(x, n), keepdims=True)),
    "prod": lambda x, y, n: F.tanh(F.prod(x, axis_of(x, n))),
    "flat": lambda x, y, n: F.reshape(x, (x.size,)),
    "new axis": lambda x, y, n: F.expand_dims(x, n % (x.ndim + 1)),
    "transpose": lambda x, y, n: F.transpose(x, tuple(reversed(range(x.ndim)))),
    "getitem": lambda x, y, n: x[:: -1 - n % 2] if x.ndim else x[None],
    "last": lambda x, y, n: x[..., -1] if x.ndim and x.shape[-1] else x,
    "gather": lambda x, y, n: x[np.array([0, n % len(x), 0])] if x.ndim and len(x) else x,
    "concatenate": lambda x, y, n: F.concatenate(x, x * 2, x, axis=axis_of(x, n)) if x.ndim else x,
    "join": lambda x, y, n: F.concatenate(x, y, axis=0) if x.ndim and y.ndim else x,
    "stack": lambda x, y, n: F.stack(x, x + 1, axis=n % (x.ndim + 1)),
    "split": lambda x, y, n: F.split(x, axis=0)[n % len(x)] if x.ndim and len(x) else x,
    "flip": lambda x, y, n: F.flip(x, (axis_of(x, n),)) if x.ndim else x,
    "pad": lambda x, y, n: F.pad(x, (n % 3, 1)) if x.ndim else x,
    "tile": lambda x, y, n: F.tile(x, (2,) * x.ndim) if x.ndim and x.size < 100 else x,
    "broadcast": lambda x, y, n: F.broadcast_to(x, (2, *x.shape)) if x.size < 100 else x,
    "cumsum": lambda x, y, n: F.sin(F.cumsum(x, axis_of(x, n))) if x.ndim else x,
    "matmul": lambda x, y, n: F.tanh(F.matmul(rows(x), F.transpose(rows(y), (1, 0)))),
    "affine": lambda x, y, n: F.tanh(F.affine(rows(x), np.ones((rows(x).shape[1], 2)) / 3)),
    "einsum": lambda x, y, n: F.tanh(F.einsum("ij,kj->ik", rows(x), rows(y))),
    "softmax": lambda x, y, n: F.softmax(x, axis_of(x, n)) if x.ndim else x,
    "log_softmax": lambda x, y, n: F.sin(F.log_softmax(x, axis_of(x, n))) if x.ndim else x,
    "layer norm": lambda x, y, n: F.layer_normalization(rows(x), None, None, eps=0.5),
    "batch norm": lambda x, y, n: F.batch_normalization(rows(x), None, None, None, None, eps=0.5),
    "convolution": lambda x, y, n: F.tanh(
        F.convolution(as_images(x), np.full((2, 1, 1, 2), 0.3), pad=(n % 2, 1), stride=(1, 2))
    ),
    "average pooling": lambda x, y, n: F.average_pooling(as_images(x), (1, 2), pad=(0, n % 2)),
    "cross entropy": lambda x, y, n: (
        F.softmax_cross_entropy(rows(x), np.zeros((rows(x).shape[0], 1), np.int64))
        if rows(x).shape[1]
        else x
    ),
}
KINKED = {
    "relu": lambda x, y, n: F.relu(x),
    "leaky_relu": lambda x, y, n: F.leaky_relu(x, 0.25),
    "abs": lambda x, y, n: abs(x),
    "maximum": lambda x, y, n: F.maximum2(x, y),
    "minimum": lambda x, y, n: F.minimum2(x, n / 4),
    "where": lambda x, y, n: F.where(x > y, x, y * 2),
    "clip": lambda x, y, n: F.clip(x, -0.5, n / 4),
    "max": lambda x, y, n: F.max(x, axis_of(x, n)),
    "sort": lambda x, y, n: F.sort(x, axis_of(x, n)) if x.ndim else x,
    "norm": lambda x, y, n: F.tanh(F.norm(x, axis=axis_of(x, n))),
    "max pooling": lambda x, y, n: F.max_pooling(as_images(x), (1, 2), stride=(1, 1 + n % 2)),
}


@st.composite
def recipes(draw, functions):
    """Draw the shapes of leaves, and steps: a function, which two values it takes, a number."""
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
    step = st.tuples(st.sampled_from(sorted(functions)), *[st.integers(0, 7)] * 3)
    return shapes, draw(st.lists(step, min_size=1, max_size=10)), draw(st.integers(0, 5))


def build(recipe, leaves):
    """Return a loss; a step whose shapes do not fit is left out."""
    values = list(leaves)
    for name, first, second, number in recipe[1]:
        # The latest values are the likeliest to be taken.
        x, y = values[-1 - first % len(values)], values[-1 - second % len(values)]
        try:
            result = {**SMOOTH, **KINKED}[name](x, y, number)
        except ShapeError:
            continue
        if result.size <= 500:
            values.append(result)
    return F.add_n(*[F.sum(F.tanh(value)) for value in values])


def arrays(recipe, dtype=np.float64):
    rng = np.random.default_rng(recipe[2])
    return [rng.uniform(-1.5, 1.5, size=shape).astype(dtype) for shape in recipe[0]]


def variables(recipe, dtype):
    return [Variable.from_numpy_array(a, need_grad=True) for a in arrays(recipe, dtype)]


def run_static(recipe, dtype, scope=contextlib.nullcontext, clear=False):
    leaves = variables(recipe, dtype)
    with scope():
        loss = build(recipe, leaves)
    for _ in range(2):  # the second run is on memory that the first has used
        for leaf in leaves:
            leaf.grad.zero()
        loss.forward(clear_no_need_grad=clear)
        loss.backward(clear_buffer=clear)
    return [loss.d, *(leaf.g for leaf in leaves)]


def run_dynamic(recipe, dtype):
    leaves = variables(recipe, dtype)
    with nnl.auto_forward():
        loss = build(recipe, leaves)
        loss.backward()
    return [loss.d, *(leaf.g for leaf in leaves)]


def run_compiled(recipe, dtype):
    leaves = variables(recipe, dtype)
    solver = nnl.S.Sgd(0.0)
    solver.set_parameters({str(n): leaf for n, leaf in enumerate(leaves)})
    loss = build(recipe, leaves)
    step = nnl.compile_step(loss, solver)
    step.run()
    result = [loss.d.copy(), *(leaf.g.copy() for leaf in leaves)]
    for leaf, array in zip(leaves, arrays(recipe, dtype), strict=True):
        leaf.d = array  # 0 times a gradient that is NaN is NaN, too
    step.run()
    for one, two in zip(result, [loss.d, *(leaf.g for leaf in leaves)], strict=True):
        np.testing.assert_array_equal(one, two)
    return result


@settings(max_examples=70, deadline=None)
@given(recipes({**SMOOTH, **KINKED}), st.sampled_from([np.float32, np.float64]))
def test_all_ways_of_running_a_graph_agree(recipe, dtype):
    expected = run_dynamic(recipe, dtype)
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-9}
    for other in (
        run_static(recipe, dtype),
        run_static(recipe, dtype, clear=True),
        run_static(recipe, dtype, nnl.recompute),
        run_compiled(recipe, dtype),
    ):
        for one, two in zip(other, expected, strict=True):
            assert one.dtype == two.dtype
            np.testing.assert_allclose(one, two, **close)


@settings(max_examples=50, deadline=None)
@given(recipes(SMOOTH))
def test_gradients_are_slopes(recipe):
    leaves = variables(recipe, np.float64)
    loss = build(recipe, leaves)
    loss.forward()
    assume(np.isfinite(loss.d))  # the mean of nothing is not
    loss.backward()
    rng = np.random.default_rng(7)
    directions = [rng.normal(size=leaf.shape) for leaf in leaves]
    expected = sum(float(np.sum(v.g * d)) for v, d in zip(leaves, directions, strict=True))
    values = []
    for step in (-1e-5, 1e-5):
        for leaf, array, direction in zip(leaves, arrays(recipe), directions, strict=True):
            leaf.d = array + step * direction
        loss.forward()
        values.append(float(loss))
    slope = (values[1] - values[0]) / 2e-5
    np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(recipes(SMOOTH))
def test_gradients_of_gradients_are_slopes_of_gradients(recipe):
    leaves = variables(recipe, np.float64)
    rng = np.random.default_rng(8)
    loss = build(recipe, leaves)
    firsts = nnl.grad(loss, leaves)
    projection = F.add_n(*[F.sum(F.sin(g) * rng.normal(size=g.shape)) for g in firsts])
    seconds = nnl.grad(projection, leaves, allow_unused=True)
    nnl.forward_all([projection, *seconds])
    assume(np.isfinite(projection.d))
    directions = [rng.normal(size=leaf.shape) for leaf in leaves]
    expected = sum(float(np.sum(g.d * d)) for g, d in zip(seconds, directions, strict=True))
    values = []
    for step in (-1e-5, 1e-5):
        for leaf, array, direction in zip(leaves, arrays(recipe), directions, strict=True):
            leaf.d = array + step * direction
        projection.forward()
        values.append(float(projection))
    slope = (values[1] - values[0]) / 2e-5
    np.testing.assert_allclose(slope, expected, rtol=1e-3, atol=1e-4)
