"""Recurrences over time, one operator for a whole layer in one direction, and their gradients.

What depends on the inputs alone is a matrix product over all steps at once, made outside; an
operator adds the product with the state, step by step. It also returns what the gates were, so that
its gradient, an operator too, computes nothing twice. The gradients' own gradients are those of the
same recurrence written on variables: each is written once, for arrays and for variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.autodiff import gradient_table, key_of
from nnl_core.graph.operator import Array, Operator, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Variable
from nnl_core.operators.dtypes import wide

__all__: list[str] = []


class Maths(NamedTuple):
    """What a recurrence needs beside the operators ``+ - * @`` and brackets."""

    tanh: Callable[[Any], Any]
    positive: Callable[[Any], Any]
    zeros_like: Callable[[Any], Any]
    join: Callable[[Sequence[Any]], Any]
    stack: Callable[[Sequence[Any]], Any]


ARRAYS = Maths(
    tanh=np.tanh,
    positive=lambda x: (x > 0).astype(x.dtype),
    zeros_like=np.zeros_like,
    join=lambda parts: np.concatenate(parts, axis=-1),
    stack=np.stack,
)
VARIABLES = Maths(
    tanh=lambda x: F.tanh(x),
    positive=lambda x: F.cast(x > 0, x.dtype),
    zeros_like=lambda x: F.zeros_like(x),
    join=lambda parts: F.concatenate(*parts, axis=-1),
    stack=lambda parts: F.stack(*parts, axis=0),
)


def parts(x: Any, count: int) -> list[Any]:
    """Divide the last axis into ``count`` equal parts."""
    length = x.shape[-1] // count
    return [x[..., k * length : (k + 1) * length] for k in range(count)]


def gradients_through(
    function: Callable[..., Sequence[Variable]],
    gradients: Sequence[Variable | None],
    inputs: Sequence[Variable | None],
) -> tuple[Variable | None, ...]:
    """Return the gradient of each input of a function of variables, given its outputs'.

    Inputs that depend on each other count as independent, as they do for an operator.
    """
    copies = [None if one is None else F.identity(one) for one in inputs]
    used = [
        (output, gradient)
        for output, gradient in zip(function(*copies), gradients, strict=True)
        if gradient is not None
    ]
    table = gradient_table(
        [output for output, _ in used],
        [gradient for _, gradient in used],
        {key_of(copy) for copy in copies if copy is not None},
    )
    return tuple(None if copy is None else table.get(key_of(copy)) for copy in copies)


def state_weight_gradient(d_products: Any, hs: Any, h0: Any) -> Variable:
    """Sum over steps and batch the gradient of a product times the state that it was made of."""
    rows, length = hs.shape[0] * hs.shape[1], hs.shape[2]
    before = F.concatenate(F.expand_dims(h0, 0), hs[:-1], axis=0)
    return F.batch_matmul(
        F.reshape(d_products, (rows, d_products.shape[2])),
        F.reshape(before, (rows, length)),
        transpose_a=True,
    )


def _sigmoid(x: Array) -> Array:
    """Finite for inputs of any size."""
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x))


def _like(dtype: np.dtype, *results: Array) -> tuple[Array, ...]:
    return tuple(np.asarray(result).astype(dtype, copy=False) for result in results)


def _check(p: Spec, states: Sequence[Spec], r: Spec, gates: int) -> None:
    """Check products (steps, batch, gates x hidden), states (batch, hidden), and the weight."""
    hidden = r.shape[-1]
    if r.shape != (gates * hidden, hidden):
        raise ShapeError(f"the state's weight has shape {r.shape}, not {(gates * hidden, hidden)}")
    if p.ndim != 3 or p.shape[2] != gates * hidden or not p.shape[0]:
        raise ShapeError(f"products have shape {p.shape}, not (steps, batch, {gates * hidden})")
    for state in states:
        if state.shape != (p.shape[1], hidden):
            raise ShapeError(f"a state has shape {state.shape}, not {(p.shape[1], hidden)}")


def _arrays(rng: np.random.Generator, gates: int, states: int) -> Iterator[list[Array]]:
    """Products, states and weights: several steps, one, an empty batch."""
    for steps, batch, hidden in ((2, 2, 2), (1, 1, 3), (2, 0, 1)):
        yield [
            rng.normal(size=(steps, batch, gates * hidden)),
            *(rng.normal(size=(batch, hidden)) for _ in range(states)),
            rng.normal(size=(gates * hidden, hidden)),
        ]


def _steps(p: Spec, r: Spec) -> int:
    return p.shape[0] * p.shape[1] * r.size


# Elman's network ---------------------------------------------------------------------------------


@defop("nnl::rnn_layer", save=("h0", "r", "hs"), outputs=("hs",), precision="half")
def rnn_layer(p: Array, h0: Array, r: Array, *, relu: bool = False) -> Array:
    """``h[t] = f(p[t] + R h[t-1])``, ``f`` the hyperbolic tangent or the rectifier."""
    products, h, weight = wide(p), wide(h0), wide(r)
    hs = []
    for product in products:
        a = product + h @ weight.T
        h = np.maximum(a, 0) if relu else np.tanh(a)
        hs.append(h)
    return _like(p.dtype, np.stack(hs))[0]


@rnn_layer.infer
def rnn_layer_infer(p: Spec, h0: Spec, r: Spec, *, relu: bool) -> Spec:
    """The state at each step."""
    _check(p, [h0], r, 1)
    return p


@rnn_layer.vjp
def rnn_layer_vjp(g: Any, hs: Any, p: Any, h0: Any, r: Any, *, relu: bool) -> tuple[Any, ...]:
    """That of the recurrence, backwards; of the weight, one product over all steps."""
    d_p, d_h0 = rnn_layer_gradient(hs, r, g, relu=relu)
    return d_p, d_h0, state_weight_gradient(d_p, hs, h0)


@defop("nnl::rnn_layer_gradient", save=("hs", "r", "g"), outputs=("d_p", "d_h0"), precision="half")
def rnn_layer_gradient(hs: Array, r: Array, g: Array, *, relu: bool = False) -> tuple[Array, ...]:
    """Gradients of the products and of the first state, given those of all states."""
    return _like(hs.dtype, *_rnn_backward(ARRAYS, wide(hs), wide(r), wide(g), relu=relu))


def _rnn_backward(maths: Maths, hs: Any, r: Any, g: Any, *, relu: bool) -> tuple[Any, ...]:
    d_products = []
    d_h = maths.zeros_like(hs[0])
    for t in reversed(range(hs.shape[0])):
        slope = maths.positive(hs[t]) if relu else 1 - hs[t] * hs[t]
        d_products.append((g[t] + d_h) * slope)
        d_h = d_products[-1] @ r
    return maths.stack(d_products[::-1]), d_h


@rnn_layer_gradient.infer
def rnn_layer_gradient_infer(hs: Spec, r: Spec, g: Spec, *, relu: bool) -> tuple[Spec, ...]:
    """Those of the products and of the first state."""
    return hs, hs.with_shape(hs.shape[1:])


@rnn_layer_gradient.vjp
def rnn_layer_gradient_vjp(u: Any, y: Any, *inputs: Any, relu: bool) -> tuple[Any, ...]:
    """That of the recurrence on variables."""
    return gradients_through(lambda *x: _rnn_backward(VARIABLES, *x, relu=relu), u, inputs)


@rnn_layer.samples
def rnn_layer_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both nonlinearities."""
    for relu in (False, True):
        for arrays in _arrays(rng, 1, 1):
            yield Sample(*arrays, relu=relu)


