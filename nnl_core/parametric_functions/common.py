"""What parametric functions share: their scope, weights and biases."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from nnl_core.errors import ParameterError
from nnl_core.graph.checks import whole, wholes
from nnl_core.graph.variable import Variable
from nnl_core.initializers import (
    ConstantInitializer,
    RandomSource,
    UniformInitializer,
    calc_uniform_lim_glorot,
)
from nnl_core.parameters import Initial, get_parameter_or_create, parameter_scope

Applied: TypeAlias = Callable[[Variable], Variable]
Description: TypeAlias = tuple[str, str, str, bool]
Result = TypeVar("Result")


def lengths(value: int | Sequence[int], name: str) -> tuple[int, ...]:
    """Return one whole number or several as a tuple; ``name`` is the argument, for the error."""
    return wholes(value, name) if isinstance(value, Iterable) else (whole(value, name),)


@contextmanager
def layer_scope(layer: str, name: str | None) -> Iterator[None]:
    """Enter the scope of a layer's parameters: ``layer``, under ``name`` where one is given."""
    with parameter_scope(layer if name is None else f"{name}/{layer}"):
        yield


def weight(
    shape: Sequence[int],
    init: Initial | None,
    fans: tuple[int, int, Sequence[int]],
    fix_parameters: bool,
    rng: RandomSource | None,
    apply: Applied | None = None,
) -> Variable:
    """Return the parameter ``W``, by default Glorot-uniform for ``fans``: maps in, out, kernel."""
    if init is None:
        init = UniformInitializer(calc_uniform_lim_glorot(*fans), rng)
    parameter = get_parameter_or_create("W", shape, init, True, not fix_parameters)
    return parameter if apply is None else apply(parameter)


def bias(
    shape: Sequence[int],
    init: Initial | None,
    with_bias: bool,
    fix_parameters: bool,
    apply: Applied | None = None,
) -> Variable | None:
    """Return the parameter ``b``, by default zero, or ``None`` without bias."""
    if not with_bias:
        return None
    if init is None:
        init = ConstantInitializer()
    parameter = get_parameter_or_create("b", shape, init, True, not fix_parameters)
    return parameter if apply is None else apply(parameter)


def parametric_function_api(
    scope_name: str | None = None, param_desc: Sequence[Description] | None = None
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Make a parametric function of one's own: a decorator.

    The function runs in a parameter scope, and takes one more argument, ``name``, of a scope around
    that: its last, or by name only where it takes any number of arguments.

    Args:
        scope_name: the scope's name, by default the function's.
        param_desc: what the function's docstring is to say of its parameters: for each its name,
            what it is, its shape, and whether it is trainable.

    Returns:
        The decorator.

    Raises:
        ParameterError: the function has an argument ``name`` already.

    Gradient:
        The function's.

    Examples:
        >>> @PF.parametric_function_api("scale", [("s", "a factor", "(1,)", True)])
        ... def scaled(x, fix_parameters=False):
        ...     return x * PF.get_parameter_or_create("s", (1,), np.array([2.0]))
        >>> scaled(Variable.from_numpy_array(np.array([3.0])), name="first").d
        array([6.])
        >>> list(nnl.get_parameters())
        ['first/scale/s']

    Elsewhere:
        - nnabla: `parametric_function_api`
        - PyTorch: none, `torch.nn.Module` owns its parameters
        - ONNX: none, a model is no code
    """

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        layer = scope_name or function.__name__
        signature = _with_name(function)

        @functools.wraps(function)
        def parametric(*args: object, **kwargs: object) -> Result:
            bound = signature.bind(*args, **kwargs)
            name = bound.arguments.pop("name", None)
            with layer_scope(layer, name):
                return function(*bound.args, **bound.kwargs)

        parametric.__signature__ = signature  # type: ignore[attr-defined]  # as inspect reads it
        if param_desc:
            parametric.__doc__ = _described(inspect.getdoc(function) or "", layer, param_desc)
        return parametric

    return decorate


def _with_name(function: Callable[..., object]) -> inspect.Signature:
    """Return a function's signature with ``name=None`` at the end."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if "name" in signature.parameters:
        raise ParameterError(
            f"parametric function {function.__name__!r} has an argument 'name' already; the "
            "decorator adds it"
        )
    kinds = {parameter.kind for parameter in parameters}
    by_name = kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY}
    kind = inspect.Parameter.KEYWORD_ONLY if by_name else inspect.Parameter.POSITIONAL_OR_KEYWORD
    end = len(parameters) - (inspect.Parameter.VAR_KEYWORD in kinds)
    parameters.insert(end, inspect.Parameter("name", kind, default=None))
    return signature.replace(parameters=parameters)


def _described(text: str, layer: str, descriptions: Sequence[Description]) -> str:
    lines = [
        f"- ``{layer}/{name}`` of shape ``{shape}``{'' if trainable else ', not trainable'}: {what}"
        for name, what, shape, trainable in descriptions
    ]
    return "\n".join([text, "", "Parameters made:", "", *lines]).strip()
