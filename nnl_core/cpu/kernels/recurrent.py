"""NumPy kernels of recurrent layers: few passes over each step, into planned memory.

All gates of a step go through one hyperbolic tangent, as ``sigmoid(x) = (1 + tanh(x / 2)) / 2``:
what it is taken of is halved before the loop, where that is a sigmoid gate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnl_core.cpu import threads
from nnl_core.graph.operator import Array, Operator
from nnl_core.graph.spec import Spec
from nnl_core.operators import recurrent_cells as family

Arrays = tuple[Array, ...]


def _attach(operator: Operator) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Attach ``function(results, *arrays, **attributes)``."""

    def attach(function: Callable[..., None]) -> Callable[..., None]:
        def kernel(*arrays: Array | None, out: Any, **attributes: Any) -> Any:
            specs = operator.infer_specs(
                [None if array is None else Spec.of(array) for array in arrays],
                operator.bind_attributes(attributes),
            )
            single = len(specs) == 1
            if out is None:
                results = tuple(np.empty(spec.shape, spec.dtype) for spec in specs)
            else:
                results = (out,) if single else tuple(out)
            with threads.blas_threads(1):  # the products are small, and many
                function(results, *arrays, **attributes)
            return results[0] if single else results

        operator.kernel("numpy", kernel)
        return function

    return attach


def _factors(kinds: str, hidden: int, dtype: np.dtype) -> tuple[Array, Array]:
    """Return for gates, ``s`` sigmoid or ``t`` tanh, what scales and shifts the tangent of all."""
    scale = np.repeat(np.array([0.5 if kind == "s" else 1.0 for kind in kinds], dtype), hidden)
    return scale, 1 - scale


@_attach(family.rnn_layer)
def _rnn_layer(results: Arrays, p: Array, h0: Array, r: Array, *, relu: bool) -> None:
    (hs,) = results
    h, weight = h0, np.ascontiguousarray(r.T)
    for t in range(len(p)):
        a = np.matmul(h, weight, out=hs[t])
        np.add(a, p[t], out=a)
        h = np.maximum(a, 0, out=a) if relu else np.tanh(a, out=a)


@_attach(family.rnn_layer_gradient)
def _rnn_layer_gradient(results: Arrays, hs: Array, r: Array, g: Array, *, relu: bool) -> None:
    d_p, d_h = results
    weight = np.ascontiguousarray(r)
    slope = np.greater(hs, 0).astype(hs.dtype) if relu else 1 - hs * hs
    d_h[...] = 0
    for t in reversed(range(len(hs))):
        np.add(g[t], d_h, out=d_p[t])
        np.multiply(d_p[t], slope[t], out=d_p[t])
        np.matmul(d_p[t], weight, out=d_h)


@_attach(family.lstm_layer)
def _lstm_layer(results: Arrays, p: Array, h0: Array, c0: Array, r: Array) -> None:
    hs, cs, gates = results
    h, c, hidden = h0, c0, h0.shape[1]
    scale, shift = _factors("ssts", hidden, gates.dtype)
    weight = np.ascontiguousarray(r.T) * scale
    np.multiply(p, scale, out=gates)
    product, kept = np.empty_like(gates[0]), np.empty_like(hs[0])
    for t in range(len(p)):
        gate = gates[t]
        np.add(gate, np.matmul(h, weight, out=product), out=gate)
        np.tanh(gate, out=gate)
        np.multiply(gate, scale, out=gate)
        np.add(gate, shift, out=gate)
        i, f, g, o = family.parts(gate, 4)
        np.multiply(f, c, out=kept)
        c = np.multiply(i, g, out=cs[t])
        np.add(c, kept, out=c)
        h = np.tanh(c, out=hs[t])
        np.multiply(h, o, out=h)