@rnn_layer_gradient.samples
def rnn_layer_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """States on both sides of the rectifier's kink."""
    for relu in (False, True):
        for p, _, r in _arrays(rng, 1, 1):
            yield Sample(p, r, rng.normal(size=p.shape), relu=relu)


@rnn_layer.multiply_adds
def rnn_layer_multiply_adds(p: Spec, h0: Spec, r: Spec, *, relu: bool) -> int:
    """A product with the weight at each step."""
    return _steps(p, r)


@rnn_layer_gradient.multiply_adds
def rnn_layer_gradient_multiply_adds(hs: Spec, r: Spec, g: Spec, *, relu: bool) -> int:
    """A product with the weight at each step."""
    return _steps(hs, r)


# Long short-term memory --------------------------------------------------------------------------


@defop(
    "nnl::lstm_layer",
    save=("h0", "c0", "r", "hs", "cs", "gates"),
    outputs=("hs", "cs", "gates"),
    precision="half",
)
def lstm_layer(p: Array, h0: Array, c0: Array, r: Array) -> tuple[Array, ...]:
    """``i, f, g, o`` of ``p[t] + R h[t-1]``; ``c[t] = f c[t-1] + i g``, ``h[t] = o tanh(c[t])``.

    Sigmoid gates but for ``g``, a hyperbolic tangent.
    """
    products, h, c, weight = wide(p), wide(h0), wide(c0), wide(r)
    hs, cs, gates = [], [], []
    for product in products:
        a = parts(product + h @ weight.T, 4)
        i, f, g, o = _sigmoid(a[0]), _sigmoid(a[1]), np.tanh(a[2]), _sigmoid(a[3])
        c = f * c + i * g
        h = o * np.tanh(c)
        hs.append(h)
        cs.append(c)
        gates.append(np.concatenate([i, f, g, o], axis=-1))
    return _like(p.dtype, np.stack(hs), np.stack(cs), np.stack(gates))


