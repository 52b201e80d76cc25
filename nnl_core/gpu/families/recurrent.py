"""Recurrent layers over whole sequences: a product and a kernel for each step."""

from __future__ import annotations

import numpy as np

from nnl_core.gpu.families.products import (
    Matrices,
    Multiplication,
    Plan,
    computing_dtype,
    divisor,
    moved,
    multiply,
    width_of,
)
from nnl_core.gpu.kernel import (
    C_TYPES,
    FLOATING,
    NULL,
    Address,
    Argument,
    Call,
    Emission,
    emitter,
    given,
    kernel,
    over,
    result,
    with_files,
)


class Layer:
    """The steps of one layer, forwards or backwards, as they are planned.

    Rows of gates are ``gates`` states long.
    """

    def __init__(self, call: Call, steps: int, batch: int, hidden: int, gates: int) -> None:
        self.call, self.plan = call, Plan()
        self.steps, self.batch, self.hidden, self.gates = steps, batch, hidden, gates
        self.dtype = call.outputs[0].dtype.name
        self.computing = computing_dtype(self.dtype)
        self.width = width_of(self.dtype)

    def state(self, address: Address, step: int) -> Address:
        """Return where the states of a step are, in memory of all steps."""
        return moved(address, step * self.batch * self.hidden * self.width)

    def row(self, address: Address, step: int, gates: int | None = None) -> Address:
        """Return where the gates of a step are; null stays null."""
        if address == NULL:
            return NULL
        size = self.batch * self.hidden * (gates or self.gates)
        return moved(address, step * size * self.width)

    def optional(self, position: int) -> Address:
        """Return an input, or null where it is not given."""
        inputs = self.call.inputs
        is_given = position < len(inputs) and inputs[position] is not None
        return given(position) if is_given else NULL

    def carried(self, gates: int = 1) -> Address:
        """Return memory for numbers of one step in the type of computation."""
        size = self.batch * self.hidden * gates * width_of(self.computing)
        return self.plan.scratch(size)

    def multiply(
        self, a: Address, weight: int, c: Address, *, backwards: bool, dtype: str | None = None
    ) -> None:
        """Add a product of states with the weight's rows, or of gates with the weight."""
        rows = self.gates * self.hidden
        columns, inner = (self.hidden, rows) if backwards else (rows, self.hidden)
        product = Multiplication(
            self.dtype,
            self.batch,
            columns,
            inner,
            Matrices(a),
            Matrices(given(weight), not backwards),
            c,
            result_dtype=dtype or self.computing,
        )
        multiply(self.call.device, self.plan, product)

    def launch(self, entry: str, *arguments: Argument, by_hidden: bool = True) -> None:
        """Add a kernel over all states."""
        function = kernel("recurrent.cu", entry, T=C_TYPES[self.dtype])
        if by_hidden:
            arguments = (*arguments, divisor(max(self.hidden, 1)))
        count = self.batch * self.hidden
        self.plan.add(over(with_files(function, "divisor.cuh"), count, arguments))


def _layer(call: Call, gates: int, states: int) -> Layer | None:
    """Return the plan of a layer; ``states`` is the output that has the first states' shape."""
    dtype = call.outputs[0].dtype.name
    if dtype not in FLOATING or not call.has_only(dtype):
        return None
    steps = call.outputs[0].shape[0]
    batch, hidden = call.outputs[states].shape[-2:]
    if batch * hidden >= 1 << 31:
        return None
    return Layer(call, steps, batch, hidden, gates)


def _emission(layer: Layer) -> Emission:
    """Return the steps, of which there are none where there are no states."""
    return layer.plan.emission() if layer.batch * layer.hidden else Emission(())


@emitter("nnl::rnn_layer")
def rnn_layer(call: Call) -> Emission | None:
    """Compute Elman's network."""
    layer = _layer(call, 1, 0)
    if layer is None:
        return None
    product = layer.carried()
    relu = np.bool_(call.attributes["relu"])
    for t in range(layer.steps):
        before = layer.state(result(), t - 1) if t else given(1)
        layer.multiply(before, 2, product, backwards=False)
        operands = (layer.row(given(0), t), product, layer.state(result(), t), relu)
        layer.launch("rnn", *operands, by_hidden=False)
    return _emission(layer)


