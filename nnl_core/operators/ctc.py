"""Connectionist temporal classification: the loss of a label sequence that no step is aligned to.

A path names a label or the blank at each step; the labels it spells are what is left when repeats
are merged and blanks dropped. The states of the recursion over steps are: the start, then blank,
label, blank, label, ..., blank. A path stays, goes on to the next state, or jumps over a blank
between two labels that differ (or over the first one).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.autodiff import gradient_table, key_of
from nnl_core.graph.checks import whole
from nnl_core.graph.modes import no_grad
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating, wide
from nnl_core.operators.gathering import as_positions, to_variable

__all__ = ["ctc_loss"]

NEVER = -1e30
"""The logarithm of probability 0: finite, so that differences of two are no NaN."""


# States ------------------------------------------------------------------------------------------


@defop("nnl::ctc_states", outputs=("classes", "jumps", "ends"))
def ctc_states(
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    *,
    classes: int,
    steps: int,
    blank: int,
) -> tuple[Array, ...]:
    """Return each state's class, whether it can be jumped to, and the label state of the end.

    The start has the class of the blank. The state behind that of the end, a blank, ends paths too.
    """
    batch = len(target_lengths)
    as_positions(input_lengths, steps + 1, "ctc_loss: input_lengths")
    width = targets.shape[-1]
    lengths = as_positions(target_lengths, width + 1, "ctc_loss: target_lengths")
    place = np.arange(width)
    there = place < lengths[:, None]
    if targets.ndim == 1:
        starts = np.cumsum(lengths) - lengths
        if batch and starts[-1] + lengths[-1] != width:
            raise OperatorError(
                f"ctc_loss: target_lengths sum to {starts[-1] + lengths[-1]} for {width} targets"
            )
        targets = targets[np.where(there, place + starts[:, None], 0)] if width else there
    labels = as_positions(np.where(there, targets, 0), classes, "ctc_loss: targets")
    if (there & (labels == blank)).any():
        raise OperatorError(f"ctc_loss: targets hold the blank, {blank}; leave it out")
    result = np.full((batch, 2 * width + 2), blank)
    result[:, 2::2] = np.where(there, labels, blank)
    jumps = np.zeros(result.shape, bool)
    jumps[:, 2:3] = True
    jumps[:, 4::2] = labels[:, 1:] != labels[:, :-1]
    return result, jumps, 2 * lengths


@ctc_states.infer
def ctc_states_infer(
    targets: Spec,
    input_lengths: Spec,
    target_lengths: Spec,
    *,
    classes: int,
    steps: int,
    blank: int,
) -> tuple[Spec, ...]:
    """Twice as many states as there may be labels, and two more."""
    batch = target_lengths.shape[0]
    shape = (batch, 2 * targets.shape[-1] + 2)
    integer = np.dtype(np.int64)
    return Spec(shape, integer), Spec(shape, np.dtype(bool)), Spec((batch,), integer)


def _forward(x: Array, states: Array, jumps: Array, lengths: Array) -> tuple[Array, list[Array]]:
    """Return the log probability of all paths to each state after the last step that counts.

    And for each step, of those that arrive at a state, the shares that stayed, stepped and jumped.
    """
    emitted = np.maximum(np.take_along_axis(x, states[None], axis=2), NEVER)
    emitted[..., 0] = NEVER  # nothing stays at the start
    barred = np.where(jumps, 0, NEVER).astype(x.dtype)
    padded = np.full((len(states), states.shape[1] + 2), NEVER, x.dtype)
    alpha = padded[:, 2:]
    alpha[:, 0] = 0
    shares = []
    for t in range(len(x)):
        arrivals = np.stack([alpha, padded[:, 1:-1], padded[:, :-2] + barred])
        top = arrivals.max(axis=0)
        arrivals = np.exp(arrivals - top)
        total = arrivals.sum(axis=0)
        shares.append(arrivals / total)
        np.copyto(alpha, top + np.log(total) + emitted[t], where=(t < lengths)[:, None])
    return alpha, shares


def total_of(alpha: Array, ends: Array) -> tuple[Array, Array]:
    """Return both ends' log probabilities ``(batch, 2)``, and that of both."""
    both = np.take_along_axis(alpha, ends[:, None] + np.arange(2), axis=1)
    return both, np.logaddexp(both[:, 0], both[:, 1])


