"""Networks of FastONN: its names, indices, layers and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from nnl_core import Variable
from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.operator import Array
from nnl_core.parameters import Initial
from nnl_onn.operator_sets import OperatorSet, chosen, library
from nnl_onn.parametric_functions import operational

NAMES: Mapping[str, str] = {
    "expp": "exp",
    "logg": "log",
    "summ": "sum",
    "medd": "median",
    "maxx": "max",
    "myrelu": "relu",
}
"""What FastONN calls otherwise than this package; all else has one name in both."""

LIMIT = 4.0
"""The largest value before activation in FastONN, which scales each sample down to it."""


def fastonn_library(
    nodal: Sequence[str], pool: Sequence[str], activation: Sequence[str]
) -> list[OperatorSet]:
    """Return the operator sets that FastONN makes of names of its functions, at its indices.

    FastONN's ``sinc2``, ``sincs2`` and ``tanh2`` are not among them: their gradients are wrong, or
    of a shape that cannot be used.

    Raises `UnknownComponentError` for a name that is not known.
    """
    return library(
        *([NAMES.get(name, name) for name in names] for names in (nodal, pool, activation))
    )


def fastonn_operators(
    indices: int | Sequence[int], sets: Sequence[OperatorSet]
) -> OperatorSet | list[OperatorSet]:
    """Return the operators of a layer from indices into a library: of all neurons, or of each.

    FastONN puts the output maps of a layer in the order of their indices, whatever the order in
    which these are given; so does this, so that weights of both fit.

    Raises `OperatorError` for an index that the library has not.
    """
    return chosen(indices if isinstance(indices, int) else sorted(indices), sets)


def fastonn_weight(weight: npt.ArrayLike, kernel: Sequence[int]) -> Array:
    """Return weights of FastONN, ``(channels, maps, taps)``, as ``(maps, channels, *kernel)``.

    Raises `ShapeError` where the kernel has another number of taps.
    """
    given = np.asarray(weight)
    if given.ndim != 3 or given.shape[2] != np.prod(kernel):
        raise ShapeError(
            f"weights of shape {given.shape} should be (channels, maps, taps), of the "
            f"{np.prod(kernel)} taps of a kernel {tuple(kernel)}"
        )
    return np.ascontiguousarray(given.swapaxes(0, 1)).reshape(
        given.shape[1], given.shape[0], *kernel
    )


def fastonn_tier(
    inp: Variable,
    outmaps: int,
    kernel: int,
    operators: OperatorSet | Sequence[OperatorSet],
    sampling_factor: int = 1,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    name: str | None = None,
) -> Variable:
    """Apply a layer as FastONN computes it: ``"same"`` zeros, values scaled to `LIMIT`, sampling.

    A ``sampling_factor`` of 2 is maximum pooling by 2 afterwards, -2 an enlargement by 2, in which
    each element is repeated. Of a layer with several kinds of operators FastONN scales each kind by
    itself, or each neuron, by an option that should change speed only; here the whole layer is
    scaled by one factor. Parameters are those of `operational`; the other arguments, too.
    """
    count = inp.ndim - 2
    y = operational(
        inp, outmaps, (kernel,) * count, operators, pad="same", limit=LIMIT, w_init=w_init,
        b_init=b_init, name=name,
    )  # fmt: skip
    if sampling_factor > 1:
        return F.max_pooling(y, (sampling_factor,) * count)
    if sampling_factor < -1:
        return F.interpolate(y, scale=(float(-sampling_factor),) * count, mode="nearest")
    return y