@emitter("nnl::rnn_layer_gradient")
def rnn_layer_gradient(call: Call) -> Emission | None:
    """Go back through Elman's network."""
    layer = _layer(call, 1, 1)
    if layer is None:
        return None
    product = layer.carried()
    relu = np.bool_(call.attributes["relu"])
    following = NULL
    for t in reversed(range(layer.steps)):
        states = (layer.state(given(0), t), layer.state(given(2), t))
        layer.launch(
            "rnn_gradient", *states, following, layer.state(result(), t), relu, by_hidden=False
        )
        _back(layer, t, layer.row(result(), t), 1, product, result(1))
        following = product
    return _emission(layer)


def _back(layer: Layer, t: int, d_p: Address, weight: int, product: Address, last: Address) -> None:
    """Add the product that gives the gradient of the state before a step."""
    if t:
        layer.multiply(d_p, weight, product, backwards=True)
    else:
        layer.multiply(d_p, weight, last, backwards=True, dtype=layer.dtype)


@emitter("nnl::lstm_layer")
def lstm_layer(call: Call) -> Emission | None:
    """Compute long short-term memory."""
    layer = _layer(call, 4, 0)
    if layer is None:
        return None
    product, memory = layer.carried(4), layer.carried()
    for t in range(layer.steps):
        before = layer.state(result(), t - 1) if t else given(1)
        layer.multiply(before, 3, product, backwards=False)
        layer.launch(
            "lstm",
            layer.row(given(0), t),
            product,
            NULL if t else given(2),
            memory,
            layer.state(result(), t),
            layer.state(result(1), t),
            layer.row(result(2), t),
        )
    return _emission(layer)


@emitter("nnl::lstm_layer_gradient")
def lstm_layer_gradient(call: Call) -> Emission | None:
    """Go back through long short-term memory."""
    layer = _layer(call, 4, 1)
    if layer is None:
        return None
    product, memory = layer.carried(), layer.carried()
    g_hs, g_cs, g_gates = (layer.optional(position) for position in (4, 5, 6))
    following = NULL
    for t in reversed(range(layer.steps)):
        layer.launch(
            "lstm_gradient",
            layer.row(given(0), t),
            layer.state(given(1), t),
            layer.state(given(1), t - 1) if t else given(2),
            layer.row(g_hs, t, 1),
            layer.row(g_cs, t, 1),
            layer.row(g_gates, t),
            following,
            memory,
            layer.row(result(), t),
            NULL if t else result(2),
        )
        _back(layer, t, layer.row(result(), t), 3, product, result(1))
        following = product
    return _emission(layer)


@emitter("nnl::gru_layer")
def gru_layer(call: Call) -> Emission | None:
    """Compute gated recurrent units."""
    layer = _layer(call, 3, 0)
    if layer is None:
        return None
    product, memory = layer.carried(3), layer.carried()
    for t in range(layer.steps):
        before = layer.state(result(), t - 1) if t else given(1)
        layer.multiply(before, 2, product, backwards=False)
        layer.launch(
            "gru",
            layer.row(given(0), t),
            product,
            layer.optional(3),
            NULL if t else given(1),
            memory,
            layer.state(result(), t),
            layer.row(result(1), t, 4),
        )
    return _emission(layer)


@emitter("nnl::gru_layer_gradient")
def gru_layer_gradient(call: Call) -> Emission | None:
    """Go back through gated recurrent units."""
    layer = _layer(call, 3, 2)
    if layer is None:
        return None
    product, memory = layer.carried(), layer.carried()
    g_hs, g_gates = layer.optional(4), layer.optional(5)
    following = NULL
    for t in reversed(range(layer.steps)):
        layer.launch(
            "gru_gradient",
            layer.row(given(0), t, 4),
            layer.state(given(1), t - 1) if t else given(2),
            layer.row(g_hs, t, 1),
            layer.row(g_gates, t, 4),
            following,
            memory,
            layer.row(result(), t),
            layer.row(result(1), t),
        )
        layer.multiply(layer.row(result(1), t), 3, product, backwards=True)
        following = product
    layer.launch("sum", product, memory, result(2), by_hidden=False)
    return _emission(layer)