@lstm_layer.infer
def lstm_layer_infer(p: Spec, h0: Spec, c0: Spec, r: Spec) -> tuple[Spec, ...]:
    """Both states and the four gates at each step."""
    _check(p, [h0, c0], r, 4)
    states = p.with_shape((*p.shape[:2], r.shape[1]))
    return states, states, p


@lstm_layer.vjp
def lstm_layer_vjp(g: Any, y: Any, p: Any, h0: Any, c0: Any, r: Any) -> tuple[Any, ...]:
    """That of the recurrence, backwards; of the weight, one product over all steps."""
    hs, cs, gates = y
    d_p, d_h0, d_c0 = lstm_layer_gradient(gates, cs, c0, r, *g)
    return d_p, d_h0, d_c0, state_weight_gradient(d_p, hs, h0)


@defop(
    "nnl::lstm_layer_gradient",
    save=("gates", "cs", "c0", "r", "g_hs", "g_cs", "g_gates"),
    outputs=("d_p", "d_h0", "d_c0"),
    precision="half",
)
def lstm_layer_gradient(
    gates: Array,
    cs: Array,
    c0: Array,
    r: Array,
    g_hs: Array | None = None,
    g_cs: Array | None = None,
    g_gates: Array | None = None,
) -> tuple[Array, ...]:
    """Gradients of the products and of the first states, given those of states and gates."""
    inputs = (gates, cs, c0, r, g_hs, g_cs, g_gates)
    widened = (None if one is None else wide(one) for one in inputs)
    return _like(gates.dtype, *_lstm_backward(ARRAYS, *widened))


def _lstm_backward(
    maths: Maths, gates: Any, cs: Any, c0: Any, r: Any, g_hs: Any, g_cs: Any, g_gates: Any
) -> tuple[Any, ...]:
    g_hs, g_cs = (maths.zeros_like(cs) if given is None else given for given in (g_hs, g_cs))
    g_gates = maths.zeros_like(gates) if g_gates is None else g_gates
    d_products = []
    d_h = d_c = maths.zeros_like(c0)
    for t in reversed(range(cs.shape[0])):
        i, f, g, o = parts(gates[t], 4)
        g_i, g_f, g_g, g_o = parts(g_gates[t], 4)
        tanh_c = maths.tanh(cs[t])
        d_h = d_h + g_hs[t]
        d_c = d_c + g_cs[t] + d_h * o * (1 - tanh_c * tanh_c)
        d_i = (d_c * g + g_i) * i * (1 - i)
        d_f = (d_c * (cs[t - 1] if t else c0) + g_f) * f * (1 - f)
        d_g = (d_c * i + g_g) * (1 - g * g)
        d_o = (d_h * tanh_c + g_o) * o * (1 - o)
        d_products.append(maths.join([d_i, d_f, d_g, d_o]))
        d_h, d_c = d_products[-1] @ r, d_c * f
    return maths.stack(d_products[::-1]), d_h, d_c


@lstm_layer_gradient.infer
def lstm_layer_gradient_infer(
    gates: Spec, cs: Spec, c0: Spec, r: Spec, *gradients: Spec | None
) -> tuple[Spec, ...]:
    """Those of the products and of both first states."""
    return gates, c0, c0


