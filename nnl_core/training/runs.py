"""What the folders of runs tell, whatever state they are in: finished, half-written, broken."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from nnl_core.errors import DataError, NnlError
from nnl_core.hooks.selection import find_project
from nnl_core.training.plugins.metrics_log import FILE_NAME as METRICS_LOG
from nnl_core.training.run_folder import FAILURE
from nnl_core.training.run_lock import is_locked

State = Literal["running", "finished", "interrupted", "failed", "broken"]
STATES: tuple[State, ...] = ("running", "finished", "interrupted", "failed", "broken")
RUNS = "runs"
GROUP = "group.json"  # in the folder around repeated runs
# Reasons to stop that are no end of a run, as `nnl train` gives them.
INTERRUPTIONS = ("interrupted", "terminated", "the terminal has gone")


class Best(NamedTuple):
    """The best value of a metric, and the epoch it is from."""

    value: float
    epoch: int


class RunSummary(NamedTuple):
    """A run as its folder tells it.

    ``problem`` says what is wrong where the state is failed or broken. ``history`` has the numbers
    of each epoch, by names such as ``test/loss``, and ``tables`` the latest of those metrics that
    are no numbers. ``description`` is all of ``run.json``.
    """

    folder: Path
    state: State
    problem: str = ""
    epochs: int = 0
    seconds: float | None = None
    stopped: str | None = None
    metrics: Mapping[str, float] = {}
    best: Mapping[str, Best] = {}
    tables: Mapping[str, list[Any]] = {}
    history: tuple[Mapping[str, float], ...] = ()
    description: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        """What the run is called: not unique, as the folder is."""
        return str(self.description.get("name", self.folder.name))

    @property
    def title(self) -> str:
        """The folder's name; of one of several repeated runs, with that of the group before it."""
        parent = self.folder.parent
        is_repeated = (parent / GROUP).is_file()
        return f"{parent.name}/{self.folder.name}" if is_repeated else self.folder.name

    @property
    def started(self) -> str:
        """When it began, in UTC, as ISO 8601 writes it; empty where that is not known."""
        return str(self.description.get("started", ""))

    @property
    def settings(self) -> dict[str, Any]:
        """The project file's table, as the run was made with it."""
        return cast("dict[str, Any]", self.description.get("settings", {}))

    @property
    def planned_epochs(self) -> int | None:
        """How many epochs it was to have, where its settings say so."""
        train = self.settings.get("train")
        epochs = train.get("epochs") if isinstance(train, dict) else None
        return epochs if isinstance(epochs, int) else None


def list_runs(place: Path) -> list[RunSummary]:
    """Return the runs of a project, of a folder of runs, or the one run that a folder is.

    They come in the order of their folders' names, which begin with the time. Raises DataError
    where there is no such folder.
    """
    if not place.is_dir():
        found = f"{place} is a file" if place.exists() else f"no folder {place}"
        raise DataError(f"{found}; give the folder of a project, of its runs, or of one run")
    return [summary_of(folder) for folder in _folders(_runs_of(place))]


def newest_run(place: Path) -> Path:
    """Return the run that began last, or the folder itself where it is one.

    Raises DataError where there is none.
    """
    if (place / "run.json").is_file():
        return place
    runs = [run for run in list_runs(place) if run.state != "broken"]
    if not runs:
        raise DataError(f"{place} is no run, nor has it any; `nnl train` makes one")
    return max(runs, key=lambda run: (run.started, run.folder.name)).folder


def _runs_of(place: Path) -> Path:
    """Return where a project keeps its runs, or the folder itself where it is none."""
    if (place / "run.json").is_file():
        return place
    try:
        project = find_project(place)
    except NnlError:  # the project is broken, which does not make its runs so
        return place / RUNS if (place / RUNS).is_dir() else place
    if project is None or project.path.parent.resolve() != place.resolve():
        return place
    train = project.table.get("train")
    name = train.get("folder", RUNS) if isinstance(train, Mapping) else RUNS
    return place / str(name)


