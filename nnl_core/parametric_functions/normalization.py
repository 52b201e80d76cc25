"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from nnl_core import functions as F
from nnl_core.errors import ParameterError
from nnl_core.graph.variable import Variable
from nnl_core.initializers import ConstantInitializer
from nnl_core.operators.synchronized import Communicator
from nnl_core.parameters import Initial, get_parameter_or_create
from nnl_core.parametric_functions.common import layer_scope, lengths

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
    """Normalise over all axes but ``axes``, by the statistics of the batch or by running ones.

    Parameters ``bn/beta``, ``bn/gamma`` and the running statistics ``bn/mean``, ``bn/var``, whose
    shape is the input's with 1 for each axis not in ``axes``.

    Args:
        inp: any shape with these axes.
        axes: the axes that keep statistics of their own.
        decay_rate: share of the old running statistics.
        eps: what is added to the variance.
        batch_stat: whether to use the statistics of the batch, or the running ones.
        output_stat: whether mean and variance of the batch are returned, too.
        fix_parameters: whether the parameters are left out of training.
        param_init: initializers or arrays by the names of the parameters.
        no_scale: whether there is no ``gamma``.
        no_bias: whether there is no ``beta``.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.batch_normalization`, for the input and the parameters.

    Examples:
        >>> PF.batch_normalization(Variable((8, 3, 32, 32))).shape
        (8, 3, 32, 32)
        >>> sorted(nnl.get_parameters(grad_only=False))
        ['bn/beta', 'bn/gamma', 'bn/mean', 'bn/var']

    Elsewhere:
        - nnabla: `batch_normalization`
        - PyTorch: `torch.nn.BatchNorm2d`
        - ONNX: `BatchNormalization`
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

    Parameters are those of `batch_normalization`; the running statistics of all workers stay equal.

    Args:
        inp: this worker's part of the batch.
        comm: an object with ``all_reduce(array, group)``, which returns the sum over the workers;
            ``None`` where there is one worker.
        group: the name of the group of workers.
        axes: the axes that keep statistics of their own.
        decay_rate: share of the old running statistics.
        eps: what is added to the variance.
        batch_stat: whether to use the statistics of the batch, or the running ones.
        output_stat: whether mean and variance of the joined batch are returned, too.
        fix_parameters: whether the parameters are left out of training.
        param_init: initializers or arrays by the names of the parameters.
        no_scale: whether there is no ``gamma``.
        no_bias: whether there is no ``beta``.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.sync_batch_normalization`, for the input and the parameters.

    Examples:
        >>> PF.sync_batch_normalization(Variable((8, 3, 32, 32)), comm=None).shape
        (8, 3, 32, 32)

    Elsewhere:
        - nnabla: `sync_batch_normalization`
        - PyTorch: `torch.nn.SyncBatchNorm`
        - ONNX: none, `BatchNormalization` by running statistics
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
    """Normalise as `batch_normalization`, add ``z``, and apply the nonlinearity.

    The parameters of `batch_normalization`.

    Args:
        inp: any shape with these axes.
        z: what is added; or ``None``.
        axes: as of `batch_normalization`.
        decay_rate: as of `batch_normalization`.
        eps: as of `batch_normalization`.
        batch_stat: as of `batch_normalization`.
        nonlinearity: ``"relu"``.
        output_stat: as of `batch_normalization`.
        fix_parameters: whether the parameters are left out of training.
        param_init: initializers or arrays by the names of the parameters.
        no_scale: whether there is no ``gamma``.
        no_bias: whether there is no ``beta``.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.fused_batch_normalization`, for the input and the parameters.

    Examples:
        >>> PF.fused_batch_normalization(Variable((8, 3, 32, 32))).shape
        (8, 3, 32, 32)

    Elsewhere:
        - nnabla: `fused_batch_normalization`
        - PyTorch: none, `torch.nn.BatchNorm2d`, a sum and `torch.nn.ReLU`
        - ONNX: none, `BatchNormalization`, `Add` and `Relu`
    """
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


def mean_subtraction(
    inp: Variable,
    base_axis: int = 1,
    update_running_mean: bool = True,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """Subtract the mean of all batches seen so far, each batch counting the same.

    Parameters ``mean_subtraction/mean``, of the input's shape from ``base_axis`` on, and
    ``mean_subtraction/t`` of shape (1,), the number of batches; neither is trainable.

    Args:
        inp: the input, floating.
        base_axis: the first axis that belongs to an example.
        update_running_mean: whether each forward pass takes the batch into the mean first.
        fix_parameters: changes nothing, as no parameter is trained.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        The derivative, to which the batch's share of the mean belongs.

    Examples:
        >>> x = np.array([[1.0], [3.0]])
        >>> PF.mean_subtraction(x).d
        array([[-1.],
               [ 1.]])
        >>> PF.mean_subtraction(x + 1, update_running_mean=False).d
        array([[0.],
               [2.]])

    Elsewhere:
        - nnabla: `mean_subtraction`, whose gradient leaves the mean out
        - PyTorch: none, `torch.nn.BatchNorm1d` divides, too
        - ONNX: none, `Sub` of a stored mean
    """
    shape = inp.shape[base_axis:]
    with layer_scope("mean_subtraction", name):
        mean = get_parameter_or_create("mean", shape, ConstantInitializer(0), False)
        t = get_parameter_or_create("t", (1,), ConstantInitializer(0), False)
        return F.mean_subtraction(inp, mean, t, base_axis, update_running_mean)


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
    """Normalise each example over all its axes, with a gain and a shift for each element.

    Parameters ``layer_normalization/beta`` and ``gamma``: the input's shape, 1 for batch axes.

    Args:
        inp: any shape.
        batch_axis: the axes that are not normalised over: one or several.
        eps: what is added to the variance.
        output_stat: whether mean and variance are returned, too.
        fix_parameters: whether the parameters are left out of training.
        param_init: initializers or arrays by the names of the parameters.
        no_scale: whether there is no ``gamma``.
        no_bias: whether there is no ``beta``.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.layer_normalization`, for the input and the parameters.

    Examples:
        >>> PF.layer_normalization(Variable((8, 16))).shape
        (8, 16)

    Elsewhere:
        - nnabla: `layer_normalization`
        - PyTorch: `torch.nn.LayerNorm`
        - ONNX: `LayerNormalization`
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
    """Normalise each channel of each example.

    Parameters ``instance_normalization/beta`` and ``gamma``: 1 for every axis but the channels'.

    Args:
        inp: any shape with these axes.
        channel_axis: the axis of the channels.
        batch_axis: one axis or several, of the examples.
        eps: what is added to the variance.
        output_stat: whether mean and variance are returned, too.
        fix_parameters: whether the parameters are left out of training.
        param_init: initializers or arrays by the names of the parameters.
        no_scale: whether there is no ``gamma``.
        no_bias: whether there is no ``beta``.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.instance_normalization`, for the input and the parameters.

    Examples:
        >>> PF.instance_normalization(Variable((8, 4, 5, 5))).shape
        (8, 4, 5, 5)

    Elsewhere:
        - nnabla: `instance_normalization`
        - PyTorch: `torch.nn.InstanceNorm2d`
        - ONNX: `InstanceNormalization`
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
    """Normalise each group of neighbouring channels of each example.

    Parameters ``group_normalization/beta`` and ``gamma``: 1 for every axis but the channels'.

    Args:
        inp: any shape with these axes.
        num_groups: how many groups divide the channels.
        channel_axis: the axis of the channels.
        batch_axis: one axis or several, of the examples.
        eps: what is added to the variance.
        output_stat: whether mean and variance are returned, too.
        fix_parameters: whether the parameters are left out of training.
        param_init: initializers or arrays by the names of the parameters.
        no_scale: whether there is no ``gamma``.
        no_bias: whether there is no ``beta``.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.group_normalization`, for the input and the parameters.

    Examples:
        >>> PF.group_normalization(Variable((8, 4, 5, 5)), num_groups=2).shape
        (8, 4, 5, 5)

    Elsewhere:
        - nnabla: `group_normalization`
        - PyTorch: `torch.nn.GroupNorm`
        - ONNX: `GroupNormalization`
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
    given = _given(param_init, ("beta", "gamma", "mean", "var"))
    names = {name: init for name, init in given.items() if name in ("beta", "gamma")}
    beta, gamma = _beta_gamma(shape, fix_parameters, names, no_scale, no_bias)
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
    given = _given(param_init, ("beta", "gamma"))
    beta = gamma = None
    if not no_bias:
        init = given.get("beta", ConstantInitializer(0))
        beta = get_parameter_or_create("beta", shape, init, True, not fix_parameters)
    if not no_scale:
        init = given.get("gamma", ConstantInitializer(1))
        gamma = get_parameter_or_create("gamma", shape, init, True, not fix_parameters)
    return beta, gamma


def _given(
    param_init: Mapping[str, Initial] | None, names: tuple[str, ...]
) -> Mapping[str, Initial]:
    """Return the first values that a user gives; refuse those of parameters that are not there."""
    given = param_init or {}
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        found = sorted(given) if isinstance(given, Mapping) else repr(given)
        raise ParameterError(f"param_init has {found}; it is a dict of {', '.join(names)}")
    return given


def _only(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    """Return the shape with 1 for every axis that is not listed."""
    result = [1] * len(shape)
    for axis in axes:
        result[axis] = shape[axis]
    return result


def _as_tuple(axes: Axes) -> tuple[int, ...]:
    return lengths(axes, "axes")
