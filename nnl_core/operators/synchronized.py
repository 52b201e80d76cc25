"""Sums over the workers that share a batch, and batch normalisation by the whole of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError
from nnl_core.graph.dtypes import is_half
from nnl_core.graph.node import add_effects
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axes
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast
from nnl_core.operators.dtypes import floating
from nnl_core.operators.moments import normalize
from nnl_core.operators.normalization import Axes, Outputs, check_settable, check_shapes

__all__ = ["all_reduce", "sync_batch_normalization"]


@runtime_checkable
class Communicator(Protocol):
    """What exchanges arrays between workers, as a record of ``nnl_communicators`` provides it."""

    def all_reduce(self, array: Array, group: str = "world") -> Array:
        """Return the sum of the workers' arrays, to all of them the same bits.

        The workers of ``group`` call it with arrays of one shape and dtype, and in one order. The
        array given stays as it is.
        """


class Alone:
    """The communicator of one worker: what it sums is its own."""

    def all_reduce(self, array: Array, group: str = "world") -> Array:
        """Return a copy."""
        return array.copy()

    def __repr__(self) -> str:
        return "Alone()"


@defop("nnl::all_reduce")
def all_reduce_operator(x: Array, *, comm: Communicator, group: str = "world") -> Array:
    """The sum of ``x`` over the workers of a group."""
    total = np.asarray(comm.all_reduce(x, group=group))
    if total.shape != x.shape or total.dtype != x.dtype:
        raise OperatorError(
            f"all_reduce: {comm!r} returned shape {total.shape} and {total.dtype} for an array of "
            f"shape {x.shape} and {x.dtype}"
        )
    return total.copy() if np.shares_memory(total, x) else total


@all_reduce_operator.infer
def all_reduce_infer(x: Spec, *, comm: Communicator, group: str) -> Spec:
    """That of the input."""
    return x


@all_reduce_operator.vjp
def all_reduce_vjp(g: Any, y: Any, x: Any, *, comm: Communicator, group: str) -> tuple[Any, ...]:
    """The sum of the workers' gradients: all their losses depend on what this one gave."""
    return (all_reduce_operator(g, comm=comm, group=group),)


