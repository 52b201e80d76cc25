"""Random numbers: keys, uniform draws and dropout, the same bits as NumPy's generator draws.

The generator counts: block ``k`` of eight numbers is a function of the key and ``k + 1`` (Philox
4x64 with ten rounds: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). So
threads draw what is theirs without waiting for each other. Draws that reject numbers, normal ones
say, are left to NumPy.
"""

from __future__ import annotations

import math

import numpy as np

from nnl_native.kernel import Call, CStep, Emission, emitter

BLOCK = 512
"""Numbers of a unit: a multiple of the eight that one count of the generator gives."""

_PHILOX = """
#ifndef NNL_PHILOX
#define NNL_PHILOX
/* Numbers in [0, 1) from eight at a time: the upper 24 bits of each half of four results. */
INLINE void nnl_uniform(const uint64_t *key, uint64_t count, float *restrict u) {
    uint64_t a = count + 1, b = 0, c = 0, d = 0, k0 = key[0], k1 = key[1];
    #pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        const unsigned __int128 left = (unsigned __int128)0xD2E7470EE14C6C93u * a;
        const unsigned __int128 right = (unsigned __int128)0xCA5A826395121157u * c;
        a = (uint64_t)(right >> 64) ^ b ^ k0;
        b = (uint64_t)right;
        c = (uint64_t)(left >> 64) ^ d ^ k1;
        d = (uint64_t)left;
        k0 += 0x9E3779B97F4A7C15u;
        k1 += 0xBB67AE8584CAA73Bu;
    }
    const uint64_t bits[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++) {
        u[2 * i] = (float)((uint32_t)bits[i] >> 8) * 0x1p-24f;
        u[2 * i + 1] = (float)(bits[i] >> 40) * 0x1p-24f;
    }
}

/* The numbers of a unit, the last few of which may be in excess. */
INLINE void nnl_uniforms(const uint64_t *key, int64_t unit, float *restrict u) {
    for (int64_t i = 0; i < BLOCK / 8; i++) nnl_uniform(key, unit * (BLOCK / 8) + i, u + 8 * i);
}
#endif
""".replace("BLOCK", str(BLOCK))

_UNITS = f"""
for (int64_t unit = begin; unit < end; unit++) {{
    const int64_t first = unit * {BLOCK}, count = MIN({BLOCK}, d[0] - first);
    float u[{BLOCK}];
    nnl_uniforms(KEY, unit, u);
    BODY
}}
"""

# The sum is of a product that was rounded, as in NumPy: what the barrier hides is not contracted.
_RAND = """
    for (int64_t j = 0; j < BLOCK; j++) u[j] *= WIDTH;
    __asm__("" : "+m"(u));
    float *restrict y = out0 + first;
    for (int64_t j = 0; j < count; j++) {
        const float value = u[j] + LOW;
        y[j] = value < LAST ? value : LAST;
    }
""".replace("BLOCK", str(BLOCK))

_DROPOUT = """
    const TYPE *restrict x = in0 + first;
    TYPE *restrict y = out0 + first;
    unsigned char *restrict mask = out1 + first;
    for (int64_t j = 0; j < count; j++) mask[j] = u[j] >= SHARE;
    for (int64_t j = 0; j < count; j++) y[j] = x[j] * (TYPE)(u[j] >= SHARE) * (TYPE)FACTOR;
"""


@emitter("nnl::random_key")
def emit_random_key(call: Call) -> Emission | None:
    """Emit the seed of a node and the number of its draw."""
    return Emission(
        (CStep("out0[0] = in0[0]; out0[1] = in1[0] - in0[1];", ("in0", "in1", "out0")),)
    )


@emitter("nnl::rand")
def emit_rand(call: Call) -> Emission | None:
    """Emit numbers uniform between two."""
    low, high = call.attributes["low"], call.attributes["high"]
    last = np.nextafter(np.float32(high), np.float32(low))
    numbers = {"WIDTH": np.float32(high - low), "LOW": np.float32(low), "LAST": last}
    if not all(map(math.isfinite, numbers.values())):
        return None
    body = _RAND
    for name, number in numbers.items():
        body = body.replace(name, f"{float(number).hex()}f")
    return _drawn(call, "in0", body, ("in0", "out0"))


@emitter("nnl::dropout")
def emit_dropout(call: Call) -> Emission | None:
    """Emit elements dropped with a probability and the others scaled, and which stay."""
    y = call.outputs[0]
    if y.dtype.name not in ("float32", "float64"):
        return None
    p = call.attributes["p"]
    body = _DROPOUT.replace("TYPE", y.c_type).replace("SHARE", f"{float(np.float32(p)).hex()}f")
    body = body.replace("FACTOR", (1 / (1 - p)).hex())
    return _drawn(call, "in1", body, ("in0", "in1", "out0", "out1"))


def _drawn(call: Call, key: str, body: str, operands: tuple[str, ...]) -> Emission:
    """Return the step that draws numbers for all elements and does something with each."""
    size = call.outputs[0].size
    text = _UNITS.replace("KEY", f"(const uint64_t *){key}").replace("BODY", body)
    step = CStep(text, operands, (size,), -(-size // BLOCK), 8 * size, _PHILOX)
    return Emission((step,) if size else ())
