"""``nnl runs``: which runs there are, what came of them, and in what they differ."""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnl_core.cli.table import print_table
from nnl_core.errors import DataError
from nnl_core.hooks.loading import did_you_mean
from nnl_core.session import Session

if TYPE_CHECKING:
    from nnl_core.training.runs import RunSummary

COLUMNS = ("began", "run", "state", "epochs")
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "places",
        nargs="*",
        type=Path,
        metavar="[compare] PLACE",
        help="a project, a folder of runs, or a run (default: this folder); after the word "
        "'compare', two or more runs to show side by side",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--sort", metavar="KEY", help="began (default), run, state, epochs, seconds, or a metric"
    )
    parser.add_argument("--reverse", action="store_true", help="turn the order round")
    parser.add_argument(
        "--filter",
        dest="filters",
        action="append",
        default=[],
        metavar="TEST",
        help="show runs that pass: state=finished, run=*lenet*, 'test/accuracy>0.9', epochs>=3, "
        "or a setting, train.seed=1; all of them where there are several",
    )


def run(arguments: argparse.Namespace, session: Session) -> int:
    """List runs or compare them; what is broken is named, and no error."""
    from nnl_core.training.runs import list_runs

    places: list[Path] = arguments.places
    comparing = bool(places) and places[0] == Path("compare")
    places = places[1:] if comparing else places or [Path()]
    runs = [found for place in places for found in list_runs(place)]
    if comparing and len(runs) < 2:
        raise DataError(f"compare needs two runs or more, not {len(runs)}")
    tests = [_test(text) for text in arguments.filters]
    _check_keys(runs, [key for key, _ in tests])
    runs = [found for found in runs if all(passes(found) for _, passes in tests)]
    runs = _sorted(runs, arguments.sort, reverse=arguments.reverse)
    if arguments.json:
        print(json.dumps(_comparison(runs) if comparing else [_entry(run) for run in runs]))
    elif comparing:
        _print_comparison(runs)
    elif runs:
        _print_list(runs)
    else:
        print("no runs" if not tests else "no run passes")
    return 0


# -------------------------------------------------------------------- choosing


def _values(run: RunSummary) -> dict[str, object]:
    """Return what a run has by keys: of its own, metrics' last values, and settings."""
    from nnl_core.training.runs import flatten

    own: dict[str, object] = {
        "began": run.started,
        "run": run.name,
        "state": run.state,
        "epochs": run.epochs,
        "seconds": run.seconds,
    }
    return {**dict(flatten(run.settings)), **run.metrics, **own}


def _check_keys(runs: Sequence[RunSummary], keys: Iterable[str]) -> None:
    """Raise where no run has anything by the key of a filter: that none passes says too little."""
    for key in keys:
        if runs and not any(key in _values(run) for run in runs):
            raise DataError(f"--filter {key}: no run has that{_nearest(key, runs)}")


def _nearest(key: str, runs: Iterable[RunSummary]) -> str:
    return did_you_mean(key, {name for run in runs for name in _values(run)})


def _test(text: str) -> tuple[str, Callable[[RunSummary], bool]]:
    """Return the key that a filter is about, and whether a run passes."""
    found = re.fullmatch(r"([^<>=]+)(>=|<=|=|>|<)(.*)", text)
    if found is None:
        raise DataError(f"--filter {text}: write it like state=finished or 'test/loss<0.5'")
    key, sign, wanted = (part.strip() for part in found.groups())
    if sign == "=":
        return key, lambda run: fnmatch.fnmatchcase(str(_values(run).get(key)), wanted)
    try:
        number = float(wanted)
    except ValueError:
        raise DataError(f"--filter {text}: {wanted!r} is no number") from None

    def passes(run: RunSummary) -> bool:
        value = _values(run).get(key)
        return isinstance(value, int | float) and COMPARISONS[sign](value, number)

    return key, passes


def _sorted(runs: list[RunSummary], key: str | None, *, reverse: bool) -> list[RunSummary]:
    """Return runs in an order; those without a value come last, whichever way it goes."""
    if key is None:
        return runs[::-1] if reverse else runs
    found = [(_values(run).get(key), run) for run in runs]
    having = [(value, run) for value, run in found if _is_comparable(value)]
    if runs and not having:
        raise DataError(f"--sort {key}: no run has that{_nearest(key, runs)}")
    having.sort(key=lambda pair: _rank(pair[0]), reverse=reverse)
    return [run for _, run in having] + [run for value, run in found if not _is_comparable(value)]


def _rank(value: object) -> tuple[bool, float, str]:
    """Return what sorts numbers by size, before texts by the alphabet."""
    is_number = isinstance(value, int | float)
    return not is_number, float(value) if isinstance(value, int | float) else 0.0, str(value)


def _is_comparable(value: object) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


# -------------------------------------------------------------------- showing


def _print_list(runs: Sequence[RunSummary]) -> None:
    names = _metric_names(runs)
    rows = []
    for run in runs:
        planned = run.planned_epochs
        epochs = f"{run.epochs}/{planned}" if planned else str(run.epochs)
        cells = [run.started[:19].replace("T", " "), run.title, run.state, epochs]
        for name in names:
            best = run.best.get(name)
            last = _number(run.metrics.get(name))
            at_best = last if best is None else _number(best.value)
            cells.append(last if at_best == last else f"{last} (best {at_best})")
        rows.append(cells)
    print_table([*COLUMNS, *names], rows, ["epochs", *names])
    for run in runs:
        if run.problem:
            print(f"{run.title}: {run.problem}")


def _metric_names(runs: Iterable[RunSummary]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.metrics))


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "-"


def _print_comparison(runs: Sequence[RunSummary]) -> None:
    from nnl_core.training.runs import compare_settings

    heads = [run.title for run in runs]
    facts: dict[str, list[str]] = {
        "state": [run.state for run in runs],
        "epochs": [str(run.epochs) for run in runs],
        "seconds": [_number(run.seconds) for run in runs],
    }
    different = {
        key: ["-" if value is None else str(value) for value in values]
        for key, values in compare_settings(runs).items()
    }
    metrics = {
        name: [_number(run.metrics.get(name)) for run in runs] for name in _metric_names(runs)
    }
    best = {
        f"best {name}": [_number(run.best[name].value) if name in run.best else "-" for run in runs]
        for name in metrics
        if any(name in run.best for run in runs)
    }
    rows = [[key, *values] for key, values in (facts | different | metrics | best).items()]
    print_table(["", *heads], rows, heads)
    if not different:
        print("no setting differs")


def _comparison(runs: Sequence[RunSummary]) -> dict[str, object]:
    from nnl_core.training.runs import compare_settings

    return {"runs": [_entry(run) for run in runs], "settings": compare_settings(runs)}


def _entry(run: RunSummary) -> dict[str, object]:
    """Return a run for JSON, in which what is not finite is null."""
    return {
        "folder": str(run.folder),
        "name": run.name,
        "began": run.started or None,
        "state": run.state,
        "problem": run.problem or None,
        "epochs": run.epochs,
        "planned_epochs": run.planned_epochs,
        "seconds": run.seconds,
        "stopped": run.stopped,
        "metrics": {name: _finite(value) for name, value in run.metrics.items()},
        "best": {
            name: {"value": _finite(best.value), "epoch": best.epoch}
            for name, best in run.best.items()
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