@all_reduce_operator.samples
def all_reduce_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One worker: some, one, none."""
    for shape in ((2, 3), (), (0, 3)):
        yield Sample(rng.normal(size=shape), comm=_ALONE)


_ALONE = Alone()


def all_reduce(x: Operand, comm: Communicator, group: str = "world") -> Variable:
    """Sum ``x`` over the workers of a group, each of which gets the sum.

    All workers run graphs in which their calls stand in one order, with one shape and dtype.

    Args:
        x: this worker's array.
        comm: an object with ``all_reduce(array, group)``, which returns the sum.
        group: the name of the group of workers.

    Raises:
        OperatorError: ``comm`` cannot reduce, or returns another shape or dtype.

    Gradient:
        The sum of the workers' gradients: that of the sum of all their losses.

    Examples:
        >>> class Twins:
        ...     def all_reduce(self, array, group="world"):
        ...         return 2 * array
        >>> F.all_reduce(np.array([1.0, 2.0]), Twins()).d
        array([2., 4.])

    Elsewhere:
        - nnabla: none, a communicator's `all_reduce` outside the graph
        - PyTorch: `torch.distributed.nn.functional.all_reduce`
        - ONNX: none, a model knows no workers
    """
    if not isinstance(comm, Communicator):
        raise OperatorError(
            f"all_reduce: {comm!r} is no communicator; give an object with all_reduce(array, group)"
        )
    # A constant would be reduced once, when the program is compiled, and not at each run.
    given = x if isinstance(x, Variable) else Variable.from_numpy_array(np.asarray(x))
    total: Variable = all_reduce_operator(given, comm=comm, group=group)
    return total


def sync_batch_normalization(
    x: Operand,
    beta: Operand | None,
    gamma: Operand | None,
    mean: Variable | None,
    variance: Variable | None,
    comm: Communicator | None,
    group: str = "world",
    axes: Axes = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    output_stat: bool = False,
) -> Outputs:
    """Normalise as `batch_normalization` by the statistics of the batches of all workers together.

    Mean and variance are those of the joined batches, which may be of different lengths; they are
    found in two exchanges, of sums and of squared deviations, and two more for the gradient. The
    running statistics of all workers stay equal. An empty joined batch leaves them alone.

    Args:
        x: this worker's part of the batch, floating.
        beta: shift, or ``None``; its shape is the input's with 1 for each axis not in ``axes``.
        gamma: gain, or ``None``; of that shape.
        mean: running mean, which each forward pass sets; of that shape, or ``None``.
        variance: running variance, unbiased, likewise.
        comm: an object with ``all_reduce(array, group)``, which returns the sum over the workers;
            ``None`` where there is one worker.
        group: the name of the group of workers.
        axes: the axes that keep statistics of their own.
        decay_rate: share of the old running statistics.
        eps: what is added to the variance.
        batch_stat: whether to use the statistics of the batch, or ``mean`` and ``variance``.
        output_stat: whether to return the joined batch's mean and (biased) variance, too.

    Raises:
        ShapeError: shapes do not fit.
        OperatorError: running statistics are missing, or are computed while they should be set;
            ``comm`` cannot reduce.

    Gradient:
        That of the sum of all workers' losses: what a worker's input does to the statistics is
        felt by all. Gradients of ``beta`` and ``gamma`` are this worker's share.

    Examples:
        >>> x = np.array([[1.0], [3.0]])
        >>> F.sync_batch_normalization(x, None, None, None, None, comm=None).d.round(3)
        array([[-1.],
               [ 1.]])

    Elsewhere:
        - nnabla: `sync_batch_normalization`, for parts of one length
        - PyTorch: `torch.nn.SyncBatchNorm`
        - ONNX: none, `BatchNormalization` by running statistics
    """
    x = floating(x)
    if comm is None or not batch_stat:
        return F.batch_normalization(
            x, beta, gamma, mean, variance, axes, decay_rate, eps, batch_stat, output_stat
        )
    kept = normalize_axes(axes if isinstance(axes, int) else tuple(axes), x.ndim)
    over = tuple(axis for axis in range(x.ndim) if axis not in kept)
    check_shapes("sync_batch_normalization", x, kept, beta, gamma, mean, variance)
    check_settable("sync_batch_normalization", mean, variance)
    values = cast(x, np.float32) if is_half(x.dtype) else x
    batch_mean, batch_variance, count = _joined_moments(values, over, comm, group)
    y = normalize(
        values,
        batch_mean,
        batch_variance,
        1.0 if gamma is None else cast(floating(gamma), values.dtype),
        0.0 if beta is None else cast(floating(beta), values.dtype),
        eps=eps,
    )
    unbiased = batch_variance * (count / F.maximum_scalar(count - 1, 1))
    share = F.minimum_scalar(count, 1) * (1 - decay_rate)
    effects = [
        (running, cast(running * (1 - share) + value * share, running.dtype))
        for running, value in ((mean, batch_mean), (variance, unbiased))
        if isinstance(running, Variable)
    ]
    if effects:
        add_effects(y, effects)
    results = [cast(one, x.dtype) for one in (y, batch_mean, batch_variance)]
    return tuple(results) if output_stat else results[0]


def _joined_moments(
    x: Variable, over: tuple[int, ...], comm: Communicator, group: str
) -> tuple[Variable, Variable, Variable]:
    """Return mean and biased variance over all workers' elements, and how many those are."""
    lengths = F.gather(F.shape(x), np.array(over, np.int64))
    own = F.reshape(cast(F.prod(lengths), x.dtype), (1,))
    sums = F.sum(x, axis=over, keepdims=True)
    packed = F.concatenate(F.reshape(sums, (sums.size,)), own, axis=0)
    joined = all_reduce(packed, comm, group)
    count = F.reshape(joined[-1:], (1,) * x.ndim)
    divisor = F.maximum_scalar(count, 1)
    mean = F.reshape(joined[:-1], sums.shape) / divisor
    deviations = x - mean
    squares = F.sum(deviations * deviations, axis=over, keepdims=True)
    return mean, all_reduce(squares, comm, group) / divisor, count