def _folders(place: Path) -> Iterator[Path]:
    """Yield folders of runs, those inside of groups included."""
    if (place / "run.json").is_file():
        yield place
    elif place.is_dir():
        for folder in sorted(place.iterdir()):
            if not folder.is_dir() or folder.is_symlink() or folder.name.startswith("."):
                continue
            if (folder / GROUP).is_file():
                yield from _folders(folder)
            else:
                yield folder


# -------------------------------------------------------------------- comparing runs


def compare_settings(runs: Sequence[RunSummary]) -> dict[str, list[object]]:
    """Return the settings in which runs differ, by dotted key; ``None`` where one has none."""
    flat = [dict(flatten(run.settings)) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    return {
        key: [settings.get(key) for settings in flat]
        for key in keys
        if any(settings.get(key) != flat[0].get(key) for settings in flat)
    }


def flatten(table: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Yield the values of a table of tables, by dotted keys."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


# -------------------------------------------------------------------- reading one folder


def summary_of(folder: Path) -> RunSummary:
    """Return what a folder tells of its run; what cannot be read makes it broken, no error."""
    try:
        description = _table(folder / "run.json")
        result = _table(folder / "result.json") if (folder / "result.json").exists() else None
    except DataError as error:
        return RunSummary(folder, "broken", str(error))
    if not isinstance(description.get("settings", {}), dict):
        return RunSummary(folder, "broken", f"{folder / 'run.json'}: settings are no table")
    if result is None:
        return _unfinished(folder, description)
    try:
        stopped = result.get("stopped")
        return RunSummary(
            folder,
            _state_of(folder, stopped),
            epochs=int(result["epochs"]),
            seconds=float(result["seconds"]),
            stopped=stopped,
            metrics=_numbers(result["metrics"]),
            best={
                name: Best(float(point["value"]), int(point["epoch"]))
                for name, point in result.get("best", {}).items()
                if point["value"] is not None
            },
            tables=dict(result.get("tables", {})),
            history=tuple(_numbers(metrics) for metrics in result["history"]),
            description=description,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"cannot read {folder / 'result.json'}: {type(error).__name__}: {error}"
        return RunSummary(folder, "broken", problem, description=description)


def _state_of(folder: Path, stopped: str | None) -> State:
    """Return the state of a run that has a result; one that goes on is running again."""
    if is_locked(folder):
        return "running"
    return "interrupted" if stopped in INTERRUPTIONS else "finished"


def _table(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise DataError(f"it has no {path.name}") from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no table")
    return found


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return metrics as numbers; null stands for one that was not finite."""
    return {
        name: float("nan") if value is None else float(value) for name, value in metrics.items()
    }


def _unfinished(folder: Path, description: dict[str, Any]) -> RunSummary:
    """Return what is known of a run without a result: what its log of metrics says."""
    history, seconds = _logged(folder / METRICS_LOG)
    running = is_locked(folder)
    return RunSummary(
        folder,
        "running" if running else "failed",
        "" if running else _failure(folder),
        epochs=len(history),
        seconds=seconds,
        metrics=history[-1] if history else {},
        history=tuple(history),
        description=description,
    )


def _failure(folder: Path) -> str:
    """Return why a run without a result ended, where it could say so."""
    try:
        return str(_table(folder / FAILURE)["error"])
    except (DataError, KeyError):
        return "it ended without a result: it was killed"


def _logged(path: Path) -> tuple[list[dict[str, float]], float | None]:
    """Return the epochs' numbers and the seconds of a log; a line that is torn ends it."""
    by_step: dict[int, dict[str, float]] = {}
    seconds = None
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                entry = json.loads(line)
                seconds = float(entry["seconds"])
                if "/" in entry["name"]:  # all else is told of steps
                    value = entry["value"]
                    number = float("nan") if value is None else float(value)
                    by_step.setdefault(int(entry["step"]), {})[entry["name"]] = number
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return [by_step[step] for step in sorted(by_step)], seconds
