"""The operational layers of a project file, trained with other operator sets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from nnl_core.cli.project import open_workbench
from nnl_core.errors import ConfigurationError, NotFiniteError
from nnl_core.session import Session
from nnl_onn.operator_sets import OperatorSet
from nnl_onn.search.plasticity import plasticity

if TYPE_CHECKING:
    from nnl_core import Variable
    from nnl_core.hooks.selection import Project
    from nnl_core.training import Trainer
    from nnl_core.training.tracking import MetricHistory

OPERATIONAL = ("onn.operational", "onn.transposed_operational")
_MAPS = ("outmaps", "n_outmaps")  # arguments of layers that have weights


class SearchedLayer(NamedTuple):
    """An operational layer: its place in ``model.layers``, what it is called, and its neurons."""

    place: int
    label: str
    maps: int


class SearchedProject:
    """A project whose operational layers get other operator sets.

    Args:
        project: its settings; each training is made with them.
        session: where the command runs.
        layers: names or places of the layers; by default all that are operational, or, with
            ``hidden``, all of these but one that nothing with weights comes after.
        hidden: whether the layers must have neurons with outgoing weights.

    Raises `ConfigurationError` where a layer is not there, or no operational one.
    """

    def __init__(
        self, project: Project, session: Session, layers: Sequence[str] = (), hidden: bool = False
    ) -> None:
        self._project = project
        self._session = session
        self._tables = _named_layers(project)
        found = [n for n, table in enumerate(self._tables) if table.get("layer") in OPERATIONAL]
        last = max(
            (n for n, table in enumerate(self._tables) if set(_MAPS) & set(table)), default=0
        )
        places = list(dict.fromkeys(map(self._place, layers)))
        self.layers = [
            SearchedLayer(place, str(self._tables[place]["name"]), self._maps(place))
            for place in places or found
            if places or not (hidden and place == last)
        ]
        for layer in self.layers:
            if layer.place not in found:
                kind = self._tables[layer.place].get("layer")
                raise ConfigurationError(
                    f"{project.where}: layer {layer.label!r} is {kind!r}, which has no operator "
                    f"sets; {' and '.join(OPERATIONAL)} have"
                )
        if not self.layers:
            raise ConfigurationError(
                f"{project.where}: model.layers has none to search: that would be "
                f"{' or '.join(OPERATIONAL)}{', with weights after it' if hidden else ''}"
            )

    def _place(self, name: str) -> int:
        for place, table in enumerate(self._tables):
            if name in (table["name"], str(place)):
                return place
        known = ", ".join(str(table["name"]) for table in self._tables)
        raise ConfigurationError(
            f"{self._project.where}: there is no layer {name!r}; there are {known}"
        )

    def _maps(self, place: int) -> int:
        maps = self._tables[place].get("outmaps")
        return maps if isinstance(maps, int) else 0

    def complete(self, layer: SearchedLayer, given: Mapping[str, str]) -> dict[str, str]:
        """Return an operator set as a table, with what it leaves open as the layer has it."""
        own = self._tables[layer.place].get("operators")
        kept = own if isinstance(own, Mapping) and "indices" not in own else {}
        return {**asdict(OperatorSet()), **kept, **given}

    def with_operators(self, operators: Sequence[object], seed: int) -> Project:
        """Return the project with these operators in the searched layers, and a seed."""
        table: dict[str, Any] = deepcopy(dict(self._project.table))
        layers = deepcopy(self._tables)
        for layer, given in zip(self.layers, operators, strict=True):
            layers[layer.place]["operators"] = given
        table["model"]["layers"] = layers
        table["train"] = {**table.get("train", {}), "seed": seed}
        table["checkpoints"] = {**table.get("checkpoints", {}), "keep": 0}
        return self._project._replace(table=table)

    @contextmanager
    def _trainer(self, operators: Sequence[object], seed: int) -> Iterator[Trainer]:
        with open_workbench(self.with_operators(operators, seed), self._session) as workbench:
            yield workbench.trainer()

    def begin(self, sets: Sequence[Mapping[str, str]]) -> MetricHistory:
        """Make the project's own training, and return what will tell its metrics.

        What is wrong with it, and an operator set that there is not, is said at once.
        """
        own = [self._tables[layer.place].get("operators", {}) for layer in self.layers]
        with self._trainer(own, 0) as trainer:
            for given in sets:
                OperatorSet(**self.complete(self.layers[0], given))
            return trainer.tracker

    def score(self, operators: Sequence[object], seed: int, metric: str) -> float:
        """Train, and return the best value of a metric; of one that rises, the negative of it.

        A training that diverges has NaN. Raises `TrainingError` where the metric is not measured.
        """
        with self._trainer(operators, seed) as trainer:
            try:
                trainer.run()
            except NotFiniteError:
                return math.nan
            best = trainer.tracker.best(metric).value
            return -best if trainer.tracker.rises(metric) else best

    def changes(self, operators: Sequence[object], seed: int) -> list[list[float]]:
        """Train, and return the `plasticity` of each searched layer's neurons.

        A training that diverges has NaN.
        """
        with self._trainer(operators, seed) as trainer:
            parameters = trainer.model.parameters
            weights = [self._outgoing(layer, parameters) for layer in self.layers]
            before = [w.d.copy() for w, _ in weights]
            try:
                trainer.run()
            except NotFiniteError:
                return [[math.nan] * layer.maps for layer in self.layers]
            return [
                plasticity(old, w.d, layer.maps, axis).tolist()
                for layer, old, (w, axis) in zip(self.layers, before, weights, strict=True)
            ]

    def _outgoing(
        self, layer: SearchedLayer, parameters: Mapping[str, Variable]
    ) -> tuple[Variable, int]:
        """Return the weight of the next layer that has one, and the axis of its input maps."""
        for table in self._tables[layer.place + 1 :]:
            for name, w in parameters.items():
                if name.startswith(f"{table['name']}/") and name.endswith("/W") and w.ndim > 1:
                    kind = str(table["layer"]).rpartition(".")[2]
                    rows = w.ndim == 2 or kind.startswith(("transposed", "deconvolution"))
                    return w, 0 if rows else 1
        raise ConfigurationError(
            f"{self._project.where}: layer {layer.label!r} has no outgoing weights: no layer after "
            "it has a weight; leave it out"
        )


def _named_layers(project: Project) -> list[dict[str, Any]]:
    """Return the tables of all layers, each with a name, by which its parameters are found."""
    model = project.table.get("model")
    layers = model.get("layers") if isinstance(model, Mapping) else None
    if not isinstance(layers, list) or not layers:
        raise ConfigurationError(
            f"{project.where}: model.layers is what is searched, and there is none"
        )
    tables = [{"layer": one} if isinstance(one, str) else dict(one) for one in layers]
    taken = {table.get("name") for table in tables}
    for place, table in enumerate(tables):
        name = f"layer{place}"
        while "name" not in table and name in taken:
            name += "_"
        table.setdefault("name", name)
    return tables
