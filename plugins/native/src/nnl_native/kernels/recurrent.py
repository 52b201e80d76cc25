"""Recurrent layers over whole sequences, forward and backward.

Sequences of a batch do not depend on each other: a unit is one of them, and a thread takes its own
through all steps, with no barrier. The state's weight is packed once for all steps.
"""

from __future__ import annotations

from nnl_native.kernel import Call, CStep, Emission, emitter
from nnl_native.kernels.small_products import pack_step, padded, small_product_source

# In all bodies: `T` steps, `B` sequences, `H` hidden elements; a row is one sequence at one step.
# A product with the state has rows of `width` elements, of which the first are needed.
_MATHS = """
#ifndef NNL_GATES
#define NNL_GATES
INLINE float nnl_bend_float(float x) { return nnl_tanhf(x); }
INLINE double nnl_bend_double(double x) { return tanh(x); }
INLINE float nnl_gate_float(float x) { return 0.5f + 0.5f * nnl_tanhf(0.5f * x); }
INLINE double nnl_gate_double(double x) { return 1 / (1 + exp(-x)); }
#endif
"""

_FORWARD = """
const int64_t T = d[0], B = d[1], H = d[2], width = d[3];
for (int64_t t = 0; t < T; t++) {
    const TYPE *before = t ? out0 + (t - 1) * B * H : in1;
    nnl_small_product_TYPE(end - begin, before + begin * H, H, tmp0, H, GATES * H,
                           tmp1 + begin * width, width);
    for (int64_t b = begin; b < end; b++) {
        const int64_t row = t * B + b;
        const TYPE *restrict s = tmp1 + b * width;
        STEP
    }
}
"""

_BACKWARD = """
const int64_t T = d[0], B = d[1], H = d[2], width = d[3];
for (int64_t b = begin; b < end; b++) {
    memset(tmp1 + b * width, 0, H * sizeof(TYPE));
    START
}
for (int64_t t = T - 1; t >= 0; t--) {
    for (int64_t b = begin; b < end; b++) {
        const int64_t row = t * B + b;
        TYPE *restrict d_h = tmp1 + b * width;
        STEP
    }
    nnl_small_product_TYPE(end - begin, DONE + (t * B + begin) * GATES * H, GATES * H, tmp0,
                           GATES * H, H, tmp1 + begin * width, width);
    AFTER
}
for (int64_t b = begin; b < end; b++) memcpy(LAST + b * H, tmp1 + b * width, H * sizeof(TYPE));
"""

_RNN = """
        const TYPE *restrict p = in0 + row * H;
        TYPE *restrict h = out0 + row * H;
        #pragma omp simd
        for (int64_t j = 0; j < H; j++) {
            const TYPE a = p[j] + s[j];
            h[j] = FUNCTION;
        }
"""

_RNN_GRADIENT = """
        const TYPE *restrict h = in0 + row * H, *restrict g = in2 + row * H;
        TYPE *restrict d_p = out0 + row * H;
        #pragma omp simd
        for (int64_t j = 0; j < H; j++) d_p[j] = (g[j] + d_h[j]) * (SLOPE);
"""

_LSTM = """
        const TYPE *restrict p = in0 + row * 4 * H;
        const TYPE *restrict c_before = t ? out1 + (row - B) * H : in2 + b * H;
        TYPE *restrict h = out0 + row * H, *restrict c = out1 + row * H;
        TYPE *restrict gates = out2 + row * 4 * H;
        #pragma omp simd
        for (int64_t j = 0; j < H; j++) {
            const TYPE i = nnl_gate_TYPE(p[j] + s[j]);
            const TYPE f = nnl_gate_TYPE(p[H + j] + s[H + j]);
            const TYPE g = nnl_bend_TYPE(p[2 * H + j] + s[2 * H + j]);
            const TYPE o = nnl_gate_TYPE(p[3 * H + j] + s[3 * H + j]);
            const TYPE new = f * c_before[j] + i * g;
            gates[j] = i;
            gates[H + j] = f;
            gates[2 * H + j] = g;
            gates[3 * H + j] = o;
            c[j] = new;
            h[j] = o * nnl_bend_TYPE(new);
        }
"""

