"""Sequences of several lengths: padded to one length, or packed without the padding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import holding
from nnl_core.operators.gathering import as_positions, to_variable

__all__ = ["pack_padded_sequence", "pad_packed_sequence"]


@defop("nnl::packed_places", outputs=("places", "batch_sizes"))
def packed_places(
    lengths: Array, *, steps: int, count: int, batch_first: bool
) -> tuple[Array, Array]:
    """Return where packed elements lie in a flat padded array, and the sequences at each step.

    All lengths together must be ``count``.
    """
    whole = as_positions(lengths, steps + 1, "pack_padded_sequence: lengths")
    if whole.sum() != count:
        raise OperatorError(
            f"pack_padded_sequence: the lengths sum to {whole.sum()}, and summed to {count} when "
            "the graph was built; build the graph again for another sum"
        )
    if (np.diff(whole) > 0).any():
        raise OperatorError(
            f"pack_padded_sequence: lengths {whole.tolist()} increase; order the sequences by "
            "length, the longest first"
        )
    there = np.arange(steps)[:, None] < whole
    step, sequence = np.nonzero(there)
    places = sequence * steps + step if batch_first else step * len(whole) + sequence
    return places, there.sum(1)


@packed_places.infer
def packed_places_infer(
    lengths: Spec, *, steps: int, count: int, batch_first: bool
) -> tuple[Spec, ...]:
    """A place for each element, a number for each step."""
    integer = np.dtype(np.int64)
    return Spec((count,), integer), Spec((steps,), integer)


@packed_places.samples
def packed_places_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both orders, whole floats, steps that no sequence has, empty sequences, none."""
    for batch_first in (False, True):
        yield Sample(np.array([4, 2, 1]), steps=4, count=7, batch_first=batch_first)
        yield Sample(np.array([2.0, 0.0]), steps=3, count=2, batch_first=batch_first)
        yield Sample(np.zeros(0, np.int64), steps=3, count=0, batch_first=batch_first)


@defop("nnl::padded_places", outputs=("places", "lengths"))
def padded_places(
    batch_sizes: Array, *, steps: int, batch: int, count: int, batch_first: bool
) -> tuple[Array, Array]:
    """Return where packed elements belong in a flat padded array, and the sequences' lengths.

    The first size must be ``batch``, and all sizes together ``count``.
    """
    sizes = as_positions(batch_sizes, count + 1, "pad_packed_sequence: batch_sizes")
    if len(sizes) and sizes[0] != batch:
        raise OperatorError(
            f"pad_packed_sequence: the first of batch_sizes is {sizes[0]}, and was {batch} when "
            "the graph was built; build the graph again for another batch"
        )
    if sizes.sum() != count:
        raise OperatorError(
            f"pad_packed_sequence: batch_sizes sum to {sizes.sum()} for {count} packed elements"
        )
    if (np.diff(sizes) > 0).any():
        raise OperatorError(
            f"pad_packed_sequence: batch_sizes {sizes.tolist()} increase, which no sequences do "
            "that are packed with the longest first"
        )
    there = np.arange(batch) < sizes[:, None]
    step, sequence = np.nonzero(there)
    places = sequence * steps + step if batch_first else step * batch + sequence
    return places, there.sum(0)


@padded_places.infer
def padded_places_infer(
    batch_sizes: Spec, *, steps: int, batch: int, count: int, batch_first: bool
) -> tuple[Spec, ...]:
    """A place for each element, a length for each sequence."""
    integer = np.dtype(np.int64)
    return Spec((count,), integer), Spec((batch,), integer)