@_attach(family.lstm_layer_gradient)
def _lstm_layer_gradient(
    results: Arrays,
    gates: Array,
    cs: Array,
    c0: Array,
    r: Array,
    g_hs: Array | None,
    g_cs: Array | None,
    g_gates: Array | None,
) -> None:
    d_p, d_h, d_c = results
    weight = np.ascontiguousarray(r)
    shift = _factors("ssts", c0.shape[1], gates.dtype)[1]
    lower = 1 - 2 * shift  # a sigmoid has slope y (1 - y), the tangent (1 + y) (1 - y)
    slope, tanh_c, change = np.empty_like(gates[0]), np.empty_like(c0), np.empty_like(c0)
    d_h[...] = 0
    d_c[...] = 0
    for t in reversed(range(len(cs))):
        i, f, g, o = family.parts(gates[t], 4)
        d_i, d_f, d_g, d_o = family.parts(d_p[t], 4)
        if g_hs is not None:
            np.add(d_h, g_hs[t], out=d_h)
        if g_cs is not None:
            np.add(d_c, g_cs[t], out=d_c)
        np.tanh(cs[t], out=tanh_c)
        np.multiply(d_h, tanh_c, out=d_o)
        np.multiply(tanh_c, tanh_c, out=tanh_c)
        np.subtract(1, tanh_c, out=tanh_c)
        np.multiply(d_h, o, out=change)
        np.multiply(change, tanh_c, out=change)
        np.add(d_c, change, out=d_c)
        np.multiply(d_c, g, out=d_i)
        np.multiply(d_c, cs[t - 1] if t else c0, out=d_f)
        np.multiply(d_c, i, out=d_g)
        if g_gates is not None:
            np.add(d_p[t], g_gates[t], out=d_p[t])
        np.subtract(1, gates[t], out=slope)
        np.multiply(d_p[t], slope, out=d_p[t])
        np.add(gates[t], lower, out=slope)
        np.multiply(d_p[t], slope, out=d_p[t])
        np.matmul(d_p[t], weight, out=d_h)
        np.multiply(d_c, f, out=d_c)


@_attach(family.gru_layer)
def _gru_layer(results: Arrays, p: Array, h0: Array, r: Array, b: Array | None = None) -> None:
    hs, gates = results
    h, hidden = h0, h0.shape[1]
    weight = np.array(r.T, order="C")
    weight[:, : 2 * hidden] *= 0.5
    np.multiply(p[..., : 2 * hidden], 0.5, out=gates[..., : 2 * hidden])
    state, kept = np.empty_like(p[0]), np.empty_like(hs[0])
    for t in range(len(p)):
        np.matmul(h, weight, out=state)
        reset, z, n, q = family.parts(gates[t], 4)
        both = gates[t][:, : 2 * hidden]
        np.add(both, state[:, : 2 * hidden], out=both)
        np.tanh(both, out=both)
        np.multiply(both, 0.5, out=both)
        np.add(both, 0.5, out=both)
        np.add(state[:, 2 * hidden :], 0 if b is None else b, out=q)
        np.multiply(reset, q, out=n)
        np.add(n, p[t][:, 2 * hidden :], out=n)
        np.tanh(n, out=n)
        np.subtract(h, n, out=kept)
        np.multiply(kept, z, out=kept)
        h = np.add(n, kept, out=hs[t])


@_attach(family.gru_layer_gradient)
def _gru_layer_gradient(
    results: Arrays,
    gates: Array,
    hs: Array,
    h0: Array,
    r: Array,
    g_hs: Array | None,
    g_gates: Array | None,
) -> None:
    d_p, d_s, d_h = results
    hidden = h0.shape[1]
    weight = np.ascontiguousarray(r)
    rest, change = np.empty_like(h0), np.empty_like(h0)
    d_h[...] = 0
    for t in reversed(range(len(hs))):
        reset, z, n, q = family.parts(gates[t], 4)
        d_r, d_z, d_n = family.parts(d_p[t], 3)
        if g_hs is not None:
            np.add(d_h, g_hs[t], out=d_h)
        np.subtract(1, z, out=rest)
        np.multiply(d_h, rest, out=d_n)
        np.subtract(hs[t - 1] if t else h0, n, out=d_z)
        np.multiply(d_z, d_h, out=d_z)
        if g_gates is not None:
            g_r, g_z, g_n, g_q = family.parts(g_gates[t], 4)
            np.add(d_z, g_z, out=d_z)
            np.add(d_n, g_n, out=d_n)
        np.multiply(d_z, rest, out=d_z)
        np.multiply(d_z, z, out=d_z)
        np.multiply(n, n, out=change)
        np.subtract(1, change, out=change)
        np.multiply(d_n, change, out=d_n)
        np.multiply(d_n, q, out=d_r)
        if g_gates is not None:
            np.add(d_r, g_r, out=d_r)
        np.subtract(1, reset, out=rest)
        np.multiply(d_r, rest, out=d_r)
        np.multiply(d_r, reset, out=d_r)
        d_s[t][:, : 2 * hidden] = d_p[t][:, : 2 * hidden]
        d_q = np.multiply(d_n, reset, out=d_s[t][:, 2 * hidden :])
        if g_gates is not None:
            np.add(d_q, g_q, out=d_q)
        np.multiply(d_h, z, out=change)
        np.matmul(d_s[t], weight, out=d_h)
        np.add(d_h, change, out=d_h)