@lstm_layer_gradient.vjp
def lstm_layer_gradient_vjp(u: Any, y: Any, *inputs: Any) -> tuple[Any, ...]:
    """That of the recurrence on variables."""
    return gradients_through(lambda *x: _lstm_backward(VARIABLES, *x), u, inputs)


@lstm_layer.samples
def lstm_layer_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Ordinary products, and large ones."""
    for arrays in _arrays(rng, 4, 2):
        yield Sample(*arrays)
    p, *others = next(_arrays(rng, 4, 2))
    yield Sample(p * 1000, *others)


@lstm_layer_gradient.samples
def lstm_layer_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Gradients of all outputs, and of some."""
    for p, _, c0, r in _arrays(rng, 4, 2):
        cs = rng.normal(size=(*p.shape[:2], r.shape[1]))
        g_hs, g_cs, g_gates = (rng.normal(size=x.shape) for x in (cs, cs, p))
        gates = rng.uniform(0.1, 0.9, size=p.shape)
        if len(p) == 1:
            yield Sample(gates, cs, c0, r, g_hs, None, g_gates)
            yield Sample(gates, cs, c0, r, None, g_cs)
        else:
            yield Sample(gates, cs, c0, r, g_hs, g_cs, g_gates)


@lstm_layer.multiply_adds
def lstm_layer_multiply_adds(p: Spec, h0: Spec, c0: Spec, r: Spec) -> int:
    """A product with the weight at each step."""
    return _steps(p, r)


@lstm_layer_gradient.multiply_adds
def lstm_layer_gradient_multiply_adds(
    gates: Spec, cs: Spec, c0: Spec, r: Spec, *gradients: Spec | None
) -> int:
    """A product with the weight at each step."""
    return _steps(gates, r)


# Gated recurrent units ---------------------------------------------------------------------------


@defop("nnl::gru_layer", save=("h0", "r", "hs", "gates"), outputs=("hs", "gates"), precision="half")
def gru_layer(p: Array, h0: Array, r: Array, b: Array | None = None) -> tuple[Array, ...]:
    """``h[t] = (1 - z) n + z h[t-1]`` with ``n = tanh(p_n[t] + r q)`` and ``q = R_n h[t-1] + b``.

    The gates ``r`` and ``z`` are sigmoids of ``p[t] + R h[t-1]``. Returned are ``r, z, n, q``.
    """
    products, h, weight = wide(p), wide(h0), wide(r)
    hidden = h0.shape[1]
    bias = np.zeros(hidden, weight.dtype) if b is None else wide(b)
    hs, gates = [], []
    for product in products:
        state = h @ weight.T
        reset, z = parts(_sigmoid(product[:, : 2 * hidden] + state[:, : 2 * hidden]), 2)
        q = state[:, 2 * hidden :] + bias
        n = np.tanh(product[:, 2 * hidden :] + reset * q)
        h = (1 - z) * n + z * h
        hs.append(h)
        gates.append(np.concatenate([reset, z, n, q], axis=-1))
    return _like(p.dtype, np.stack(hs), np.stack(gates))


@gru_layer.infer
def gru_layer_infer(p: Spec, h0: Spec, r: Spec, b: Spec | None) -> tuple[Spec, ...]:
    """The state, and the gates with the product that one of them gates, at each step."""
    _check(p, [h0], r, 3)
    hidden = r.shape[1]
    if b is not None and b.shape != (hidden,):
        raise ShapeError(f"the state's bias has shape {b.shape}, not {(hidden,)}")
    return p.with_shape((*p.shape[:2], hidden)), p.with_shape((*p.shape[:2], 4 * hidden))


@gru_layer.vjp
def gru_layer_vjp(g: Any, y: Any, p: Any, h0: Any, r: Any, b: Any) -> tuple[Any, ...]:
    """That of the recurrence, backwards; of weight and bias, sums over all steps."""
    hs, gates = y
    d_p, d_s, d_h0 = gru_layer_gradient(gates, hs, h0, r, *g)
    hidden = h0.shape[1]
    d_b = None if b is None else F.sum(d_s[..., 2 * hidden :], axis=(0, 1))
    return d_p, d_h0, state_weight_gradient(d_s, hs, h0), d_b