@padded_places.samples
def padded_places_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both orders, more steps than sizes, whole floats, no steps."""
    for batch_first in (False, True):
        yield Sample(np.array([3, 2, 2]), steps=3, batch=3, count=7, batch_first=batch_first)
        yield Sample(np.array([2.0, 0.0]), steps=4, batch=2, count=2, batch_first=batch_first)
        yield Sample(np.zeros(0, np.int64), steps=2, batch=0, count=0, batch_first=batch_first)


def pack_padded_sequence(
    padded_sequence: Operand, lengths: Operand, batch_first: bool = False
) -> tuple[Variable, Variable]:
    """Put the elements of padded sequences end to end, step by step, without the padding.

    At each step come the sequences that are that long, in their order; empty ones leave no trace.
    The sum of the lengths is read when the graph is built, as shapes are known before anything
    runs.

    Args:
        padded_sequence: ``(steps, batch, ...)``.
        lengths: ``(batch,)``, whole numbers up to ``steps``, the largest first.
        batch_first: whether the padded sequences are ``(batch, steps, ...)``.

    Returns:
        The packed sequence ``(sum of lengths, ...)``, and how many sequences have each step,
        ``(steps,)``, integers.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: a length is no whole number, out of range or larger than the one before it;
            a later run finds lengths of another sum.

    Gradient:
        Put back where the elements came from; 0 for the padding.

    Examples:
        >>> packed, sizes = F.pack_padded_sequence(np.array([[1, 2], [3, 0], [4, 0]]), [3, 1])
        >>> packed.d, sizes.d
        (array([1, 2, 3, 4]), array([2, 1, 1]))

    Elsewhere:
        - nnabla: `pack_padded_sequence`
        - PyTorch: `torch.nn.utils.rnn.pack_padded_sequence`, sizes of steps that are there only
        - ONNX: none, its recurrent layers take `sequence_lens`
    """
    x, given = to_variable(padded_sequence), to_variable(lengths)
    if x.ndim < 2 or given.shape != (x.shape[0 if batch_first else 1],):
        order = "(batch, steps, ...)" if batch_first else "(steps, batch, ...)"
        raise ShapeError(
            f"pack_padded_sequence: sequences of shape {x.shape} and lengths of shape "
            f"{given.shape} must be {order} and (batch,)"
        )
    steps = x.shape[1 if batch_first else 0]
    count = int(np.sum(as_positions(given.d, steps + 1, "pack_padded_sequence: lengths")))
    places, sizes = packed_places(given, steps=steps, count=count, batch_first=bool(batch_first))
    flat = F.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
    return F.gather(flat, places, axis=0), sizes


def pad_packed_sequence(
    packed_sequence: Operand,
    batch_sizes: Operand,
    batch_first: bool = False,
    padding_value: float | None = None,
    total_length: int | None = None,
) -> tuple[Variable, Variable]:
    """Pad packed sequences to one length: what `pack_padded_sequence` did, backwards.

    The first size, which is the batch, is read when the graph is built.

    Args:
        packed_sequence: ``(elements, ...)``, those of the first step first.
        batch_sizes: ``(steps,)``, how many sequences have each step, not increasing.
        batch_first: whether the result is ``(batch, steps, ...)``.
        padding_value: what comes after the end of a sequence; ``None`` is 0.
        total_length: steps of the result, where that is more than the sizes are.

    Returns:
        The padded sequences ``(steps, batch, ...)``, and their lengths ``(batch,)``, integers.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: a size is no whole number, negative or larger than the one before it; they
            do not sum to the elements there are; a later run finds another batch.

    Gradient:
        Taken from where the elements were put.

    Examples:
        >>> padded, lengths = F.pad_packed_sequence(np.array([1, 2, 3, 4]), [2, 1, 1])
        >>> padded.d, lengths.d
        (array([[1, 2],
               [3, 0],
               [4, 0]]), array([3, 1]))

    Elsewhere:
        - nnabla: `pad_packed_sequence`, which pads with 0 on the CPU, whatever the padding value
        - PyTorch: `torch.nn.utils.rnn.pad_packed_sequence`
        - ONNX: none, its recurrent layers take `sequence_lens`
    """
    x, sizes = to_variable(packed_sequence), to_variable(batch_sizes)
    if not x.ndim or sizes.ndim != 1:
        raise ShapeError(
            f"pad_packed_sequence: a packed sequence of shape {x.shape} and batch_sizes of shape "
            f"{sizes.shape} must be (elements, ...) and (steps,)"
        )
    batch = 0
    if sizes.size:
        first = as_positions(sizes.d[:1], x.shape[0] + 1, "pad_packed_sequence: batch_sizes")
        batch = int(first[0])
    steps = max(sizes.size, -1 if total_length is None else whole(total_length, "total_length"))
    places, lengths = padded_places(
        sizes, steps=steps, batch=batch, count=x.shape[0], batch_first=bool(batch_first)
    )
    shape, at = (steps * batch, *x.shape[1:]), F.expand_dims(places, 0)
    if padding_value:
        x = holding(x, padding_value)
        padding = Variable.constant(np.full((), padding_value, x.dtype))
        flat = F.scatter_nd(x, at, out=F.broadcast(padding, shape))
    else:
        flat = F.scatter_nd(x, at, shape)
    outer = (batch, steps) if batch_first else (steps, batch)
    return F.reshape(flat, (*outer, *x.shape[1:])), lengths
