"""Kernels of losses and errors of classification."""

from __future__ import annotations

from nnl_native.kernel import Call, Emission, Operand, as_they_are, elements, emitter
from nnl_native.kernels.groups import Once, Pass, Stage, State, group_step
from nnl_native.kernels.nest import Member, broadcast
from nnl_native.kernels.softmax import FALLING, LARGEST, axis_of, falling

FLOATS = ("float32", "float64")


def labelled(target: Operand, ignore: int | None = None) -> str:
    """Return C that sets ``$label``, -1 where it is ignored, from ``$target``.

    What is no whole number or names none of ``$classes`` is left to NumPy to complain about.
    """
    lines = []
    if target.c_type in ("float", "double"):
        lines.append(
            "{ const double given = $target; if (!(fabs(given) < 9e15) || floor(given) != given) "
            "{ *failure = 1; return; } }"
        )
    lines.append("$label = (int64_t)$target;")
    if ignore is not None:
        lines.append(f"if ($label == {ignore}) $label = -1;")
    lines.append("if ($label >= $classes) { *failure = 1; return; }")
    lines.append("if ($label < 0) $label = -1;")
    return "\n".join(lines)


def _labels(target: Operand) -> bool:
    return target.dtype.name in FLOATS or target.dtype.kind in "iub"


def _weighted(weight: Operand, shape: tuple[int, ...], axis: int, reference: str) -> Member:
    """Return weights of classes along their axis."""
    strides = tuple(weight.strides[0] if place == axis else 0 for place in range(len(shape)))
    return Member(reference, weight.c_type, strides)


@emitter("nnl::softmax_cross_entropy", layouts=as_they_are)
def softmax_cross_entropy(call: Call) -> Emission | None:
    """The largest score, the sum of exponentials, then the loss and the probabilities."""
    x, target, weight = call.inputs
    y, p = call.outputs
    if x is None or target is None or x.dtype.name not in FLOATS or not _labels(target):
        return None
    if weight is not None and weight.dtype != x.dtype:
        return None
    if not x.size:
        return Emission(())
    axis, smoothing = axis_of(call), call.attributes["label_smoothing"]
    classes = x.shape[axis]
    members = {
        "x": broadcast("in0", x, x.shape),
        "p": broadcast("out1", p, x.shape),
        "target": broadcast("in1", target, x.shape),
        "y": broadcast("out0", y, x.shape),
    }
    each, own, sums = "", "1", ["+:s"]
    if weight is not None:
        members["w"] = _weighted(weight, x.shape, axis, "in2")
        own = "${w_base}[label * $w_step]"
    if smoothing:
        share = "$w" if weight is not None else "1"
        each = f"$t += ($x - $m) * {share}; $u += {share};"
        sums += ["+:t", "+:u"]
    exp = falling(x.c_type)
    loss = f"{own} * (total - (${{x_base}}[label * $x_step] - $m))"
    if smoothing:
        loss = (
            f"(1 - (T){smoothing!r}) * ({loss}) "
            f"+ (T){smoothing!r} * ((T)(total * $u - $t) / $classes)"
        )
    stages: list[Stage] = [
        LARGEST,
        Pass(f"const T e = {exp}($x - $m); $p = e; $s += e; {each}", tuple(sums)),
        Once(
            labelled(target, call.attributes["ignore_index"])
            + f"{{ const T total = log($s); const int64_t label = MAX($label, 0);\n"
            f"$f = 1 / $s; $y = $label < 0 ? (T)0 : (T)({loss}); }}"
        ),
        Pass("$p *= $f;"),
    ]
    states = {
        "m": State("T", "-INFINITY"),
        "s": State("double"),
        "f": State("T"),
        "label": State("int64_t"),
    }
    if smoothing:
        states |= {"t": State("double"), "u": State("double")}
    numbers = {"classes": classes}
    step = group_step(
        x.shape, [axis], x.c_type, members, states, stages, numbers=numbers, weight=16
    )
    return Emission((step._replace(support=FALLING),))


