"""Kernels that run along an axis from one end to the other."""

from __future__ import annotations

from collections.abc import Mapping

from nnl_native.kernel import C_TYPES, Call, Emission, as_they_are, emitter
from nnl_native.kernels.groups import Pass, State, group_step
from nnl_native.kernels.nest import Member, broadcast, counting
from nnl_native.kernels.softmax import axis_of


def _run(
    call: Call, members: Mapping[str, Member], states: Mapping[str, State], text: str
) -> Emission:
    """Return the step that does something with each element in order."""
    (x, *_), axis = call.inputs, axis_of(call)
    assert x is not None
    if not x.size:
        return Emission(())
    stage = Pass(text, ordered=True, backwards=bool(call.attributes["reverse"]))
    c_type = call.outputs[0].c_type
    return Emission((group_step(x.shape, [axis], c_type, members, states, [stage]),))


@emitter("nnl::cumsum", "nnl::cumprod", layouts=as_they_are)
def running_total(call: Call) -> Emission | None:
    """Running sums and products; exclusive: of what came before."""
    (x,), (y,) = call.inputs, call.outputs
    if x is None or x.dtype.name not in C_TYPES or y.dtype.name not in C_TYPES:
        return None
    is_sum = call.operator.name == "nnl::cumsum"
    add = f"$s {'+' if is_sum else '*'}= e;"
    order = f"$y = $s; {add}" if call.attributes["exclusive"] else f"{add} $y = $s;"
    wide = "double" if y.c_type == "float" else y.c_type
    members = {"x": broadcast("in0", x, x.shape), "y": broadcast("out0", y, x.shape)}
    states = {"s": State(wide, "0" if is_sum else "1")}
    return _run(call, members, states, f"const {wide} e = $x; {order}")


@emitter("nnl::logcumsumexp", layouts=as_they_are)
def running_log_sum(call: Call) -> Emission | None:
    """The logarithm of the running sum of exponentials, in double precision."""
    (x,), (y,) = call.inputs, call.outputs
    if x is None or not call.has_only("float32", "float64"):
        return None
    # Of equal infinities the distance is NaN; their sum is twice as much, which changes nothing.
    add = (
        "const double a = e > $s ? e : $s, b = e > $s ? $s : e;"
        "$s = e == $s ? e + log(2.0) : a + log1p(exp(b - a));"
    )
    order = f"$y = $s; {add}" if call.attributes["exclusive"] else f"{add} $y = $s;"
    members = {"x": broadcast("in0", x, x.shape), "y": broadcast("out0", y, x.shape)}
    states = {"s": State("double", "-INFINITY")}
    return _run(call, members, states, f"const double e = $x; {order}")


@emitter("nnl::running_extreme", layouts=as_they_are)
def running_extreme(call: Call) -> Emission | None:
    """The extreme so far and where it was first met; from the first NaN on, that."""
    (x,), (y, index) = call.inputs, call.outputs
    if x is None or x.dtype.name not in C_TYPES:
        return None
    members = {
        "x": broadcast("in0", x, x.shape),
        "y": broadcast("out0", y, x.shape),
        "index": broadcast("out1", index, x.shape),
        "at": counting(x.shape, [axis_of(call)]),
    }
    sign = "<" if call.attributes["smallest"] else ">"
    text = (
        f"const T e = $x; const int more = (e {sign} $m) | (e != e);"
        "const int is_new = ($place < 0) | (($m == $m) & more);"
        "$m = is_new ? e : $m; $place = is_new ? $at : $place; $y = $m; $index = $place;"
    )
    states = {"m": State("T"), "place": State("int64_t", "-1")}
    return _run(call, members, states, text)


@emitter("nnl::delay", layouts=as_they_are)
def delay(call: Call) -> Emission | None:
    """The element before; zero for the first."""
    (x,), (y,) = call.inputs, call.outputs
    if x is None or x.dtype.name not in C_TYPES:
        return None
    members = {"x": broadcast("in0", x, x.shape), "y": broadcast("out0", y, x.shape)}
    return _run(call, members, {"before": State("T")}, "const T e = $x; $y = $before; $before = e;")


@emitter("nnl::recurrence", layouts=as_they_are)
def recurrence(call: Call) -> Emission | None:
    """``s = b + a s``."""
    a, b = call.inputs
    (s,) = call.outputs
    if a is None or b is None or not call.has_only("float32", "float64"):
        return None
    members = {
        "b": broadcast("in1", b, b.shape),
        "a": broadcast("in0", a, b.shape),
        "s": broadcast("out0", s, b.shape),
    }
    return _run(call, members, {"sum": State("double")}, "$sum = $b + $a * $sum; $s = $sum;")