def prepared(
    log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array, blank: int
) -> tuple[Array, ...]:
    """Return the states that there are, and all as the recursion takes them."""
    steps, _, classes = log_probs.shape
    states, jumps, ends = ctc_states.reference(
        targets, input_lengths, target_lengths, classes=classes, steps=steps, blank=blank
    )
    used = int(ends.max(initial=0)) + 2
    return wide(log_probs), states[:, :used], jumps[:, :used], input_lengths.astype(np.intp), ends


# The loss ----------------------------------------------------------------------------------------


@defop(
    "nnl::ctc_loss",
    save=("log_probs", "targets", "input_lengths", "target_lengths"),
    precision="full",
)
def ctc_loss_operator(
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    *,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Array:
    """Minus the logarithm of the probability of all paths that spell the targets."""
    x, states, jumps, lengths, ends = prepared(
        log_probs, targets, input_lengths, target_lengths, blank
    )
    _, total = total_of(_forward(x, states, jumps, lengths)[0], ends)
    impossible = total < NEVER / 2
    return np.where(impossible, 0 if zero_infinity else np.inf, -total).astype(log_probs.dtype)


@ctc_loss_operator.infer
def ctc_loss_infer(
    log_probs: Spec,
    targets: Spec,
    input_lengths: Spec,
    target_lengths: Spec,
    *,
    blank: int,
    zero_infinity: bool,
) -> Spec:
    """One for each sequence."""
    if log_probs.ndim != 3:
        raise ShapeError(f"log_probs have shape {log_probs.shape}, not (steps, batch, classes)")
    batch, classes = log_probs.shape[1:]
    if targets.ndim not in (1, 2) or (targets.ndim == 2 and targets.shape[0] != batch):
        raise ShapeError(f"targets have shape {targets.shape}, not ({batch}, labels) or (labels,)")
    for name, lengths in (("input", input_lengths), ("target", target_lengths)):
        if lengths.shape != (batch,):
            raise ShapeError(f"{name}_lengths have shape {lengths.shape}, not {(batch,)}")
    if not 0 <= blank < classes:
        raise ShapeError(f"blank {blank} is none of the {classes} classes")
    return log_probs.with_shape((batch,))


@ctc_loss_operator.vjp
def ctc_loss_vjp(
    g: Any,
    y: Any,
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *,
    blank: int,
    zero_infinity: bool,
) -> tuple[Any, ...]:
    """Minus the probability, given the targets, of each class at each step."""
    dx = ctc_loss_gradient(log_probs, g, targets, input_lengths, target_lengths, blank=blank)
    return dx, None, None, None


@defop(
    "nnl::ctc_loss_gradient",
    save=("log_probs", "g", "targets", "input_lengths", "target_lengths"),
    precision="full",
)
def ctc_loss_gradient(
    log_probs: Array,
    g: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    *,
    blank: int = 0,
) -> Array:
    """Minus ``g`` times the share of paths that spell the targets by way of each class and step."""
    x, states, jumps, lengths, ends = prepared(
        log_probs, targets, input_lengths, target_lengths, blank
    )
    alpha, shares = _forward(x, states, jumps, lengths)
    both, total = total_of(alpha, ends)
    factor = np.where((total < NEVER / 2) | (g == 0), 0, -wide(g))[:, None]
    there = np.zeros_like(alpha)  # factor times the share of paths that are at a state
    ended = np.where(factor == 0, 0, np.exp(both - total[:, None]) * factor)
    np.put_along_axis(there, ends[:, None] + np.arange(2), ended, axis=1)
    passed = np.zeros((len(x), *there.shape), x.dtype)
    for t in reversed(range(len(x))):
        counted = (t < lengths)[:, None]
        np.copyto(passed[t], there, where=counted)
        before, stepped, jumped = there * shares[t]
        before[:, :-1] += stepped[:, 1:]
        before[:, :-2] += jumped[:, 2:]
        np.copyto(there, before, where=counted)
    result = np.zeros(x.shape, x.dtype)
    steps, sequences = np.ogrid[: len(x), : len(states), :1][:2]
    np.add.at(result, (steps, sequences, states), passed)
    return result.astype(log_probs.dtype)


@ctc_loss_gradient.infer
def ctc_loss_gradient_infer(
    log_probs: Spec,
    g: Spec,
    targets: Spec,
    input_lengths: Spec,
    target_lengths: Spec,
    *,
    blank: int,
) -> Spec:
    """That of the log probabilities."""
    return log_probs


@ctc_loss_gradient.vjp
def ctc_loss_gradient_vjp(
    u: Any,
    y: Any,
    log_probs: Any,
    g: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *,
    blank: int,
) -> tuple[Any, ...]:
    """Twice that of the recursion on variables."""
    x, weight = F.identity(log_probs), F.identity(g)
    loss = _composed(x, targets, input_lengths, target_lengths, blank)
    first = gradient_table([loss], [weight], {key_of(x)})[key_of(x)]
    second = gradient_table([first], [u], {key_of(x), key_of(weight)})
    return second.get(key_of(x)), second.get(key_of(weight)), None, None, None


def _composed(
    log_probs: Variable,
    targets: Variable,
    input_lengths: Variable,
    target_lengths: Variable,
    blank: int,
) -> Variable:
    """The loss in functions of variables, 0 where no path spells the targets."""
    steps, batch, classes = log_probs.shape
    states, jumps, ends = ctc_states(
        targets, input_lengths, target_lengths, classes=classes, steps=steps, blank=blank
    )
    count = states.shape[1]
    never = Variable.constant(np.full((batch, count), NEVER, np.float32))
    never = F.cast(never, log_probs.dtype)
    emitted = F.gather(F.transpose(log_probs, (1, 0, 2)), states, axis=2, batch_dims=1)
    emitted = F.maximum_scalar(emitted, NEVER)
    start = np.arange(count) == 0
    alpha = F.where(Variable.constant(np.tile(start, (batch, 1))), F.zeros_like(never), never)
    for t in range(steps):
        stepped = F.concatenate(never[:, :1], alpha[:, :-1], axis=1)
        jumped = F.concatenate(never[:, :2], alpha[:, :-2], axis=1)
        arrivals = [alpha, stepped, F.where(jumps, jumped, never)]
        with no_grad():
            top = F.maximum2(F.maximum2(arrivals[0], arrivals[1]), arrivals[2])
        stayed, stepped, jumped = (F.exp(arrival - top) for arrival in arrivals)
        arrived = top + F.log(stayed + stepped + jumped) + emitted[:, t]
        arrived = F.concatenate(never[:, :1], arrived[:, 1:], axis=1)
        counted = F.broadcast(F.expand_dims(input_lengths > t, 1), (batch, count))
        alpha = F.where(counted, arrived, alpha)
    both = F.gather(alpha, F.stack(ends, ends + 1, axis=1), axis=1, batch_dims=1)
    with no_grad():
        top = F.max(both, axis=1, keepdims=True)
    total = F.log(F.sum(F.exp(both - top), axis=1)) + F.reshape(top, (batch,))
    return F.where(total > NEVER / 2, -total, F.zeros_like(total))


def _calls(rng: np.random.Generator) -> Iterator[tuple[Array, ...]]:
    """Padded and joined targets, repeats, short inputs, no labels, impossible ones, none at all."""
    logits = rng.normal(size=(3, 3, 3))
    x = logits - np.log(np.exp(logits).sum(2, keepdims=True))
    yield x, np.array([[1, 2], [1, 1], [2, 0]]), np.array([3, 3, 2]), np.array([2, 2, 1])
    yield x, np.array([1.0, 1.0, 2.0]), np.array([3, 3, 3]), np.array([0, 2, 1])
    yield x, np.array([[1, 1], [1, 2], [-1, -1]]), np.array([2, 2, 0]), np.array([2, 2, 0])
    empty = np.zeros(0, np.int64)
    yield x[:, :0], np.zeros((0, 2), np.int64), empty, empty


@ctc_loss_operator.samples
def ctc_loss_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each blank, both infinities."""
    for call in _calls(rng):
        yield Sample(*call)
    x, targets, *lengths = next(_calls(rng))
    yield Sample(x, targets - 1, *lengths, blank=2)
    yield Sample(x, targets, np.array([2, 2, 0]), lengths[1], zero_infinity=True)


@ctc_loss_gradient.samples
def ctc_loss_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """The same, and a gradient of zero."""
    for x, *others in _calls(rng):
        yield Sample(x, rng.normal(size=x.shape[1]), *others)
    x, targets, *lengths = next(_calls(rng))
    yield Sample(x, np.array([0.5, 0.0, -1.0]), targets - 1, *lengths, blank=2)


@ctc_states.samples
def ctc_states_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Those of the loss."""
    for x, *others in _calls(rng):
        yield Sample(*others, classes=x.shape[2], steps=x.shape[0], blank=0)


@ctc_loss_operator.multiply_adds
def ctc_loss_multiply_adds(
    log_probs: Spec,
    targets: Spec,
    input_lengths: Spec,
    target_lengths: Spec,
    *,
    blank: int,
    zero_infinity: bool,
) -> int:
    """Three arrivals at each state and step."""
    return 3 * log_probs.shape[0] * log_probs.shape[1] * (2 * targets.shape[-1] + 2)


def ctc_loss(
    log_probs: Operand,
    targets: Operand,
    input_lengths: Operand,
    target_lengths: Operand,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Variable:
    """Compare sequences with labels that are not aligned to their steps.

    ``-log`` of the sum, over all paths of one class a step which spell the labels, of the product
    of their probabilities. A path spells what is left when repeats are merged and then blanks
    dropped. Nothing is averaged. Where no path spells the labels, as there are fewer steps than
    labels and repeats, the loss is infinite. A. Graves et al., "Connectionist temporal
    classification", 2006.

    Args:
        log_probs: ``(steps, batch, classes)``, logarithms of probabilities, such as those of
            `log_softmax`.
        targets: ``(batch, labels)``, padded with anything, or ``(sum of lengths,)``, one after the
            other: whole numbers of any dtype, none of them the blank.
        input_lengths: ``(batch,)``, steps that count.
        target_lengths: ``(batch,)``, labels that count.
        blank: class of the blank.
        zero_infinity: whether an infinite loss counts as 0.

    Returns:
        The loss of each sequence, ``(batch,)``.

    Raises:
        ShapeError: shapes that do not fit; a blank that is no class.
        OperatorError: when run, a length or label out of range, a label that is the blank.

    Gradient:
        Minus the probability, given the labels, that a path is at a class at each step: the
        derivative with respect to ``log_probs`` as they are. 0 where the loss is infinite.

    Examples:
        One label in two steps has three paths: twice the label, or a blank before or behind it.

        >>> half = np.log(np.full((2, 1, 2), 0.5))
        >>> np.exp(-F.ctc_loss(half, [[1]], [2], [1]).d)
        array([0.75])

    Elsewhere:
        - nnabla: none, it has no loss over alignments
        - PyTorch: `torch.nn.functional.ctc_loss`, averaged by default; its gradient is that of
          the logits, right behind `log_softmax` only
        - ONNX: none, a `Scan` over the steps
    """
    result: Variable = ctc_loss_operator(
        floating(log_probs),
        to_variable(targets),
        to_variable(input_lengths),
        to_variable(target_lengths),
        blank=whole(blank, "blank"),
        zero_infinity=bool(zero_infinity),
    )
    return result