@defop(
    "nnl::gru_layer_gradient",
    save=("gates", "hs", "h0", "r", "g_hs", "g_gates"),
    outputs=("d_p", "d_s", "d_h0"),
    precision="half",
)
def gru_layer_gradient(
    gates: Array,
    hs: Array,
    h0: Array,
    r: Array,
    g_hs: Array | None = None,
    g_gates: Array | None = None,
) -> tuple[Array, ...]:
    """Gradients of the products with inputs and with states, and of the first state."""
    inputs = (gates, hs, h0, r, g_hs, g_gates)
    widened = (None if one is None else wide(one) for one in inputs)
    return _like(gates.dtype, *_gru_backward(ARRAYS, *widened))


def _gru_backward(
    maths: Maths, gates: Any, hs: Any, h0: Any, r: Any, g_hs: Any, g_gates: Any
) -> tuple[Any, ...]:
    g_hs = maths.zeros_like(hs) if g_hs is None else g_hs
    g_gates = maths.zeros_like(gates) if g_gates is None else g_gates
    of_inputs, of_states = [], []
    d_h = maths.zeros_like(h0)
    for t in reversed(range(hs.shape[0])):
        reset, z, n, q = parts(gates[t], 4)
        g_r, g_z, g_n, g_q = parts(g_gates[t], 4)
        d_h = d_h + g_hs[t]
        d_n = (d_h * (1 - z) + g_n) * (1 - n * n)
        d_z = (d_h * ((hs[t - 1] if t else h0) - n) + g_z) * z * (1 - z)
        d_r = (d_n * q + g_r) * reset * (1 - reset)
        of_inputs.append(maths.join([d_r, d_z, d_n]))
        of_states.append(maths.join([d_r, d_z, d_n * reset + g_q]))
        d_h = d_h * z + of_states[-1] @ r
    return maths.stack(of_inputs[::-1]), maths.stack(of_states[::-1]), d_h


@gru_layer_gradient.infer
def gru_layer_gradient_infer(
    gates: Spec, hs: Spec, h0: Spec, r: Spec, *gradients: Spec | None
) -> tuple[Spec, ...]:
    """Those of both products and of the first state."""
    products = hs.with_shape((*hs.shape[:2], r.shape[0]))
    return products, products, h0


@gru_layer_gradient.vjp
def gru_layer_gradient_vjp(u: Any, y: Any, *inputs: Any) -> tuple[Any, ...]:
    """That of the recurrence on variables."""
    return gradients_through(lambda *x: _gru_backward(VARIABLES, *x), u, inputs)


@gru_layer.samples
def gru_layer_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """With and without bias, large products."""
    for arrays in _arrays(rng, 3, 1):
        yield Sample(*arrays, rng.normal(size=arrays[1].shape[1]))
    p, *others = arrays = next(_arrays(rng, 3, 1))
    yield Sample(*arrays)
    yield Sample(p * 1000, *others)


@gru_layer_gradient.samples
def gru_layer_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Gradients of both outputs, and of each alone."""
    for p, h0, r in _arrays(rng, 3, 1):
        hs = rng.normal(size=(*p.shape[:2], r.shape[1]))
        gates = rng.uniform(0.1, 0.9, size=(*p.shape[:2], 4 * r.shape[1]))
        g_hs, g_gates = rng.normal(size=hs.shape), rng.normal(size=gates.shape)
        if len(p) == 1:
            yield Sample(gates, hs, h0, r, g_hs)
            yield Sample(gates, hs, h0, r, None, g_gates)
        else:
            yield Sample(gates, hs, h0, r, g_hs, g_gates)


@gru_layer.multiply_adds
def gru_layer_multiply_adds(p: Spec, h0: Spec, r: Spec, b: Spec | None) -> int:
    """A product with the weight at each step."""
    return _steps(p, r)


@gru_layer_gradient.multiply_adds
def gru_layer_gradient_multiply_adds(
    gates: Spec, hs: Spec, h0: Spec, r: Spec, *gradients: Spec | None
) -> int:
    """A product with the weight at each step."""
    return _steps(hs, r)


LAYERS: tuple[Operator, ...] = (
    rnn_layer,
    rnn_layer_gradient,
    lstm_layer,
    lstm_layer_gradient,
    gru_layer,
    gru_layer_gradient,
)
