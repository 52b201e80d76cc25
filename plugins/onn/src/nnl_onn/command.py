"""``nnl onn``: search for operator sets of a project's layers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from nnl_core.cli.project import add_project
from nnl_core.errors import ConfigurationError, FileError
from nnl_core.session import Session

Choice: TypeAlias = Mapping[str, str]
"""An operator set as a table; of what it leaves open, a layer keeps its own."""

if TYPE_CHECKING:
    from nnl_core.hooks.selection import Project
    from nnl_onn.search import TrialLog
    from nnl_onn.search.project import SearchedProject

NODAL = ("mul", "cubic", "sine", "exp", "sinh", "chirp")
PARTS = ("pool", "activation", "nodal")  # in the order in which FastONN counts them
LOG, BEST = "trials.jsonl", "best.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    search = actions.add_parser(
        "search",
        help="train with many operator sets, and say which are the best",
        description="Every trial is a line of FOLDER/trials.jsonl. The same command goes on where "
        "it was ended. Short trainings: --set train.epochs=3.",
    )
    add_project(search)
    search.add_argument(
        "--method",
        choices=("greedy", "exhaustive", "plasticity"),
        default="greedy",
        help="greedy: layer by layer; exhaustive: all of them; plasticity: train with random sets, "
        "and rank them by what becomes of the weights behind them (default: greedy)",
    )
    search.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="for the results (default: search, in the project's folder)",
    )
    search.add_argument(
        "--layers", nargs="+", default=[], metavar="LAYER",
        help="names or places of the layers to search (default: all that are operational)",
    )  # fmt: skip
    for option, default, shown in (
        ("nodal", NODAL, " ".join(NODAL)),
        ("pool", (), "the layer's own"),
        ("activation", (), "the layer's own"),
    ):
        search.add_argument(
            f"--{option}", nargs="+", default=list(default), metavar="NAME",
            help=f"what operator sets are made of (default: {shown})",
        )  # fmt: skip
    search.add_argument(
        "--metric",
        metavar="NAME",
        help="what makes a set better (default: validation/loss, or without that data train/loss)",
    )
    for option, number, text in (
        ("sweeps", 2, "greedy: how often to go through the layers"),
        ("runs", 1, "trainings of each trial, of which the best counts; plasticity: of all"),
        ("seed", 0, "of the first training of a trial, and of what is random in the search"),
        ("elite", 3, "plasticity: how many sets a layer gets"),
    ):
        search.add_argument(
            f"--{option}",
            type=int,
            default=number,
            metavar="COUNT",
            help=f"{text} (default: {number})",
        )


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Search, and print the operators of each layer as the project file has them."""
    from nnl_core.settings import open_project
    from nnl_core.training.run_lock import locked
    from nnl_onn.search import TrialLog
    from nnl_onn.search.project import SearchedProject

    _check(arguments)
    project = open_project(arguments.project, arguments.overrides)
    monitors = arguments.method == "plasticity"
    searched = SearchedProject(project, session, arguments.layers, hidden=monitors)
    sets = _choices(arguments)
    metric = arguments.metric or _default_metric(project)
    sign = -1 if searched.begin(sets).rises(metric) else 1
    folder: Path = arguments.out or project.path.parent / "search"
    about = {
        "of": "plasticity" if monitors else metric,
        "sets": [_text(one) for one in sets],
        "layers": [layer.label for layer in searched.layers],
        "seed": arguments.seed,
        "settings": project.table,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot be made: {error.strerror or error}") from error
    with locked(folder):
        log = TrialLog(folder / LOG, about)
        try:
            if monitors:
                found, summary = _rank(arguments, searched, sets, log)
            else:
                found, summary = _search(arguments, searched, sets, log, metric, sign)
        finally:
            log.close()
        _tell(folder, searched, found, summary)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    for option in ("sweeps", "runs", "elite"):
        if getattr(arguments, option) < 1:
            raise ConfigurationError(f"--{option} {getattr(arguments, option)}: say 1 or more")
    if arguments.seed < 0:
        raise ConfigurationError(f"--seed {arguments.seed}: say 0 or more")


def _default_metric(project: Project) -> str:
    data = project.table.get("data")
    return "validation/loss" if isinstance(data, dict) and "validation" in data else "train/loss"


def _choices(arguments: argparse.Namespace) -> list[Choice]:
    named = {part: getattr(arguments, part) for part in PARTS if getattr(arguments, part)}
    return [dict(zip(named, values, strict=True)) for values in product(*named.values())]


def _text(one: Choice) -> str:
    return "/".join(one[part] for part in ("nodal", "pool", "activation") if part in one)


def _search(
    arguments: argparse.Namespace,
    searched: SearchedProject,
    sets: Sequence[Choice],
    log: TrialLog,
    metric: str,
    sign: int,
) -> tuple[list[object], dict[str, object]]:
    """Return the operators of each layer, and what ``best.json`` says of the search."""
    from nnl_onn.search import Trials, exhaustive_search, greedy_search

    def operators(assignment: tuple[int, ...]) -> list[object]:
        pairs = zip(searched.layers, assignment, strict=True)
        return [searched.complete(layer, sets[n]) for layer, n in pairs]

    def objective(assignment: tuple[int, ...], seed: int) -> float:
        score = searched.score(operators(assignment), seed, metric)
        shown = ", ".join(
            f"{layer.label} {_text(sets[n])}"
            for layer, n in zip(searched.layers, assignment, strict=True)
        )
        print(f"trial {len(log.records) + 1}: {shown}, seed {seed}: {sign * score:.6g}", flush=True)
        return score

    trials = Trials(objective, log, arguments.runs, arguments.seed)
    layers, choices = len(searched.layers), len(sets)
    if arguments.method == "exhaustive":
        found = exhaustive_search(trials, layers, choices)
    else:
        found = greedy_search(trials, layers, choices, arguments.sweeps, arguments.seed)
    print(f"best {metric} of {len(log.records)} trainings: {sign * found.score:.6g}")
    return operators(found.assignment), {metric: sign * found.score}


def _rank(
    arguments: argparse.Namespace,
    searched: SearchedProject,
    sets: Sequence[Choice],
    log: TrialLog,
) -> tuple[list[object], dict[str, object]]:
    """Return the operators of each layer's elite, and the health of all sets."""
    from nnl_onn.search import elite, monitor, rank

    def changes(drawn: list[list[int]], seed: int) -> list[list[float]]:
        print(f"training {len(log.records) + 1} of {arguments.runs}: seed {seed}", flush=True)
        operators = [
            [searched.complete(layer, sets[n]) for n in of_layer]
            for layer, of_layer in zip(searched.layers, drawn, strict=True)
        ]
        return searched.changes(operators, seed)

    maps = [layer.maps for layer in searched.layers]
    trained = monitor(changes, log, maps, len(sets), arguments.runs, arguments.seed)
    found: list[object] = []
    health: dict[str, object] = {}
    for layer, of_layer in zip(searched.layers, trained, strict=True):
        ranked = rank(of_layer, len(sets))
        print(f"{layer.label}:")
        for number, value in ranked:
            print(f"  {_text(sets[number]):30} {value:.6g}")
        found.append(
            [searched.complete(layer, sets[n]) for n in elite(ranked, layer.maps, arguments.elite)]
        )
        health[layer.label] = {_text(sets[number]): value for number, value in ranked}
    return found, {"health": health}


def _tell(
    folder: Path, searched: SearchedProject, found: Sequence[object], summary: dict[str, object]
) -> None:
    from nnl_core.training.files import jsonable, write_json

    layers = {layer.label: one for layer, one in zip(searched.layers, found, strict=True)}
    write_json(folder / BEST, jsonable({"layers": layers, **summary}))
    for label, one in layers.items():
        print(f"{label}: operators = {_toml(one)}")
    print(f"saved in {folder / BEST}")


def _toml(value: object) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {_toml(one)}" for key, one in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    import json

    return json.dumps(value)