@emitter("nnl::softmax_cross_entropy_gradient", layouts=as_they_are)
def softmax_cross_entropy_gradient(call: Call) -> Emission | None:
    """``g (p sum(t) - t)`` for the class targets ``t``; 0 where ``g`` is, whatever ``p``."""
    g, p, target, weight = call.inputs
    (dx,) = call.outputs
    if g is None or p is None or target is None or not _labels(target):
        return None
    if p.dtype.name not in FLOATS or g.dtype != p.dtype:
        return None
    if weight is not None and weight.dtype != p.dtype:
        return None
    if not p.size:
        return Emission(())
    axis, smoothing = axis_of(call), call.attributes["label_smoothing"]
    members = {
        "p": broadcast("in1", p, p.shape),
        "dx": broadcast("out0", dx, p.shape),
        "g": broadcast("in0", g, p.shape),
        "target": broadcast("in2", target, p.shape),
    }
    own = share = "1"
    stages: list[Stage] = []
    if weight is not None:
        members["w"] = _weighted(weight, p.shape, axis, "in3")
        own, share = "${w_base}[label * $w_step]", "$w"
    if smoothing and weight is not None:
        stages.append(Pass("$u += $w;", ("+:u",)))
    elif smoothing:
        stages.append(Once("$u = $classes;"))
    # How much of g the label's class has, how much all have together, and each has of itself.
    spread = f"(T){smoothing!r} / $classes"
    everywhere = "$at + $each * (T)$u" if smoothing else "$at"
    change = f"$p * $all - $each * {share}" if smoothing else "$p * $all"
    stages += [
        Once(
            labelled(target, call.attributes["ignore_index"])
            + "{ const int64_t label = MAX($label, 0); const T g = $label < 0 ? (T)0 : $g;\n"
            f"$at = g * {own} * (T){1 - smoothing!r}; $each = g * ({spread});\n"
            f"$all = {everywhere}; $none = g == 0; }}"
        ),
        Pass(f"$dx = $none ? (T)0 : {change};"),
        Once("if (!$none) ${dx_base}[$label * $dx_step] -= $at;"),
    ]
    states = dict.fromkeys(("at", "all", "each"), State("T"))
    states |= {"label": State("int64_t"), "none": State("int32_t"), "u": State("double")}
    numbers = {"classes": p.shape[axis]}
    step = group_step(p.shape, [axis], p.c_type, members, states, stages, numbers=numbers)
    return Emission((step,))


@emitter("nnl::categorical_cross_entropy", layouts=as_they_are)
def categorical_cross_entropy(call: Call) -> Emission | None:
    """``-log`` of the label's probability."""
    x, target = call.inputs
    (y,) = call.outputs
    if x is None or target is None or x.dtype.name not in FLOATS or not _labels(target):
        return None
    if not y.size:
        return Emission(())
    axis = axis_of(call)
    tiny = "1.17549435082228751e-38"  # the smallest normal float
    members = {
        "x": broadcast("in0", x, x.shape),
        "target": broadcast("in1", target, x.shape),
        "y": broadcast("out0", y, x.shape),
    }
    text = (
        labelled(target) + "{ const T p = ${x_base}[MAX($label, 0) * $x_step];\n"
        f"$y = $label < 0 ? (T)0 : (T)-log(p < (T){tiny} ? (T){tiny} : p); }}"
    )
    states = {"label": State("int64_t")}
    numbers = {"classes": x.shape[axis]}
    step = group_step(x.shape, [axis], x.c_type, members, states, [Once(text)], numbers=numbers)
    return Emission((step._replace(cost=4 * elements(y.shape)),))


@emitter("nnl::top_n_error", layouts=as_they_are)
def top_n_error(call: Call) -> Emission | None:
    """Whether more than ``n`` classes score at least as high as the label; NaN does."""
    x, target = call.inputs
    (y,) = call.outputs
    if x is None or target is None or x.dtype.name not in FLOATS or not _labels(target):
        return None
    if not x.size:
        return Emission(())
    axis = axis_of(call)
    members = {
        "x": broadcast("in0", x, x.shape),
        "target": broadcast("in1", target, x.shape),
        "y": broadcast("out0", y, x.shape),
    }
    stages: list[Stage] = [
        Once(labelled(target) + "$score = ${x_base}[MAX($label, 0) * $x_step];"),
        Pass("$above += $x < $score ? (T)0 : (T)1;", ("+:above",)),
        Once(f"$y = $label >= 0 && $above > {int(call.attributes['n'])};"),
    ]
    states = {"label": State("int64_t"), "score": State("T"), "above": State("double")}
    numbers = {"classes": x.shape[axis]}
    step = group_step(x.shape, [axis], x.c_type, members, states, stages, numbers=numbers)
    return Emission((step,))
