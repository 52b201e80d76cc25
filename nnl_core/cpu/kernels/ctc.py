"""NumPy kernels of the CTC loss: each step of the recursion in memory that is there."""

from __future__ import annotations

import numpy as np

from nnl_core.graph.operator import Array
from nnl_core.operators import ctc as family


def _range(lengths: Array) -> tuple[int, int]:
    return (int(lengths.min()), int(lengths.max())) if lengths.size else (0, 0)


def _forward(x: Array, states: Array, jumps: Array, lengths: Array, shares: Array | None) -> Array:
    """Return the log probabilities of states after the last step; fill in each step's shares."""
    emitted = np.maximum(np.take_along_axis(x, states[None], axis=2), family.NEVER)
    emitted[..., 0] = family.NEVER  # nothing stays at the start
    barred = np.where(jumps, 0, family.NEVER).astype(x.dtype)
    padded = np.full((len(states), states.shape[1] + 2), family.NEVER, x.dtype)
    alpha, one_before, two_before = padded[:, 2:], padded[:, 1:-1], padded[:, :-2]
    alpha[:, 0] = 0
    arrivals = np.empty((3, *states.shape), x.dtype)
    stayed, stepped, jumped = arrivals
    top, total = np.empty_like(stayed), np.empty_like(stayed)
    shortest, longest = _range(lengths)
    for t in range(longest):
        np.copyto(stayed, alpha)
        np.copyto(stepped, one_before)
        np.add(two_before, barred, out=jumped)
        np.maximum(stayed, stepped, out=top)
        np.maximum(top, jumped, out=top)
        arrivals -= top
        np.exp(arrivals, out=arrivals)
        np.add(stayed, stepped, out=total)
        total += jumped
        if shares is not None:
            np.divide(arrivals, total, out=shares[t])
        np.log(total, out=total)
        total += top
        total += emitted[t]
        np.copyto(alpha, total, where=True if t < shortest else (t < lengths)[:, None])
    return alpha


def _ctc_loss(
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    *,
    blank: int,
    zero_infinity: bool,
    out: Array | None,
) -> Array:
    x, states, jumps, lengths, ends = family.prepared(
        log_probs, targets, input_lengths, target_lengths, blank
    )
    _, total = family.total_of(_forward(x, states, jumps, lengths, None), ends)
    impossible = total < family.NEVER / 2
    y = np.negative(total, out=out)
    np.copyto(y, 0 if zero_infinity else np.inf, where=impossible)
    return np.asarray(y)


def _ctc_loss_gradient(
    log_probs: Array,
    g: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    *,
    blank: int,
    out: Array | None,
) -> Array:
    x, states, jumps, lengths, ends = family.prepared(
        log_probs, targets, input_lengths, target_lengths, blank
    )
    shares = np.empty((len(x), 3, *states.shape), x.dtype)
    both, total = family.total_of(_forward(x, states, jumps, lengths, shares), ends)
    factor = np.where((total < family.NEVER / 2) | (g == 0), 0, -g)[:, None]
    there = np.zeros(states.shape, x.dtype)  # factor times the share of paths at a state
    ended = np.where(factor == 0, 0, np.exp(both - total[:, None]) * factor)
    np.put_along_axis(there, ends[:, None] + np.arange(2), ended, axis=1)
    passed = np.zeros((len(x), *states.shape), x.dtype)
    parts = np.empty((3, *states.shape), x.dtype)
    before, stepped, jumped = parts
    one_before, two_before, stepped, jumped = (
        before[:, :-1], before[:, :-2], stepped[:, 1:], jumped[:, 2:],
    )  # fmt: skip
    shortest, longest = _range(lengths)
    for t in reversed(range(longest)):
        counted = True if t < shortest else (t < lengths)[:, None]
        np.copyto(passed[t], there, where=counted)
        np.multiply(there, shares[t], out=parts)
        one_before += stepped
        two_before += jumped
        np.copyto(there, before, where=counted)
    dx = np.empty(x.shape, x.dtype) if out is None else out
    dx.fill(0)
    places = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], 1) * x.shape[2] + states
    np.add.at(dx.reshape(-1), places.reshape(-1), passed.reshape(-1))
    return dx


family.ctc_loss_operator.kernel("numpy", _ctc_loss)
family.ctc_loss_gradient.kernel("numpy", _ctc_loss_gradient)
