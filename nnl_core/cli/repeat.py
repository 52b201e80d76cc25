"""``nnl train --runs``: the same training with several seeds, and how much its results differ."""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnl_core.cli.project import open_workbench
from nnl_core.cli.signals import REASONS
from nnl_core.cli.train import Trained, folder_for, resume, train_new, trainer_of
from nnl_core.errors import DataError, TrainingError
from nnl_core.session import Session
from nnl_core.training.runs import GROUP

if TYPE_CHECKING:
    from nnl_core.hooks.selection import Project

FORMAT = 1
SUMMARY = "summary.json"


def train_many(arguments: argparse.Namespace, project: Project, session: Session) -> int:
    """Train with ``--runs`` seeds, the project's and those after it, each in its own folder."""
    from nnl_core.settings import check
    from nnl_core.training.files import write_json

    with open_workbench(project, session) as workbench:
        trainer_of(workbench)  # so that what is wrong is said before anything is made
    settings = check(project.table, project.where)
    folder = folder_for(arguments, project, settings.train.folder)
    group = {
        "format": FORMAT,
        "project": str(project.path.resolve()),
        "name": arguments.name,
        "overrides": arguments.overrides,
        "seeds": list(range(settings.train.seed, settings.train.seed + arguments.runs)),
    }
    write_json(folder / GROUP, group)
    return _train_each(folder, group, (), session)


def train_rest(folder: Path, overrides: Sequence[str], session: Session) -> int:
    """Go on with repeated runs: with what was begun, then with what was not."""
    path = folder / GROUP
    try:
        group = json.loads(path.read_text("utf-8"))
        known = group["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if known != FORMAT:
        raise DataError(f"{path} has format {known}; this nnl-core reads {FORMAT}")
    return _train_each(folder, group, overrides, session)


def _train_each(
    folder: Path, group: Mapping[str, Any], overrides: Sequence[str], session: Session
) -> int:
    found: dict[int, dict[str, float]] = {}
    for seed in group["seeds"]:
        print(f"seed {seed}")
        trained = _train_one(folder / f"seed-{seed}", seed, group, overrides, session)
        if trained.status:
            print(f"{len(found)} of {len(group['seeds'])} runs are finished: --resume goes on")
            return trained.status
        found[seed] = trained.metrics
    _summarise(folder, found)
    return 0


def _train_one(
    folder: Path, seed: int, group: Mapping[str, Any], overrides: Sequence[str], session: Session
) -> Trained:
    from nnl_core.settings import open_project
    from nnl_core.training.run_lock import is_locked

    metrics = _finished(folder)
    if metrics is not None:
        return Trained(0, metrics)
    if (folder / "run.json").is_file() and _has_checkpoint(folder):
        return resume(folder, overrides, session)
    if folder.exists():  # killed before its first checkpoint: nothing in it is of use
        if is_locked(folder):
            raise TrainingError(f"{folder} is being written by another process")
        shutil.rmtree(folder)
    said = [*group["overrides"], *overrides, f"train.seed={seed}"]
    project = open_project(Path(group["project"]), said)
    folder.mkdir()
    with open_workbench(project, session) as workbench:
        trainer = trainer_of(workbench)
        return train_new(folder, trainer, workbench, project, group["name"], said)


def _has_checkpoint(folder: Path) -> bool:
    from nnl_core.training.checkpoint_files import FOLDER, Checkpoints

    return bool(Checkpoints(folder / FOLDER).steps())


def _finished(folder: Path) -> dict[str, float] | None:
    """Return the final metrics of a run that was not stopped, or ``None``."""
    path = folder / "result.json"
    if not path.is_file():
        return None
    try:
        result = json.loads(path.read_text("utf-8"))
        metrics = result["metrics"].items()
        if result["stopped"] in REASONS.values():
            return None
        return {name: float("nan") if value is None else value for name, value in metrics}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _summarise(folder: Path, found: Mapping[int, Mapping[str, float]]) -> None:
    """Write ``summary.json`` and print a table: mean and deviation of each final metric."""
    from nnl_core.training.files import write_json

    names = dict.fromkeys(name for metrics in found.values() for name in metrics)
    rows = {}
    for name in names:
        values = [metrics.get(name, float("nan")) for metrics in found.values()]
        rows[name] = (_mean(values), _deviation(values), values)
    summary = {
        name: {
            "mean": _or_null(mean),
            "deviation": _or_null(deviation),
            "values": [_or_null(value) for value in values],
        }
        for name, (mean, deviation, values) in rows.items()
    }
    write_json(folder / SUMMARY, {"format": FORMAT, "seeds": list(found), "metrics": summary})
    width = max(map(len, names), default=0)
    print(f"{'':{width}}  {'mean':>12}  {'deviation':>12}")
    for name, (mean, deviation, _) in rows.items():
        print(f"{name:{width}}  {mean:12.4f}  {deviation:12.4f}")
    print(f"saved in {folder}")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    """Return the deviation of a sample, with one value less than there are; NaN of one alone."""
    if len(values) < 2:
        return float("nan")
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _or_null(value: float) -> float | None:
    return value if math.isfinite(value) else None
