"""Kernels of where extremes are, and of what is put there."""

from __future__ import annotations

from nnl_native.kernel import C_TYPES, Call, Emission, as_they_are, elements, emitter
from nnl_native.kernels.groups import Once, Pass, Stage, State, group_step
from nnl_native.kernels.nest import broadcast, counting, reduced


@emitter("nnl::argmax", "nnl::argmin", layouts=as_they_are)
def position(call: Call) -> Emission | None:
    """The extreme, then the least number of an element that equals it, or that is NaN."""
    (x,), (y,) = call.inputs, call.outputs
    if x is None or x.dtype.name not in ("float32", "float64"):
        return None
    if not x.size:
        return Emission(())
    axes = call.attributes["axes"]
    value = "$x" if call.operator.name == "nnl::argmax" else "-$x"
    stages: list[Stage] = [
        Pass(
            f"const T e = {value}; $m = e > $m ? e : $m; $bad += e != e ? (T)1 : (T)0;",
            ("max:m", "+:bad"),
        ),
        Once("if ($bad > 0) $m = NAN;"),
        Pass(
            f"const T e = {value}; const int is_it = (e == $m) | ((e != e) & ($m != $m));"
            "const int64_t at = is_it ? $at : INT64_MAX; $first = at < $first ? at : $first;",
            ("min:first",),
        ),
        Once("$y = $first;"),
    ]
    states = {
        "m": State("T", "-INFINITY"),
        "bad": State("double"),
        "first": State("int64_t", "INT64_MAX"),
    }
    members = {
        "x": broadcast("in0", x, x.shape),
        "at": counting(x.shape, axes),
        "y": reduced("out0", y, x.shape, axes),
    }
    return Emission((group_step(x.shape, axes, x.c_type, members, states, stages),))


@emitter("nnl::place_reduced")
def place_reduced(call: Call) -> Emission | None:
    """Each element where its index says, zeros elsewhere."""
    g, index = call.inputs
    (y,) = call.outputs
    if g is None or index is None or g.dtype.name not in C_TYPES or index.c_type != "int64_t":
        return None
    if not y.size:
        return Emission(())
    axes = call.attributes["axes"]
    members = {
        "y": broadcast("out0", y, y.shape),
        "g": reduced("in0", g, y.shape, axes),
        "index": reduced("in1", index, y.shape, axes),
        "at": counting(y.shape, axes),
    }
    stages: list[Stage] = [
        Once(
            "if ($index < 0 || $index >= $n) { *failure = 1; return; } $it = $index; $value = $g;"
        ),
        Pass("$y = $at == $it ? $value : (T)0;"),
    ]
    states = {"it": State("int64_t"), "value": State("T")}
    numbers = {"n": elements([y.shape[axis] for axis in axes])}
    step = group_step(y.shape, axes, y.c_type, members, states, stages, numbers=numbers)
    return Emission((step,))
