"""Kernels of norms and of the logarithm of a sum of exponentials."""

from __future__ import annotations

from nnl_native.kernel import Call, Emission, as_they_are, emitter
from nnl_native.kernels.groups import Once, Pass, Stage, State, group_step
from nnl_native.kernels.nest import broadcast, reduced
from nnl_native.kernels.reduction import SUM, Source, reduce_source
from nnl_native.kernels.softmax import LARGEST, function


@emitter("nnl::norm", layouts=as_they_are)
def norm(call: Call) -> Emission | None:
    """``(sum |x|^p)^(1/p)``, of parts of the greatest where a power could overflow."""
    (x,), (y,) = call.inputs, call.outputs
    if x is None or not call.has_only("float32", "float64"):
        return None
    axes, p = call.attributes["axes"], float(call.attributes["p"])
    element, target = broadcast("in0", x, x.shape), reduced("out0", y, x.shape, axes)
    if p == 1:
        source = Source("fabs($x)", element, x.c_type, "double")
        return reduce_source(source, SUM, x.shape, axes, target)
    if p == 2 and x.c_type == "float":  # no square of a float is beyond a double
        source = Source("(double)$x * $x", element, "double", "double")
        fold = SUM._replace(finish="sqrt($t)")
        return reduce_source(source, fold, x.shape, axes, target)
    if not x.size:
        return Emission(()) if not y.size else None
    power, root = ("r * r", "sqrt($s)") if p == 2 else (f"pow(r, {p!r})", f"pow($s, {1 / p!r})")
    stages: list[Stage] = [
        Pass("const T a = $x < 0 ? -$x : $x; $m = a > $m ? a : $m;", ("max:m",)),
        Once("if ($m == 0 || isinf($m)) $m = 1;"),
        Pass(f"const T r = fabs($x) / $m; $s += {power};", ("+:s",)),
        Once(f"$y = $m * {root};"),
    ]
    states = {"m": State("T"), "s": State("double")}
    members = {"x": element, "y": target}
    return Emission((group_step(x.shape, axes, x.c_type, members, states, stages, weight=16),))


@emitter("nnl::logsumexp", layouts=as_they_are)
def logsumexp(call: Call) -> Emission | None:
    """The largest, and the logarithm of the sum of the exponentials of distances to it."""
    (x,), (y,) = call.inputs, call.outputs
    if x is None or not call.has_only("float32", "float64"):
        return None
    if not x.size:
        return Emission(()) if not y.size else None
    axes = call.attributes["axes"]
    stages: list[Stage] = [
        LARGEST,
        Once("if (isinf($m)) $m = 0;"),
        Pass(f"$s += {function('exp', x.c_type)}($x - $m);", ("+:s",)),
        Once("$y = $m + log($s);"),
    ]
    states = {"m": State("T", "-INFINITY"), "s": State("double")}
    members = {"x": broadcast("in0", x, x.shape), "y": reduced("out0", y, x.shape, axes)}
    return Emission((group_step(x.shape, axes, x.c_type, members, states, stages, weight=12),))
