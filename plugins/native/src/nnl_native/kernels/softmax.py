"""Kernels of softmax, of its logarithm and of their gradients."""

from __future__ import annotations

from nnl_native.kernel import Call, Emission, as_they_are, emitter
from nnl_native.kernels.groups import Once, Pass, Stage, State, group_step
from nnl_native.kernels.nest import broadcast

# exp(x) for x <= 0 as nnl_expf computes it, without what large x and denormal results need: the
# power of two is read off the bits of n plus 1.5 * 2^23, and what is below the least normal is 0.
FALLING = """
INLINE float NAME_exp(float x) {
    const float least = -87.3365402f, magic = 12582912.0f;
    float c = x < least ? least : x;
    float t = c * 1.44269504088896341f + magic;
    float n = t - magic;
    float r = c - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9841270e-4f;
    p = p * r + 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    p = p * nnl_from_bits((int32_t)(((uint32_t)nnl_bits(t) + 127u) << 23));
    return x < least ? 0.0f : p;
}
"""
LARGEST = Pass("$m = $x > $m ? $x : $m;", ("max:m",))  # NaN comes out of the exponentials


def falling(c_type: str) -> str:
    """Return the name of the exponential of what is not positive; it needs `FALLING`."""
    return "NAME_exp" if c_type == "float" else "nnl_exp"


def function(name: str, c_type: str) -> str:
    """Return the name of an elementary function for an element type."""
    return f"nnl_{name}f" if c_type == "float" else f"nnl_{name}"


def axis_of(call: Call) -> int:
    """Return the axis counted from the front."""
    first = call.inputs[0]
    assert first is not None
    return int(call.attributes["axis"]) % len(first.shape)


@emitter("nnl::softmax", "nnl::masked_softmax", layouts=as_they_are)
def softmax(call: Call) -> Emission | None:
    """Exponentials of the distances to the largest, then divided by their sum."""
    (x,), (y,) = call.inputs, call.outputs
    if x is None or not call.has_only("float32", "float64"):
        return None
    if not x.size:
        return Emission(())
    exp = falling(x.c_type)
    masked = call.operator.name == "nnl::masked_softmax"
    stages: list[Stage] = [
        LARGEST,
        Once("if ($m == -INFINITY) $m = 0;" if masked else ""),
        Pass(f"const T e = {exp}($x - $m); $y = e; $s += e;", ("+:s",)),
        Once("$f = $s == 0 ? 1 : 1 / $s;" if masked else "$f = 1 / $s;"),
        Pass("$y *= $f;"),
    ]
    members = {"x": broadcast("in0", x, x.shape), "y": broadcast("out0", y, x.shape)}
    states = {"m": State("T", "-INFINITY"), "s": State("double"), "f": State("T")}
    step = group_step(x.shape, [axis_of(call)], x.c_type, members, states, stages, weight=16)
    return Emission((step._replace(support=FALLING),))


@emitter("nnl::log_softmax", layouts=as_they_are)
def log_softmax(call: Call) -> Emission | None:
    """Distances to the largest, less the logarithm of the sum of their exponentials."""
    (x,), (y,) = call.inputs, call.outputs
    if x is None or not call.has_only("float32", "float64"):
        return None
    if not x.size:
        return Emission(())
    exp = falling(x.c_type)
    stages: list[Stage] = [
        LARGEST,
        Pass(f"$s += {exp}($x - $m);", ("+:s",)),
        Once("$f = log($s);"),
        Pass("$y = ($x - $m) - $f;"),
    ]
    members = {"x": broadcast("in0", x, x.shape), "y": broadcast("out0", y, x.shape)}
    states = {"m": State("T", "-INFINITY"), "s": State("double"), "f": State("T")}
    step = group_step(x.shape, [axis_of(call)], x.c_type, members, states, stages, weight=16)
    return Emission((step._replace(support=FALLING),))


@emitter("nnl::softmax_gradient", "nnl::log_softmax_gradient", layouts=as_they_are)
def softmax_gradient(call: Call) -> Emission | None:
    """``y (g - sum(g y))``, or ``g - exp(y) sum(g)``; where a factor is 0, so is the product."""
    g, y = call.inputs
    (dx,) = call.outputs
    if g is None or y is None or not call.has_only("float32", "float64"):
        return None
    if not g.size:
        return Emission(())
    stages: list[Stage]
    if call.operator.name == "nnl::softmax_gradient":
        stages = [
            Pass("$s += $g == 0 ? (T)0 : $g * $y;", ("+:s",)),
            Once("$t = $s;"),
            Pass("const T c = $g - $t; $dx = c == 0 ? (T)0 : $y * c;"),
        ]
    else:
        exp = function("exp", g.c_type)
        stages = [
            Pass("$s += $g;", ("+:s",)),
            Once("$t = $s;"),
            Pass(f"$dx = $t == 0 ? $g : $g - {exp}($y) * $t;"),
        ]
    members = {
        "g": broadcast("in0", g, g.shape),
        "y": broadcast("in1", y, g.shape),
        "dx": broadcast("out0", dx, g.shape),
    }
    states = {"s": State("double"), "t": State("T")}
    return Emission(
        (group_step(g.shape, [axis_of(call)], g.c_type, members, states, stages, weight=8),)
    )
