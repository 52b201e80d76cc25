"""Operators that move each example in its own way: NumPy's draws, and then `pick`."""

from __future__ import annotations

from collections.abc import Sequence

from nnl_core.gpu.families.moving import pick_steps, starts
from nnl_core.gpu.kernel import Call, Emission, Kernel, Launch, emitter, given, kernel, over, result
from nnl_core.gpu.ordering import Plan
from nnl_core.gpu.strides import columns_of, numbers, over_rows
from nnl_core.graph.spec import normalize_axes, normalize_axis

FILE = "augmentation.cu"
CROP, FLIP = 0, 1
SHIFTS = {"nearest": 2, "reflect": 3, "constant": 4}


def _moved(
    call: Call, move: int, ranges: Sequence[tuple[int, int]], fill: float = 0
) -> Emission | None:
    """Draw a number for each example and axis, from low to low + range, and move by it."""
    x, key = call.inputs
    y, lists = call.outputs
    assert x is not None
    assert key is not None
    if max((extent for _, extent in ranges), default=0) >= (1 << 32) - 1:
        return None
    base = normalize_axis(call.attributes["base_axis"], x.ndim)
    examples, width = lists.shape
    plan = Plan()
    drawn = plan.room(8 * examples * x.ndim)
    fields = zip(y.shape, starts(y.shape), x.shape, *zip(*ranges, strict=True), strict=True)
    axes = columns_of(list(fields), x.ndim)

    def text(entry: str) -> Kernel:
        words = kernel("stochastic.cu", entry, UNIFORM=1, T="float")
        own = kernel(FILE, entry, RANK=x.ndim)
        return own._replace(text=words.text + own.text)

    where = (given(1), drawn, *axes, *numbers(examples))
    if move == FLIP:
        plan.steps.append(over(text("draw_flips"), examples * x.ndim, where[:-1]))
    else:
        plan.steps.append(Launch(text("draw_integers"), (1, 1, 1), (256, 1, 1), where))
    where = (drawn, result(1), *axes, *numbers(move))
    plan.steps.append(over_rows(text("positions"), examples, width, where))
    plan.steps += pick_steps(x, (result(1), lists), y, base, fill)
    return plan.emission()


@emitter("nnl::random_crop")
def random_crop(call: Call) -> Emission | None:
    """Begin each example's part anywhere."""
    x = call.inputs[0]
    assert x is not None
    lengths = call.outputs[0].shape
    return _moved(call, CROP, [(0, n - m) for n, m in zip(x.shape, lengths, strict=True)])


@emitter("nnl::random_flip")
def random_flip(call: Call) -> Emission | None:
    """Reverse each example along some axes, or not."""
    x = call.inputs[0]
    assert x is not None
    axes = normalize_axes({axis % x.ndim for axis in call.attributes["axes"]}, x.ndim)
    return _moved(call, FLIP, [(0, int(axis in axes)) for axis in range(x.ndim)])


@emitter("nnl::random_shift")
def random_shift(call: Call) -> Emission | None:
    """Let each example begin elsewhere."""
    x = call.inputs[0]
    assert x is not None
    shifts = call.attributes["shifts"]
    most = [0] * (x.ndim - len(shifts)) + [int(one) for one in shifts]
    move = SHIFTS[call.attributes["border_mode"]]
    fill = call.attributes["constant_value"]
    return _moved(call, move, [(-one, 2 * one) for one in most], fill)
