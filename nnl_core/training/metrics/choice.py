"""From what users write, a name, a table or an object, to a metric."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from nnl_core.errors import ModelError, NnlError
from nnl_core.hooks import MetricSpec
from nnl_core.hooks.loading import did_you_mean, resolve
from nnl_core.session import Session
from nnl_core.training.metrics.base import Comparison, Mean, Metric, Table

MetricChoice: TypeAlias = "str | Comparison | type[Metric] | Metric"

QUICK = 10_000  # elements of a state whose value takes no time worth mentioning


class Choice(NamedTuple):
    """A metric that was chosen.

    ``metric`` is its name, ``"module:attribute"``, a function of output and target, a `Metric`, or
    a class of them, which gets the ``arguments``. ``higher_is_better`` overrides what its record
    or class says.
    """

    metric: MetricChoice
    arguments: Mapping[str, object] = {}
    higher_is_better: bool | None = None

    def make(self, label: str, session: Session) -> Metric:
        """Return a new metric; errors begin with its label."""
        found: object = self.metric
        direction = self.higher_is_better
        if isinstance(self.metric, str) and ":" in self.metric:
            found = resolve(self.metric, f"metric {self.metric!r}")
        elif isinstance(self.metric, str):
            record = session.manager.component(MetricSpec, self.metric)
            found = session.manager.resolve(record)
            if direction is None:
                direction = record.higher_is_better
        made = self._of(found, label)
        if not hasattr(made, "state"):
            raise ModelError(
                f"metric {label!r}: {type(made).__name__} has no state; reset must set the array "
                "that holds all it knows"
            )
        if direction is not None:
            made.higher_is_better = direction
        return made

    def _of(self, found: object, label: str) -> Metric:
        if isinstance(found, Metric):
            if self.arguments:
                raise ModelError(f"metric {label!r} takes no {next(iter(self.arguments))!r}")
            made = copy.copy(found)
            made.reset()
            return made
        if not callable(found):
            raise ModelError(f"metric {label!r} is {found!r}; choose a function or a Metric")
        self._check_arguments(found, label)
        if isinstance(found, type) and issubclass(found, Metric):
            try:
                return cast("Callable[..., Metric]", found)(**self.arguments)
            except (TypeError, ValueError, NnlError) as error:
                raise ModelError(f"metric {label!r}: {error}") from error
        return Mean(functools.partial(cast(Comparison, found), **self.arguments))

    def _check_arguments(self, found: object, label: str) -> None:
        if not self.arguments:
            return
        parameters = inspect.signature(cast(Comparison, found)).parameters
        known = list(parameters) if isinstance(found, type) else list(parameters)[2:]
        for name in self.arguments:
            if name not in known:
                hint = did_you_mean(name, known) or f"; it takes {', '.join(known) or 'nothing'}"
                raise ModelError(f"metric {label!r} takes no {name!r}{hint}")


def choices(
    metrics: Iterable[str | Mapping[str, object]] | Mapping[str, MetricChoice | Choice],
) -> dict[str, Choice]:
    """Return metrics by the names that they are reported under.

    A table has ``name``; ``as`` is what to report it under, ``higher_is_better`` the direction,
    and all else are arguments. Raises ModelError where two have one name.
    """
    if isinstance(metrics, Mapping):
        return {
            label: choice if isinstance(choice, Choice) else Choice(choice)
            for label, choice in metrics.items()
        }
    found: dict[str, Choice] = {}
    for item in metrics:
        table = {"name": item} if isinstance(item, str) else dict(item)
        if "name" not in table:
            raise ModelError(f"metric {table}: it has no name")
        metric, label = cast(MetricChoice, table.pop("name")), table.pop("as", None)
        direction = cast("bool | None", table.pop("higher_is_better", None))
        if label is None:
            named = metric if isinstance(metric, str) else getattr(metric, "__name__", repr(metric))
            label = named.rpartition(":")[2]
        if str(label) in found:
            raise ModelError(f"two metrics are reported as {label!r}; name one with as = ...")
        found[str(label)] = Choice(metric, table, direction)
    return found


def values_of(metrics: Mapping[str, Metric]) -> tuple[dict[str, float], dict[str, Table]]:
    """Return the values of metrics by name: numbers, and tables."""
    numbers: dict[str, float] = {}
    tables: dict[str, Table] = {}
    for name, metric in metrics.items():
        value = metric.value()
        if isinstance(value, np.ndarray) and value.ndim:
            tables[name] = value
        else:
            numbers[name] = float(value)
    return numbers, tables
