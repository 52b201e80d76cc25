"""Operator sets of neurons: nodal operator, pool and activation, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import TypeAlias, cast

from nnl_core import Variable
from nnl_core import functions as F
from nnl_core.errors import OperatorError, PluginError, UnknownComponentError
from nnl_core.hooks.loading import did_you_mean
from nnl_core.session import current_session
from nnl_onn.hooks import ActivationSpec
from nnl_onn.nodal import find_nodal
from nnl_onn.pools import find_pool

Activation: TypeAlias = Callable[[Variable], Variable]


@dataclass(frozen=True)
class OperatorSet:
    """What a neuron is made of, by name.

    Args:
        nodal: a nodal operator, or an expression in ``x`` and ``w``.
        pool: a pool.
        activation: one of this package, of a plugin, or a function of ``F`` of one variable, such
            as ``"tanh"``, ``"relu"``, ``"sigmoid"``, ``"elu"``, ``"identity"``.

    Raises:
        OperatorError: an expression cannot be read.
        UnknownComponentError: there is nothing of that name.
    """

    nodal: str = "mul"
    pool: str = "sum"
    activation: str = "tanh"

    def __post_init__(self) -> None:
        find_nodal(self.nodal)
        find_pool(self.pool)
        find_activation(self.activation)


Sets: TypeAlias = OperatorSet | Mapping[str, object] | Sequence[OperatorSet | Mapping[str, object]]


# Activations -------------------------------------------------------------------------------------


def lincut(x: Variable) -> Variable:
    """Return a tenth of ``x``, cut at -1 and 1."""
    return F.clip(x * 0.1, -1.0, 1.0)


def identity(x: Variable) -> Variable:
    """Return ``x``."""
    return x


_OWN: Mapping[str, Activation] = {"identity": identity, "lincut": lincut}


def find_activation(name: str) -> Activation:
    """Return an activation by name; raise `UnknownComponentError` where there is none."""
    if not isinstance(name, str):
        raise OperatorError(f"activation {name!r} is no name")
    if name in _OWN:
        return _OWN[name]
    manager = current_session().manager
    if name.isidentifier() and callable(getattr(F, name, None)):
        return cast(Activation, getattr(F, name))
    records = {record.name: record for record in manager.collect(ActivationSpec)}
    if name not in records:
        hint = did_you_mean(name, {*records, *dir(F)}) or "; it may be a function of F"
        raise UnknownComponentError(f"unknown activation {name!r}{hint}")
    found = manager.resolve(records[name])
    if not callable(found):
        raise PluginError(f"activation {name!r} ({records[name].target}) is no function")
    return cast(Activation, found)


# Lists of sets -----------------------------------------------------------------------------------


def library(
    nodal: Sequence[str], pool: Sequence[str], activation: Sequence[str]
) -> list[OperatorSet]:
    """Return all operator sets of these, in the order in which FastONN counts them.

    The nodal operator changes from each set to the next, then the activation, last the pool.
    """
    return [OperatorSet(n, p, a) for p, a, n in product(pool, activation, nodal)]


def chosen(
    indices: int | Sequence[int], sets: Sequence[OperatorSet]
) -> OperatorSet | list[OperatorSet]:
    """Return one operator set by its index, or several; `OperatorError` where there is none."""
    for index in indices if isinstance(indices, Sequence) else (indices,):
        if not isinstance(index, int) or not 0 <= index < len(sets):
            raise OperatorError(f"operator set {index!r} is not one of 0 to {len(sets) - 1}")
    if isinstance(indices, Sequence):
        return [sets[index] for index in indices]
    return sets[indices]


def operator_sets(given: Sets, maps: int) -> list[OperatorSet]:
    """Return one operator set for each output map, from what layers take as ``operators``.

    ``given`` is one set for all, or a sequence of as many sets as maps. A set may be a table of its
    names, as project files have it. Operator sets as indices are a table ``indices``, a number or
    one for each map, beside lists ``nodal``, ``pool`` and ``activation`` that make the `library`.

    Raises `OperatorError` where their number is another, or a table holds anything else.
    """
    if isinstance(given, Mapping) and "indices" in given:
        given = _indexed(given)
    if isinstance(given, (OperatorSet, Mapping)):
        return [_one(given)] * maps
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise OperatorError(f"operators {given!r} is no OperatorSet and no sequence of them")
    if len(given) != maps:
        raise OperatorError(f"{len(given)} operator sets do not fit {maps} output maps")
    return [_one(one) for one in given]


def _one(given: OperatorSet | Mapping[str, object]) -> OperatorSet:
    if isinstance(given, OperatorSet):
        return given
    names = [field.name for field in fields(OperatorSet)]
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        raise OperatorError(f"operator set {given!r} may hold {', '.join(names)}, and nothing else")
    return OperatorSet(**{name: cast(str, value) for name, value in given.items()})


def _indexed(given: Mapping[str, object]) -> OperatorSet | list[OperatorSet]:
    lists = {key: value for key, value in given.items() if key != "indices"}
    if set(lists) != {"nodal", "pool", "activation"} or any(
        isinstance(value, str) or not isinstance(value, Sequence) for value in lists.values()
    ):
        raise OperatorError(
            "operators by indices need the lists nodal, pool and activation beside them, and "
            f"nothing else; there are {', '.join(lists) or 'none'}"
        )
    known = library(**cast("dict[str, Sequence[str]]", lists))
    return chosen(cast("int | Sequence[int]", given["indices"]), known)
