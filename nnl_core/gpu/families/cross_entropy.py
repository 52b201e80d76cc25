"""CUDA kernels of losses and errors of classification."""

from __future__ import annotations

import math

import numpy as np

from nnl_core.gpu.families.reduction import Fold, Reduction, added_type, block_of, power_of_two
from nnl_core.gpu.families.softmax import column_block, split
from nnl_core.gpu.kernel import (
    FLOATING,
    NULL,
    Address,
    Argument,
    Call,
    Emission,
    Kernel,
    Launch,
    Step,
    blocks,
    c_type,
    computing_type,
    emitter,
    failing,
    given,
    kernel,
    over,
    result,
    scratch,
    with_files,
)
from nnl_core.gpu.strides import any_type
from nnl_core.graph.spec import Spec, normalize_axis

NO_LABEL = -1  # of ignore_index: negative labels are ignored in any case


def _kernel(entry: str, scores: Spec | None, **more: str) -> Kernel:
    types = {"C": "double"}
    if scores is not None:
        types = {"T": c_type(scores.dtype), "C": computing_type(scores.dtype)}
    function = kernel("cross_entropy.cu", entry, **types, **more)
    return with_files(function, "falling.cuh")


def _labels(call: Call, place: int, classes: int) -> tuple[Argument, ...]:
    """Return the labels, which are read whatever their type, as ``Labels``."""
    target = call.inputs[place]
    assert target is not None
    message = (
        f"{call.name}: a label is not one of the {classes} classes; labels are whole numbers from "
        f"0 to {classes - 1}, negative ones are ignored"
    )
    return *any_type(given(place), target.dtype), *failing(call, message)


def _scores(call: Call, place: int, *others: int) -> Spec | None:
    """Return the scores, if they and all others (weights) have one floating dtype."""
    scores = call.inputs[place]
    assert scores is not None
    beside = [one for other in others if (one := call.inputs[other]) is not None]
    fits = scores.dtype.name in FLOATING and all(one.dtype == scores.dtype for one in beside)
    return scores if fits else None


def _weight(call: Call, place: int) -> Address:
    is_there = place < len(call.inputs) and call.inputs[place] is not None
    return given(place) if is_there else NULL


def _ignored(call: Call) -> np.int64:
    ignored = call.attributes["ignore_index"]
    return np.int64(NO_LABEL if ignored is None else ignored)


def _by_label(
    entry: str, x: Spec, axis: int, before: tuple[Argument, ...], *rest: Argument
) -> Launch:
    """Launch a team of threads for each label."""
    outer, n, inner = split(x.shape, axis)
    arguments = (*before, np.int64(outer), np.int32(n), np.int64(inner), *rest)
    if inner == 1:
        team = min(512, power_of_two(blocks(n, 8)))
        threads = block_of(team)
        run = _kernel(f"{entry}_rows", x)
        grid = (blocks(outer, threads // team), 1, 1)
        return Launch(run, grid, (threads, 1, 1), (*arguments, np.int32(team)))
    across, down = column_block(n, inner)
    run = _kernel(f"{entry}_columns", x)
    grid = (outer * blocks(inner, across), 1, 1)
    return Launch(run, grid, (across, down, 1), (*arguments, np.int32(down)))


@emitter("nnl::softmax_cross_entropy")
def softmax_cross_entropy(call: Call) -> Emission | None:
    """The largest score and the sum of exponentials, then the probabilities and the loss."""
    x = _scores(call, 0, 2)
    if x is None:
        return None
    axis = call.attributes["axis"]
    labels = _labels(call, 1, x.shape[axis])
    before = (given(0), *labels, _weight(call, 2), result(0), result(1))
    rest = (_ignored(call), np.float64(call.attributes["label_smoothing"]))
    return Emission((_by_label("loss", x, axis, before, *rest),))


@emitter("nnl::softmax_cross_entropy_gradient")
def softmax_cross_entropy_gradient(call: Call) -> Emission | None:
    """An element at a time; of weights, their sum first, where it takes part."""
    p = _scores(call, 1, 0, 3)
    if p is None:
        return None
    _, n, inner = split(p.shape, call.attributes["axis"])
    weight, smoothing = _weight(call, 3), call.attributes["label_smoothing"]
    steps: list[Step] = []
    total: Address = NULL
    rooms: tuple[int, ...] = ()
    if smoothing and weight != NULL:
        total, rooms = scratch(), (8,)
        run = _kernel("total", p)
        steps.append(Launch(run, (1, 1, 1), (256, 1, 1), (weight, total, np.int32(n))))
    numbers = (np.int32(n), np.int64(inner), _ignored(call), np.float64(smoothing))
    arguments = (given(0), given(1), *_labels(call, 2, n), weight, total, result(), *numbers)
    steps.append(over(_kernel("gradient", p), p.size, arguments))
    return Emission(tuple(steps), rooms)


@emitter("nnl::categorical_cross_entropy")
def categorical_cross_entropy(call: Call) -> Emission | None:
    """``-log`` of the label's probability."""
    x = _scores(call, 0)
    if x is None:
        return None
    _, n, inner = split(x.shape, call.attributes["axis"])
    arguments = (given(0), *_labels(call, 1, n), result(), np.int32(n), np.int64(inner))
    return Emission((over(_kernel("categorical", x), call.outputs[0].size, arguments),))


@emitter("nnl::top_n_error")
def top_n_error(call: Call) -> Emission | None:
    """Whether too many classes score at least as high as the label."""
    x = _scores(call, 0)
    if x is None:
        return None
    axis = call.attributes["axis"]
    before = (given(0), *_labels(call, 1, x.shape[axis]), result())
    return Emission((_by_label("top_n", x, axis, before, np.int32(call.attributes["n"])),))


@emitter("nnl::class_targets")
def class_targets(call: Call) -> Emission | None:
    """The share of each class, an element at a time."""
    target, weight = call.inputs[0], call.inputs[1]
    assert target is not None
    y = call.outputs[0]
    types = {"OUT": c_type(y.dtype), "W": "float" if weight is None else c_type(weight.dtype)}
    _, n, inner = split(y.shape, call.attributes["axis"])
    smoothing = np.float64(call.attributes["label_smoothing"])
    numbers = (np.int32(n), np.int64(inner), _ignored(call), smoothing)
    arguments = (*_labels(call, 0, n), _weight(call, 1), result(), *numbers)
    return Emission((over(_kernel("targets", None, **types), y.size, arguments),))


@emitter("nnl::confusion_matrix")
def confusion_matrix(call: Call) -> Emission | None:
    """The first of the highest scores, then counts by label and class."""
    x, target = call.inputs
    assert x is not None
    assert target is not None
    table = call.outputs[0]
    axis = normalize_axis(call.attributes["axis"], x.ndim)
    fold = Fold(
        "LargestPlace", added_type(x.dtype), np.dtype(np.int64), 16, vector=x.dtype.itemsize
    )
    steps, rooms = Reduction(call, x, (axis,)).steps(fold, given(0), scratch(), piece=1)
    clear, count = (_kernel(entry, None) for entry in ("clear", "confusion"))
    classes = x.shape[axis]
    counted = (*_labels(call, 1, classes), scratch(), result(), np.int32(classes))
    launches = (
        over(clear, table.size, (result(),)),
        *steps,
        over(count, target.size, counted),
    )
    return Emission(launches, (8 * math.prod(target.shape), *rooms))
