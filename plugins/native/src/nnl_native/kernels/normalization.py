"""Kernels of what is normalised by its own mean and variance, and of running statistics."""

from __future__ import annotations

from nnl_native.kernel import Call, Emission, as_they_are, elements, emitter
from nnl_native.kernels.groups import Once, Pass, Stage, State, group_step
from nnl_native.kernels.nest import broadcast


def _root(c_type: str) -> str:
    return "sqrtf" if c_type == "float" else "sqrt"


def _float_type(call: Call) -> str | None:
    """Return the one floating type of all operands, as C says it."""
    names = {one.dtype.name for one in (*call.inputs, *call.outputs) if one is not None}
    return {"float32": "float", "float64": "double"}.get(names.pop()) if len(names) == 1 else None


@emitter("nnl::standardize", layouts=as_they_are)
def standardize(call: Call) -> Emission | None:
    """Mean, then variance, then the result: three passes over a group that stays in the cache."""
    x, gamma, beta = call.inputs
    y, mean, variance = call.outputs
    c_type = _float_type(call)
    if x is None or gamma is None or beta is None or c_type is None:
        return None
    if not x.size:
        return Emission(()) if not mean.size else None
    axes = [axis % len(x.shape) for axis in call.attributes["axes"]]
    eps = f"(T){call.attributes['eps']!r}"
    stages: list[Stage] = [
        Pass("$s += $x;", ("+:s",)),
        Once("$c = $s / $n; $mean = $c;"),
        Pass("const T e = $x - $c; $v += e * e;", ("+:v",)),
        Once(f"const T w = $v / $n; $variance = w; $f = 1 / {_root(c_type)}(w + {eps});"),
        Pass("$y = ($x - $c) * $f * $gamma + $beta;"),
    ]
    members = {
        "x": broadcast("in0", x, x.shape),
        "gamma": broadcast("in1", gamma, x.shape),
        "beta": broadcast("in2", beta, x.shape),
        "y": broadcast("out0", y, x.shape),
        "mean": broadcast("out1", mean, x.shape),
        "variance": broadcast("out2", variance, x.shape),
    }
    states = {"s": State("double"), "v": State("double"), "c": State("T"), "f": State("T")}
    numbers = {"n": elements([x.shape[axis] for axis in axes])}
    step = group_step(x.shape, axes, c_type, members, states, stages, numbers=numbers)
    return Emission((step,))


@emitter("nnl::standardize_gradient", layouts=as_they_are)
def standardize_gradient(call: Call) -> Emission | None:
    """``(h - M(h) - s M(h s)) f`` with ``h = g gamma``, ``s = (x - mean) f``."""
    g, x, mean, variance, gamma = call.inputs
    (dx,) = call.outputs
    c_type = _float_type(call)
    if c_type is None or None in (g, x, mean, variance, gamma):
        return None
    assert g is not None and x is not None and mean is not None
    assert variance is not None and gamma is not None
    if not x.size:
        return Emission(())
    axes = [axis % len(x.shape) for axis in call.attributes["axes"]]
    eps = f"(T){call.attributes['eps']!r}"
    stages: list[Stage] = [
        Once(f"$c = $mean; $f = 1 / {_root(c_type)}($variance + {eps});"),
        Pass("const T h = $g * $gamma; $l += h; $a += h * ($x - $c);", ("+:l", "+:a")),
        Once("$level = $l / $n; $along = $a / $n * $f * $f;"),
        Pass("$dx = ($g * $gamma - $level - ($x - $c) * $along) * $f;"),
    ]
    members = {
        "x": broadcast("in1", x, x.shape),
        "g": broadcast("in0", g, x.shape),
        "gamma": broadcast("in4", gamma, x.shape),
        "mean": broadcast("in2", mean, x.shape),
        "variance": broadcast("in3", variance, x.shape),
        "dx": broadcast("out0", dx, x.shape),
    }
    states = dict.fromkeys(("c", "f", "level", "along"), State("T"))
    states |= {"l": State("double"), "a": State("double")}
    numbers = {"n": elements([x.shape[axis] for axis in axes])}
    step = group_step(x.shape, axes, c_type, members, states, stages, numbers=numbers)
    return Emission((step,))


@emitter("nnl::running_statistic", layouts=as_they_are)
def running_statistic(call: Call) -> Emission | None:
    """A weighted mean of an old and a new value."""
    running, value, x = call.inputs
    (z,) = call.outputs
    if running is None or value is None or x is None or not call.has_only("float32", "float64"):
        return None
    if not z.size:
        return Emission(())
    count, decay = x.size // value.size, call.attributes["decay"]
    unbiased = call.attributes["unbiased"] and count > 1
    share = 1 - decay
    text = "$z = $running;" if not count else f"$z = {decay!r} * $running + {share!r} * $value;"
    if unbiased:
        text = f"$z = {decay!r} * $running + {share!r} * $n / ($n - 1) * $value;"
    members = {
        "running": broadcast("in0", running, z.shape),
        "value": broadcast("in1", value, z.shape),
        "z": broadcast("out0", z, z.shape),
    }
    step = group_step(z.shape, (), z.c_type, members, {}, [Once(text)], numbers={"n": count})
    return Emission((step,))
