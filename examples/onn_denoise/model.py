"""Networks of three layers that tell Gaussian noise from a grey picture, and take it off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nnl_core import Variable
from nnl_core.initializers import UniformInitializer
from nnl_onn import OperatorSet, operational
from nnl_onn.self_onn import self_operational

KERNEL = (3, 3)
LINEAR = OperatorSet("mul", "sum", "identity")

Operators = Mapping[str, str] | Sequence[Mapping[str, str]]  # for all neurons, or for each


def operational_network(
    x: Variable, maps: Sequence[int], operators: Sequence[Operators]
) -> dict[str, Variable]:
    """Build layers with these operators; with mul and sum they are convolutions."""
    h = x
    for number, (count, sets) in enumerate(zip(maps, operators, strict=True), 1):
        h = operational(h, count, KERNEL, sets, pad="same", name=f"hidden{number}")
    return without(x, operational(h, 1, KERNEL, LINEAR, pad="same", name="noise"))


def self_network(x: Variable, maps: Sequence[int], order: int) -> dict[str, Variable]:
    """Build layers of generative neurons, which learn a polynomial for each connection and tap."""
    h = x
    for number, count in enumerate((*maps, 1), 1):
        small = UniformInitializer((-0.05, 0.05))  # so that high powers come into play slowly
        h = self_operational(
            h, count, KERNEL, order, pad="same", w_init=small, b_init=small, name=f"layer{number}"
        )
    return without(x, h)


def without(x: Variable, noise: Variable) -> dict[str, Variable]:
    return {"output": x - noise, "noise": noise}