_LSTM_GRADIENT = """
        const TYPE *restrict gates = in0 + row * 4 * H, *restrict c = in1 + row * H;
        const TYPE *restrict c_before = t ? in1 + (row - B) * H : in2 + b * H;
        TYPE *restrict d_c = out2 + b * H, *restrict d_p = out0 + row * 4 * H;
        #pragma omp simd
        for (int64_t j = 0; j < H; j++) {
            const TYPE i = gates[j], f = gates[H + j], g = gates[2 * H + j], o = gates[3 * H + j];
            const TYPE tanh_c = nnl_bend_TYPE(c[j]);
            const TYPE dh = d_h[j] + G_HS;
            const TYPE dc = d_c[j] + G_CS + dh * o * (1 - tanh_c * tanh_c);
            d_p[j] = (dc * g + G_GATES(0)) * i * (1 - i);
            d_p[H + j] = (dc * c_before[j] + G_GATES(1)) * f * (1 - f);
            d_p[2 * H + j] = (dc * i + G_GATES(2)) * (1 - g * g);
            d_p[3 * H + j] = (dh * tanh_c + G_GATES(3)) * o * (1 - o);
            d_c[j] = dc * f;
        }
"""

_GRU = """
        const TYPE *restrict p = in0 + row * 3 * H;
        const TYPE *restrict h_before = before + b * H;
        TYPE *restrict h = out0 + row * H, *restrict gates = out1 + row * 4 * H;
        #pragma omp simd
        for (int64_t j = 0; j < H; j++) {
            const TYPE r = nnl_gate_TYPE(p[j] + s[j]);
            const TYPE z = nnl_gate_TYPE(p[H + j] + s[H + j]);
            const TYPE q = s[2 * H + j] + BIAS;
            const TYPE n = nnl_bend_TYPE(p[2 * H + j] + r * q);
            gates[j] = r;
            gates[H + j] = z;
            gates[2 * H + j] = n;
            gates[3 * H + j] = q;
            h[j] = (1 - z) * n + z * h_before[j];
        }
"""

_GRU_GRADIENT = """
        const TYPE *restrict gates = in0 + row * 4 * H;
        const TYPE *restrict h_before = t ? in1 + (row - B) * H : in2 + b * H;
        TYPE *restrict d_p = out0 + row * 3 * H, *restrict d_s = out1 + row * 3 * H;
        TYPE *restrict kept = out2 + b * H;
        #pragma omp simd
        for (int64_t j = 0; j < H; j++) {
            const TYPE r = gates[j], z = gates[H + j], n = gates[2 * H + j], q = gates[3 * H + j];
            const TYPE dh = d_h[j] + G_HS;
            const TYPE dn = (dh * (1 - z) + G_GATES(2)) * (1 - n * n);
            const TYPE dz = (dh * (h_before[j] - n) + G_GATES(1)) * z * (1 - z);
            const TYPE dr = (dn * q + G_GATES(0)) * r * (1 - r);
            d_p[j] = d_s[j] = dr;
            d_p[H + j] = d_s[H + j] = dz;
            d_p[2 * H + j] = dn;
            d_s[2 * H + j] = dn * r + G_GATES(3);
            kept[j] = dh * z;
        }
"""

# What the gate passes on beside the product; the last step's stays in the output.
_GRU_AFTER = """
    for (int64_t b = begin; b < end; b++) {
        TYPE *restrict d_h = tmp1 + b * width;
        const TYPE *restrict kept = out2 + b * H;
        #pragma omp simd
        for (int64_t j = 0; j < H; j++) d_h[j] += kept[j];
    }
"""


@emitter("nnl::rnn_layer")
def emit_rnn(call: Call) -> Emission | None:
    """Emit Elman's network: products, first states, weight; the states come out."""
    function = "NNL_MAX(a, 0)" if call.attributes["relu"] else "nnl_bend_TYPE(a)"
    return _forward(call, 1, _RNN.replace("FUNCTION", function))


@emitter("nnl::lstm_layer")
def emit_lstm(call: Call) -> Emission | None:
    """Emit long short-term memory: products, first states and memories, weight."""
    return _forward(call, 4, _LSTM)


@emitter("nnl::gru_layer")
def emit_gru(call: Call) -> Emission | None:
    """Emit gated recurrent units: products, first states, weight, a bias of the state or none."""
    return _forward(call, 3, _GRU.replace("BIAS", _optional(call, 3, "[j]")))


@emitter("nnl::rnn_layer_gradient")
def emit_rnn_gradient(call: Call) -> Emission | None:
    """Emit the gradients of an Elman network's products and first states."""
    slope = "h[j] > 0" if call.attributes["relu"] else "1 - h[j] * h[j]"
    return _backward(call, 1, 1, _RNN_GRADIENT.replace("SLOPE", slope))


