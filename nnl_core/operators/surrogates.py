"""What quantizers share: rounding as C does, gradients that go straight through, stored results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.modes import no_grad
from nnl_core.graph.node import add_effects
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast


def half_away(x: Array) -> Array:
    """Return the nearest whole numbers, halves away from zero, as C's ``round``."""
    whole = np.trunc(x)
    return np.asarray(whole + np.copysign(np.abs(x - whole) >= 0.5, x))


@defop("nnl::straight_through")
def straight_through(x: Array, value: Array) -> Array:
    """Return ``value``, of the same shape and dtype, where the gradient takes it for ``x``."""
    return value.copy()


straight_through.elementwise("value")


@straight_through.infer
def straight_through_infer(x: Spec, value: Spec) -> Spec:
    """Both are the same."""
    if x != value:
        raise ShapeError(f"{value.dtype} values cannot stand for {x.dtype} ones of another shape")
    return x


@straight_through.vjp(surrogate=True)
def straight_through_vjp(g: Any, y: Any, x: Any, value: Any) -> tuple[Any, ...]:
    """All of it to ``x``."""
    return g, None


@straight_through.samples
def straight_through_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """0-d, empty, odd sizes."""
    for shape in ((), (0, 2), (3, 5)):
        yield Sample(rng.normal(size=shape), rng.normal(size=shape))


def keep(
    name: str,
    output: Variable,
    pairs: list[tuple[str, Operand, Variable]],
    *,
    computed: bool = False,
) -> None:
    """Let the node of ``output`` store values in arguments, given as (name, argument, value).

    Arguments that are no variables are passed over, and, if ``computed``, those that nodes
    compute; else these raise `OperatorError`. Shapes may differ where sizes agree.
    """
    effects = []
    for argument, target, value in pairs:
        if not isinstance(target, Variable) or (computed and target.parent is not None):
            continue
        if target.parent is not None:
            raise OperatorError(
                f"{name}: {argument} is computed by {target.parent.name!r}, so it cannot be "
                "updated; give a variable without history"
            )
        if target.spec.size != value.spec.size:
            raise ShapeError(
                f"{name}: {argument} has shape {target.shape}, and {value.shape} is what it keeps"
            )
        with no_grad():
            if target.shape != value.shape:
                value = F.reshape(value, target.shape)
            effects.append(
                (target, value if value.dtype == target.dtype else cast(value, target.dtype))
            )
    if effects:
        add_effects(output, effects)
