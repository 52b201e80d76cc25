"""Parameters by name or scope that learn at another rate, decay otherwise, or stay as they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nnl_core.errors import SolverError
from nnl_core.hooks.loading import did_you_mean
from nnl_core.solvers.numbers import checked


@dataclass(frozen=True)
class ParameterGroup:
    """What holds for the parameters of a scope or name; see `Solver.set_groups`.

    Attributes
    ----------
    pattern
        a name, a scope (``"conv1"`` has all of ``conv1/...``), or a shell pattern (``"*/b"``)
    rate_factor
        times the solver's learning rate, whatever a schedule makes of that
    decay_factor
        times the weight decay
    frozen
        not updated at all
    """

    pattern: str
    rate_factor: float = 1.0
    decay_factor: float = 1.0
    frozen: bool = False

    def __post_init__(self) -> None:
        checked(self.rate_factor, "rate_factor")
        checked(self.decay_factor, "decay_factor")

    def holds_for(self, name: str) -> bool:
        """Whether a parameter belongs to the group."""
        return fnmatchcase(name, self.pattern) or fnmatchcase(name, f"{self.pattern}/*")


class ParameterGroups:
    """Groups in the order in which they are asked: the first that a parameter belongs to holds."""

    def __init__(self, groups: Iterable[ParameterGroup] = ()) -> None:
        self._groups = tuple(groups)
        self._rest = ParameterGroup("*")

    def of(self, name: str) -> ParameterGroup:
        """Return the group of a parameter."""
        return next((group for group in self._groups if group.holds_for(name)), self._rest)

    def check(self, names: Iterable[str]) -> None:
        """Raise `SolverError` for a group to which none of the parameters belongs."""
        names = list(names)
        for group in self._groups:
            if not any(group.holds_for(name) for name in names):
                scopes = {name[:i] for name in names for i, c in enumerate(name) if c == "/"}
                hint = did_you_mean(group.pattern, [*names, *sorted(scopes)])
                raise SolverError(
                    f"no parameter belongs to the group {group.pattern!r}"
                    f"{hint or '; there are ' + ', '.join(names)}"
                )
