// Steps of recurrent layers: what follows the product of the state with its weight.
//
// T is stored, W computed in; products and what goes from step to step is W. Launch of all: a thread an
// element (sequence, hidden) of the state. They are bound by memory: each reads and writes its operands
// once, about 13 elements a thread in the largest.
typedef Computing<T>::type W;

INLINE float bend(float x) { return tanhf(x); }
INLINE double bend(double x) { return tanh(x); }
INLINE W gate(W x) { return (W)0.5 + (W)0.5 * bend((W)0.5 * x); }
INLINE W or_zero(const T *x, int64_t at) { return x ? wide(x[at]) : (W)0; }

extern "C" __global__ void KERNEL(rnn)(const T *p, const W *s, T *h, bool relu, int64_t count) {
    FOR_EACH(item, count) {
        const W a = wide(p[item]) + s[item];
        h[item] = narrow<T>(relu ? larger(a, (W)0) : bend(a));
    }
}

// `d_next`: of the state, by the step after this one, or null.
extern "C" __global__ void KERNEL(rnn_gradient)(const T *h, const T *g, const W *d_next, T *d_p,
                                                bool relu, int64_t count) {
    FOR_EACH(item, count) {
        const W value = wide(h[item]), slope = relu ? (W)(value > 0) : 1 - value * value;
        d_p[item] = narrow<T>((wide(g[item]) + (d_next ? d_next[item] : (W)0)) * slope);
    }
}

// `c0` is null but in the first step; from then on `memory` has it.
extern "C" __global__ void KERNEL(lstm)(const T *p, const W *s, const T *c0, W *memory, T *h, T *c,
                                        T *gates, Divisor hidden, int64_t count) {
    const int64_t H = hidden.by;
    FOR_EACH(item, count) {
        const int64_t row = hidden.quotient((uint32_t)item), j = item - row * H, at = row * 4 * H + j;
        const W i = gate(wide(p[at]) + s[at]);
        const W f = gate(wide(p[at + H]) + s[at + H]);
        const W g = bend(wide(p[at + 2 * H]) + s[at + 2 * H]);
        const W o = gate(wide(p[at + 3 * H]) + s[at + 3 * H]);
        const W now = f * (c0 ? wide(c0[item]) : memory[item]) + i * g;
        memory[item] = now;
        c[item] = narrow<T>(now);
        h[item] = narrow<T>(o * bend(now));
        gates[at] = narrow<T>(i);
        gates[at + H] = narrow<T>(f);
        gates[at + 2 * H] = narrow<T>(g);
        gates[at + 3 * H] = narrow<T>(o);
    }
}

// `d_next` and `memory`: gradients of both states by the step after this one; null and unread in the
// first step that is gone back. `d_c0`: null but in the last.
extern "C" __global__ void KERNEL(lstm_gradient)(const T *gates, const T *c, const T *c_before,
                                                 const T *g_h, const T *g_c, const T *g_gates,
                                                 const W *d_next, W *memory, T *d_p, T *d_c0,
                                                 Divisor hidden, int64_t count) {
    const int64_t H = hidden.by;
    FOR_EACH(item, count) {
        const int64_t row = hidden.quotient((uint32_t)item), j = item - row * H, at = row * 4 * H + j;
        const W i = wide(gates[at]), f = wide(gates[at + H]);
        const W g = wide(gates[at + 2 * H]), o = wide(gates[at + 3 * H]);
        const W bent = bend(wide(c[item]));
        const W d_h = (d_next ? d_next[item] : (W)0) + or_zero(g_h, item);
        const W d_c = (d_next ? memory[item] : (W)0) + or_zero(g_c, item) + d_h * o * (1 - bent * bent);
        d_p[at] = narrow<T>((d_c * g + or_zero(g_gates, at)) * i * (1 - i));
        d_p[at + H] =
            narrow<T>((d_c * wide(c_before[item]) + or_zero(g_gates, at + H)) * f * (1 - f));
        d_p[at + 2 * H] = narrow<T>((d_c * i + or_zero(g_gates, at + 2 * H)) * (1 - g * g));
        d_p[at + 3 * H] = narrow<T>((d_h * bent + or_zero(g_gates, at + 3 * H)) * o * (1 - o));
        memory[item] = d_c * f;
        if (d_c0) d_c0[item] = narrow<T>(d_c * f);
    }
}

// `h0` is null but in the first step; from then on `memory` has it.
extern "C" __global__ void KERNEL(gru)(const T *p, const W *s, const T *bias, const T *h0, W *memory,
                                       T *h, T *gates, Divisor hidden, int64_t count) {
    const int64_t H = hidden.by;
    FOR_EACH(item, count) {
        const int64_t row = hidden.quotient((uint32_t)item), j = item - row * H;
        const int64_t from = row * 3 * H + j, to = row * 4 * H + j;
        const W r = gate(wide(p[from]) + s[from]);
        const W z = gate(wide(p[from + H]) + s[from + H]);
        const W q = s[from + 2 * H] + or_zero(bias, j);
        const W n = bend(wide(p[from + 2 * H]) + r * q);
        const W now = (1 - z) * n + z * (h0 ? wide(h0[item]) : memory[item]);
        memory[item] = now;
        h[item] = narrow<T>(now);
        gates[to] = narrow<T>(r);
        gates[to + H] = narrow<T>(z);
        gates[to + 2 * H] = narrow<T>(n);
        gates[to + 3 * H] = narrow<T>(q);
    }
}

// As `lstm_gradient`; `memory` has what the gate passes on beside the product.
extern "C" __global__ void KERNEL(gru_gradient)(const T *gates, const T *h_before, const T *g_h,
                                                const T *g_gates, const W *d_next, W *memory, T *d_p,
                                                T *d_s, Divisor hidden, int64_t count) {
    const int64_t H = hidden.by;
    FOR_EACH(item, count) {
        const int64_t row = hidden.quotient((uint32_t)item), j = item - row * H;
        const int64_t from = row * 4 * H + j, to = row * 3 * H + j;
        const W r = wide(gates[from]), z = wide(gates[from + H]);
        const W n = wide(gates[from + 2 * H]), q = wide(gates[from + 3 * H]);
        const W d_h = (d_next ? d_next[item] + memory[item] : (W)0) + or_zero(g_h, item);
        const W d_n = (d_h * (1 - z) + or_zero(g_gates, from + 2 * H)) * (1 - n * n);
        const W d_z = (d_h * (wide(h_before[item]) - n) + or_zero(g_gates, from + H)) * z * (1 - z);
        const W d_r = (d_n * q + or_zero(g_gates, from)) * r * (1 - r);
        d_p[to] = d_s[to] = narrow<T>(d_r);
        d_p[to + H] = d_s[to + H] = narrow<T>(d_z);
        d_p[to + 2 * H] = narrow<T>(d_n);
        d_s[to + 2 * H] = narrow<T>(d_n * r + or_zero(g_gates, from + 3 * H));
        memory[item] = d_h * z;
    }
}

// y = a + b.
extern "C" __global__ void KERNEL(sum)(const W *a, const W *b, T *y, int64_t count) {
    FOR_EACH(item, count) y[item] = narrow<T>(a[item] + b[item]);
}
