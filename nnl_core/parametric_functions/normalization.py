"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.initializers import ConstantInitializer
from nnl_core.operators.synchronized import Communicator
from nnl_core.parameters import Initial, get_parameter_or_create
from nnl_core.parametric_functions.common import layer_scope

Axes: TypeAlias = int | Sequence[int]
Outputs: TypeAlias = Any  # a Variable; with output_stat a tuple: also mean and variance


def batch_normalization(
    inp: Variable,
    axes: Axes = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initial] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Outputs:
    """Normalise over all axes but ``axes``; arguments as those of ``F.batch_normalization``.

    Parameters ``bn/beta``, ``bn/gamma`` and the running statistics ``bn/mean``, ``bn/var``, whose
    shape is the input's with 1 for each axis not in ``axes``. ``param_init`` initialises them by
    these names.
    """
    with layer_scope("bn", name):
        beta, gamma, mean, var = _batch_parameters(
            inp, axes, fix_parameters, param_init, no_scale, no_bias
        )
        return F.batch_normalization(
            inp, beta, gamma, mean, var, _as_tuple(axes), decay_rate, eps, batch_stat, output_stat
        )


def sync_batch_normalization(
    inp: Variable,
    comm: Communicator | None,
    group: str = "world",
    axes: Axes = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initial] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Outputs:
    """Normalise as `batch_normalization`, by the batches of all workers of ``comm`` together.

    Arguments as those of ``F.sync_batch_normalization``, parameters as `batch_normalization`.
    """
    with layer_scope("bn", name):
        beta, gamma, mean, var = _batch_parameters(
            inp, axes, fix_parameters, param_init, no_scale, no_bias
        )
        return F.sync_batch_normalization(
            inp, beta, gamma, mean, var, comm, group, _as_tuple(axes), decay_rate, eps,
            batch_stat, output_stat,
        )  # fmt: skip


def fused_batch_normalization(
    inp: Variable,
    z: Variable | None = None,
    axes: Axes = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    nonlinearity: str = "relu",
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initial] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Outputs:
    """Normalise as `batch_normalization`, add ``z``, and apply the nonlinearity."""
    with layer_scope("bn", name):
        beta, gamma, mean, var = _batch_parameters(
            inp, axes, fix_parameters, param_init, no_scale, no_bias
        )
        return F.fused_batch_normalization(
            inp,
            beta,
            gamma,
            mean,
            var,
            z,
            _as_tuple(axes),
            decay_rate,
            eps,
            batch_stat,
            nonlinearity,
            output_stat,
        )


def layer_normalization(
    inp: Variable,
    batch_axis: Axes = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initial] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Outputs:
    """Normalise over all axes but ``batch_axis``, with a scale and bias for each element.

    Parameters ``layer_normalization/beta`` and ``gamma``: the input's shape, 1 for batch axes.
    """
    shape = list(inp.shape)
    for axis in _as_tuple(batch_axis):
        shape[axis] = 1
    with layer_scope("layer_normalization", name):
        beta, gamma = _beta_gamma(shape, fix_parameters, param_init, no_scale, no_bias)
        return F.layer_normalization(
            inp, beta, gamma, batch_axis=_as_tuple(batch_axis), eps=eps, output_stat=output_stat
        )


def instance_normalization(
    inp: Variable,
    channel_axis: int = 1,
    batch_axis: Axes = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initial] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Outputs:
    """Normalise each channel of each element of the batch.

    Parameters ``instance_normalization/beta`` and ``gamma``: 1 for every axis but the channels'.
    """
    with layer_scope("instance_normalization", name):
        shape = _only(inp.shape, (channel_axis,))
        beta, gamma = _beta_gamma(shape, fix_parameters, param_init, no_scale, no_bias)
        return F.instance_normalization(
            inp,
            beta,
            gamma,
            channel_axis=channel_axis,
            batch_axis=_as_tuple(batch_axis),
            eps=eps,
            output_stat=output_stat,
        )


def group_normalization(
    inp: Variable,
    num_groups: int,
    channel_axis: int = 1,
    batch_axis: Axes = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initial] | None = None,
    no_scale: bool = False,
    no_bias: bool = False,
    name: str | None = None,
) -> Outputs:
    """Normalise each of ``num_groups`` groups of channels of each element of the batch.

    Parameters ``group_normalization/beta`` and ``gamma``: 1 for every axis but the channels'.
    """
    with layer_scope("group_normalization", name):
        shape = _only(inp.shape, (channel_axis,))
        beta, gamma = _beta_gamma(shape, fix_parameters, param_init, no_scale, no_bias)
        return F.group_normalization(
            inp,
            beta,
            gamma,
            num_groups=num_groups,
            channel_axis=channel_axis,
            batch_axis=_as_tuple(batch_axis),
            eps=eps,
            output_stat=output_stat,
        )


def _batch_parameters(
    inp: Variable,
    axes: Axes,
    fix_parameters: bool,
    param_init: Mapping[str, Initial] | None,
    no_scale: bool,
    no_bias: bool,
) -> tuple[Variable | None, Variable | None, Variable, Variable]:
    shape = _only(inp.shape, _as_tuple(axes))
    beta, gamma = _beta_gamma(shape, fix_parameters, param_init, no_scale, no_bias)
    given = param_init or {}
    mean = get_parameter_or_create("mean", shape, given.get("mean", ConstantInitializer(0)), False)
    var = get_parameter_or_create("var", shape, given.get("var", ConstantInitializer(1)), False)
    return beta, gamma, mean, var


def _beta_gamma(
    shape: Sequence[int],
    fix_parameters: bool,
    param_init: Mapping[str, Initial] | None,
    no_scale: bool,
    no_bias: bool,
) -> tuple[Variable | None, Variable | None]:
    given = param_init or {}
    beta = gamma = None
    if not no_bias:
        init = given.get("beta", ConstantInitializer(0))
        beta = get_parameter_or_create("beta", shape, init, True, not fix_parameters)
    if not no_scale:
        init = given.get("gamma", ConstantInitializer(1))
        gamma = get_parameter_or_create("gamma", shape, init, True, not fix_parameters)
    return beta, gamma


def _only(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    """Return the shape with 1 for every axis that is not listed."""
    result = [1] * len(shape)
    for axis in axes:
        result[axis] = shape[axis]
    return result


def _as_tuple(axes: Axes) -> tuple[int, ...]:
    return (axes,) if isinstance(axes, int) else tuple(axes)
