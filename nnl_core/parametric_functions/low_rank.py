"""Low-rank adapters: small factors that are trained while the weights they alter stay.

Hu et al., "LoRA: low-rank adaptation of large language models", 2021. ``affine`` and
``multi_head_attention`` ask here whether a weight of theirs is adapted.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ParameterError
from nnl_core.graph.node import current_scope_name
from nnl_core.graph.variable import Variable
from nnl_core.initializers import NormalInitializer, RandomSource
from nnl_core.parameters import (
    Initial,
    get_parameter,
    get_parameter_or_create,
    get_parameters,
    pop_parameter,
)

DOWN, UP, ALPHA = "_lora_A", "_lora_B", "_lora_alpha"
"""Ends of the names of an adapter's parameters, behind the name of the weight."""


class Adapters(NamedTuple):
    """Which weights are adapted, and how."""

    rank: int
    alpha: float
    only: tuple[str, ...]
    a_init: Initial | None
    rng: RandomSource | None


class _Innermost(threading.local):
    adapters: Adapters | None = None


_innermost = _Innermost()


class Factors(NamedTuple):
    """What a weight is altered by: ``scale * down up``."""

    down: Variable
    up: Variable
    scale: Variable

    def times(self, x: Variable, base_axis: int) -> Variable:
        """Return what is added to an affine layer's output for ``x``."""
        y: Variable = F.affine(F.affine(x, self.down, None, base_axis), self.up, None, base_axis)
        return y * self.scale


@contextmanager
def low_rank_adapters(
    rank: int,
    alpha: float | None = None,
    only: str | Sequence[str] = "*",
    a_init: Initial | None = None,
    rng: RandomSource | None = None,
) -> Iterator[None]:
    """Adapt the layers that are made inside a ``with`` block (Hu et al. 2021).

    Of `affine` and `multi_head_attention`, a weight ``W`` becomes ``W + alpha / rank A B``. The
    weight, and the layer's bias, are frozen: they keep their names, so that a file of a trained
    model loads, but get no gradient, and leave ``get_parameters()``. ``B`` starts at 0, so that the
    model does what it did before. Layers with ``apply_w`` stay as they are.

    Load the file first, as loading sets what is trainable, too; then build the model inside this
    block, train `low_rank_parameters`, and at the end `merge_low_rank`.

    Parameters, beside each weight ``W``: ``W_lora_A`` of shape (inputs, rank), ``W_lora_B`` of
    shape (rank, *outputs), and ``W_lora_alpha``, not trainable.

    Args:
        rank: columns of ``A`` and rows of ``B``.
        alpha: strength of the adapters, by default ``rank``. Where there is an adapter already, say
            from a file, its own counts.
        only: patterns, of which a weight's full name must match one: ``"*/q_weight"``,
            ``"encoder*/affine/W"``.
        a_init: first value of ``A``, by default normal with standard deviation
            ``1 / sqrt(inputs)``.
        rng: where first values are drawn from.

    Raises:
        ParameterError: ``rank`` is below 1.

    Gradient:
        To the input, ``A`` and ``B``.

    Examples:
        >>> x = np.ones((1, 3))
        >>> before = PF.affine(x, 2).d
        >>> with PF.low_rank_adapters(rank=1):
        ...     y = PF.affine(x, 2)
        >>> bool((y.d == before).all())
        True
        >>> list(nnl.get_parameters())
        ['affine/W_lora_A', 'affine/W_lora_B']

    Elsewhere:
        - nnabla: none, `apply_w` of a layer can add a product to its weight
        - PyTorch: none, the package `peft` wraps the layers of a model
        - ONNX: none, the product is added to the weights
    """
    if rank < 1:
        raise ParameterError(f"low_rank_adapters: rank {rank} must be at least 1")
    patterns = (only,) if isinstance(only, str) else tuple(only)
    before = _innermost.adapters
    _innermost.adapters = Adapters(
        int(rank), float(rank if alpha is None else alpha), patterns, a_init, rng
    )
    try:
        yield
    finally:
        _innermost.adapters = before


def _adapters_of(label: str) -> Adapters | None:
    adapters = _innermost.adapters
    full_name = current_scope_name() + label
    if adapters is None or not any(fnmatchcase(full_name, only) for only in adapters.only):
        return None
    return adapters


