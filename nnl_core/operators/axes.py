"""What reductions over axes have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.dtypes import DEFAULT_DTYPE, as_dtype, is_floating
from nnl_core.graph.operator import Array, Operator, Sample
from nnl_core.graph.spec import Spec, normalize_axes
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import broadcast_to, cast

Axes: TypeAlias = int | Sequence[int] | None


def kept_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape with length 1 along the axes."""
    return tuple(1 if axis in axes else n for axis, n in enumerate(shape))


def count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Return how many elements each result is made of."""
    return math.prod(shape[axis] for axis in axes)


def reduced_spec(x: Spec, axes: tuple[int, ...], keepdims: bool, dtype: Any = None) -> Spec:
    """Return the result of a reduction: without the axes, or with length 1 along them."""
    normalize_axes(axes, x.ndim)
    shape = (
        kept_shape(x.shape, axes)
        if keepdims
        else tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
    )
    return Spec(shape, x.dtype if dtype is None else as_dtype(dtype))


def kept(g: Variable, x: Spec | Variable, axes: tuple[int, ...]) -> Variable:
    """Give what was reduced its axes back, with length 1."""
    shape = kept_shape(x.shape, axes)
    return g if g.shape == shape else F.reshape(g, shape)


def spread(g: Variable, x: Spec | Variable, axes: tuple[int, ...]) -> Variable:
    """Repeat what was reduced over the shape it was reduced from."""
    return broadcast_to(kept(g, x, axes), x.shape)


def reduction_samples(
    low: float, high: float, *, empty: bool = True, **attributes: Any
) -> Callable[..., Iterator[Sample]]:
    """Return a samples rule: no axis, one, several, all; 0-d; empty results and empty sums."""

    def rule(rng: np.random.Generator) -> Iterator[Sample]:
        def draw(*shape: int) -> Array:
            # Distinct values, none near another, so that extremes have no ties.
            steps = rng.permutation(math.prod(shape)) + rng.uniform(0.2, 0.8)
            values = low + (high - low) * steps / (math.prod(shape) + 1)
            return values.reshape(shape)

        yield Sample(draw(3, 5), axes=(1,), keepdims=False, **attributes)
        yield Sample(draw(2, 3, 4), axes=(0, 2), keepdims=True, **attributes)
        yield Sample(draw(2, 3, 4), axes=(0, 1, 2), keepdims=False, **attributes)
        yield Sample(draw(7), axes=(0,), keepdims=True, **attributes)
        yield Sample(draw(), axes=(), keepdims=False, **attributes)
        yield Sample(np.zeros((0, 3)), axes=(1,), keepdims=False, **attributes)
        if empty:
            yield Sample(np.zeros((0, 3)), axes=(0,), keepdims=True, **attributes)

    return rule


def cost(x: Spec, **attributes: Any) -> int:
    """Return one multiply-add per element."""
    return x.size


def call_reduction(
    operator: Operator, x: Operand, axis: Axes, keepdims: bool, **attributes: Any
) -> Any:
    """Call a reduction with an ``axis`` as users give it."""
    variable = x if isinstance(x, Variable) else Variable.constant(x)
    given = tuple(axis.tolist()) if isinstance(axis, np.ndarray) and axis.ndim else axis
    try:
        axes = normalize_axes(given, variable.ndim)
    except ShapeError as error:
        name = operator.__name__
        raise ShapeError(f"{name}: {error}: input shape {variable.shape}") from None
    return operator(variable, axes=axes, keepdims=bool(keepdims), **attributes)


def call_statistic(
    operator: Operator, x: Operand, axis: Axes, keepdims: bool, **attributes: Any
) -> Any:
    """Call a reduction of floating elements: of integers in ``float64``, rounded to ``float32``."""
    variable = x if isinstance(x, Variable) else Variable.constant(x)
    if is_floating(variable.dtype):
        return call_reduction(operator, variable, axis, keepdims, **attributes)
    exact = cast(variable, np.float64)
    return cast(call_reduction(operator, exact, axis, keepdims, **attributes), DEFAULT_DTYPE)