@emitter("nnl::lstm_layer_gradient")
def emit_lstm_gradient(call: Call) -> Emission | None:
    """Emit the gradients of products, first states and memories, from those that are given."""
    start = "memset(out2 + b * H, 0, H * sizeof(TYPE));"
    given = {
        "G_HS": _optional(call, 4, "[row * H + j]"),
        "G_CS": _optional(call, 5, "[row * H + j]"),
    }
    return _backward(call, 4, 3, _gates_given(_LSTM_GRADIENT, call, 6), given, start)


@emitter("nnl::gru_layer_gradient")
def emit_gru_gradient(call: Call) -> Emission | None:
    """Emit the gradients of both products and of the first states, from those that are given."""
    given = {"G_HS": _optional(call, 4, "[row * H + j]")}
    return _backward(call, 3, 3, _gates_given(_GRU_GRADIENT, call, 5), given, after=_GRU_AFTER)


# What the three share ----------------------------------------------------------------------------


def _forward(call: Call, gates: int, step: str) -> Emission | None:
    """Emit a layer; its products come first, then its states, then the state's weight."""
    steps, batch, _ = call.inputs[0].shape if call.inputs[0] is not None else (0, 0, 0)
    weight = 3 if gates == 4 else 2
    hidden = call.outputs[0].shape[2]
    text = _FORWARD.replace("STEP", step).replace("GATES", str(gates))
    shape, strides = (hidden, gates * hidden), (1, hidden)
    return _emission(call, text, (steps, batch, hidden), f"in{weight}", shape, strides)


def _backward(
    call: Call,
    gates: int,
    weight: int,
    step: str,
    given: dict[str, str] | None = None,
    start: str = "",
    after: str = "",
) -> Emission | None:
    """Emit a layer's gradients; what the product is made of comes out as ``out1`` for ``gru``."""
    gru = gates == 3
    text = _BACKWARD.replace("START", start).replace("AFTER", after).replace("STEP", step)
    for name, value in (given or {}).items():
        text = text.replace(name, value)
    text = text.replace("DONE", "out1" if gru else "out0").replace("GATES", str(gates))
    text = text.replace("LAST", "out2" if gru else "out1")
    steps, batch, rows = call.outputs[0].shape
    hidden = rows // gates
    shape, strides = (rows, hidden), (hidden, 1)
    return _emission(call, text, (steps, batch, hidden), f"in{weight}", shape, strides)


def _emission(
    call: Call,
    text: str,
    lengths: tuple[int, int, int],
    weight: str,
    shape: tuple[int, int],
    strides: tuple[int, int],
) -> Emission | None:
    """Return the steps that pack the weight, a matrix of some shape, and run through time."""
    if not (call.has_only("float32") or call.has_only("float64")):
        return None
    steps, batch, hidden = lengths
    if not batch * hidden:
        return Emission(())
    c_type, itemsize = call.outputs[0].c_type, call.outputs[0].dtype.itemsize
    width = padded(shape[1], itemsize)
    scratch = (f"tmp0:{c_type}", f"tmp1:{c_type}")
    names = [f"in{k}" for k, one in enumerate(call.inputs) if one is not None]
    names += [f"out{k}" for k in range(len(call.outputs))]
    pack = pack_step(weight, scratch[0], c_type, itemsize, shape, strides)
    run = CStep(
        text.replace("TYPE", c_type),
        (*(name for name in names if name != weight), *scratch),
        (steps, batch, hidden, width),
        units=batch,
        cost=steps * batch * shape[0] * shape[1] // 8,
        support=small_product_source(c_type) + _MATHS,
    )
    return Emission((pack, run), (shape[0] * width * itemsize, batch * width * itemsize))


def _optional(call: Call, position: int, index: str) -> str:
    """Return the element of an input, or 0 where the input is not given."""
    given = position < len(call.inputs) and call.inputs[position] is not None
    return f"in{position}{index}" if given else "0"


def _gates_given(text: str, call: Call, position: int) -> str:
    """Write into a step the gradients of the four gates, from an input or 0."""
    for gate in range(4):
        index = f"[row * 4 * H + {gate} * H + j]"
        text = text.replace(f"G_GATES({gate})", _optional(call, position, index))
    return text