def factors_of(label: str, w: Variable) -> Factors | None:
    """Return the factors of a weight of the current scope, where it is adapted."""
    adapters = _adapters_of(label)
    if adapters is None:
        return None
    inputs, outputs = w.shape[0], w.shape[1:]
    init = adapters.a_init
    if init is None:
        init = NormalInitializer(1 / math.sqrt(max(1, inputs)), adapters.rng)
    down = get_parameter_or_create(label + DOWN, (inputs, adapters.rank), init)
    up = get_parameter_or_create(label + UP, (adapters.rank, *outputs))
    alpha = get_parameter_or_create(label + ALPHA, (), np.float32(adapters.alpha), False)
    return Factors(down, up, alpha * (1 / adapters.rank))


def frozen(label: str, value: Variable) -> Variable:
    """Make a parameter of the current scope untrainable, and return it without its gradient."""
    parameter = get_parameter(label)
    assert parameter is not None
    parameter.need_grad = False
    return value.get_unlinked_variable(need_grad=False)


def adapted(label: str, w: Variable) -> Variable:
    """Return a weight of the current scope, with its adapter's product where it has one."""
    factors = factors_of(label, w)
    if factors is None:
        return w
    result: Variable = frozen(label, w) + F.affine(factors.down, factors.up) * factors.scale
    return result


def adapted_bias(label: str, b: Variable, weight_label: str) -> Variable:
    """Return a bias of the current scope, frozen where its weight has an adapter."""
    return b if _adapters_of(weight_label) is None else frozen(label, b)


def low_rank_parameters() -> dict[str, Variable]:
    """Return the trainable factors of all adapters under the current scope, by name.

    Gradient:
        None: it computes nothing.

    Examples:
        >>> y = PF.low_rank_affine(np.ones((1, 3)), 2, rank=1)
        >>> solver = S.Adam()
        >>> solver.set_parameters(PF.low_rank_parameters())
        >>> sorted(PF.low_rank_parameters())
        ['affine/W_lora_A', 'affine/W_lora_B']

    Elsewhere:
        - nnabla: none, `get_parameters` and a look at the names
        - PyTorch: none, as in `peft`, parameters whose names contain `lora_`
        - ONNX: none, a model has no trainable parameters
    """
    return {
        name: parameter for name, parameter in get_parameters().items() if name.endswith((DOWN, UP))
    }


def merge_low_rank() -> list[str]:
    """Add the products of all adapters under the current scope to their weights, and forget them.

    The model built afterwards without adapters does what the adapted one did. Weights stay frozen:
    set ``need_grad`` to train them further.

    Returns:
        The names of the weights that were changed.

    Raises:
        ParameterError: an adapter lacks its weight or a part; nothing was merged.

    Gradient:
        None: it computes at once.

    Examples:
        >>> y = PF.low_rank_affine(np.ones((1, 3)), 2, rank=1)
        >>> nnl.get_parameters()["affine/W_lora_B"].d = 5
        >>> y.forward()
        >>> PF.merge_low_rank()
        ['affine/W']
        >>> bool(np.allclose(PF.affine(np.ones((1, 3)), 2).d, y.d))
        True

    Elsewhere:
        - nnabla: none, as it has no adapters
        - PyTorch: none, `merge_and_unload` of the package `peft`
        - ONNX: none, the product is added to the weights
    """
    parameters = get_parameters(grad_only=False)
    labels = [name.removesuffix(DOWN) for name in parameters if name.endswith(DOWN)]
    for label in labels:
        for part in (label, label + UP, label + ALPHA):
            if part not in parameters:
                raise ParameterError(
                    f"merge_low_rank: {label + DOWN!r} is there, but {part!r} is not; call it in "
                    "the scope where the adapted model was built. Nothing was merged"
                )
    for label in labels:
        weight = parameters[label]
        down, up = (parameters[label + part].d.astype(np.float64) for part in (DOWN, UP))
        scale = float(parameters[label + ALPHA].d) / down.shape[1]
        product = down @ up.reshape(len(up), math.prod(up.shape[1:]))
        merged = weight.d.astype(np.float64) + scale * product.reshape(weight.shape)
        weight.d = merged.astype(weight.dtype)
        for part in (DOWN, UP, ALPHA):
            pop_parameter(label + part)
    return labels
