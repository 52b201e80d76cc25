"""The folder of a run: what was trained, with what, and what came of it.

::

    run.json                 the settings, the project's place, plugins, versions and machine
    source/                  the project's modules as they were
    parameters.safetensors   (or .npz) the parameters
    failure.json             why a run without a result ended, where it could say so
    result.json              the last file to appear: metrics, and why the run ended
    checkpoints/             from which the run can go on
    metrics.jsonl, learning_curve.png, ...   what plugins write
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nnl_core import __version__
from nnl_core.errors import DataError, NnlError, TrainingError
from nnl_core.graph.backend import current_backend
from nnl_core.hooks.loading import describe
from nnl_core.hooks.selection import Project
from nnl_core.parameters import save_parameters
from nnl_core.settings import override
from nnl_core.training.environment import describe_environment
from nnl_core.training.files import jsonable, replacing, write_json
from nnl_core.training.project import modules_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nnl_core.session import Session
    from nnl_core.training.model import Model
    from nnl_core.training.state import TrainResult

FORMAT = 1
FAILURE = "failure.json"
PARAMETER_FILES = ("parameters.safetensors", "parameters.npz")


def new_folder(parent: Path, name: str) -> Path:
    """Make a folder called like the time, to the second in UTC, and the run.

    Of two that begin in the same second the later one gets a number behind its name.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    wanted = f"{stamp}-{file_name(name)}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in count(2):  # somebody else may be faster
            folder = parent / wanted
            try:
                folder.mkdir()
                break
            except FileExistsError:
                wanted = f"{stamp}-{file_name(name)}-{number}"
    except OSError as error:
        raise TrainingError(f"cannot make a folder for the run in {parent}: {error}") from error
    return folder


def file_name(name: str) -> str:
    """Return a name as part of a file's: letters, digits, ``_``, ``.`` and ``-``, 64 at most."""
    short = re.sub(r"[^\w.-]+", "-", name)[:64].encode()[:192].decode(errors="ignore")
    return short.strip("-.") or "run"  # file systems count bytes: 255 at most


def given_folder(folder: Path) -> Path:
    """Make the folder that a user chose; TrainingError where it holds something."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise TrainingError(f"{folder} is not empty; choose a new folder for the run")
    except OSError as error:
        raise TrainingError(f"cannot make the folder {folder}: {error}") from error
    return folder


def describe_run(
    folder: Path,
    project: Project,
    session: Session,
    name: str | None = None,
    overrides: Sequence[str] = (),
) -> None:
    """Write what is known before training: ``run.json`` and ``source/``.

    A run is called like its project's folder, unless it has a ``name``. ``overrides`` are in the
    project's settings already; a run that goes on must know which ones are not in its file.
    """
    home = project.path.parent.resolve()
    sources = {*modules_in(home).values(), home / "nnlfile.py"}
    for path in sorted(path for path in sources if path.is_file()):
        copy = folder / "source" / path.relative_to(home)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    active = [entry for entry in session.manager.entries if entry.state == "active"]
    description = {
        "format": FORMAT,
        "name": name or home.name,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "project": str(project.path),
        "project_from_here": os.path.relpath(project.path, folder.resolve()),
        "settings": project.table,
        "overrides": list(overrides),
        "backend": current_backend().name,
        "plugins": {entry.name: entry.version for entry in active},
        "versions": {
            "nnl-core": __version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "environment": describe_environment(home),
    }
    write_json(folder / "run.json", json.loads(json.dumps(description, default=str)))


def save_result(
    folder: Path, model: Model, result: TrainResult, final: Mapping[str, float]
) -> None:
    """Write the parameters and then ``result.json``, each whole or not at all."""
    name = PARAMETER_FILES[0] if find_spec("safetensors") else PARAMETER_FILES[1]
    with replacing(folder / name) as draft:
        save_parameters(draft, model.parameters)
    write_json(
        folder / "result.json",
        {
            "epochs": result.epochs,
            "steps": result.steps,
            "seconds": round(result.seconds, 3),
            "stopped": result.stopped,
            "metrics": jsonable({**result.metrics, **final}),
            "best": jsonable({name: point._asdict() for name, point in result.best.items()}),
            "tables": jsonable({name: table.tolist() for name, table in result.tables.items()}),
            "history": jsonable(result.history),
        },
    )


def note_failure(folder: Path, error: Exception) -> None:
    """Write what ended a run into ``failure.json``, for those who look at it later.

    Where that cannot be written either, the error itself must still be seen.
    """
    text = str(error) if isinstance(error, NnlError) else describe(error)
    with suppress(OSError):
        write_json(folder / FAILURE, {"error": text})


class SavedRun(NamedTuple):
    """A run that was read: its settings as a project, and where its files are."""

    folder: Path
    project: Project
    parameters: Path
    data_folder: Path

    @property
    def source(self) -> Path:
        """Where the modules of the model are."""
        return self.folder / "source"


class BegunRun(NamedTuple):
    """A run as ``run.json`` describes it, finished or not.

    ``project_file`` is where its project is now, or else was.
    """

    folder: Path
    description: dict[str, Any]
    project_file: Path

    def as_project(self, table: Mapping[str, object]) -> Project:
        """Return the run's own copy of its project, with these settings."""
        # Beside the copied sources, so that nnlfile.py is found as well.
        return Project(self.folder.resolve() / "source" / self.project_file.name, table)


def read_begun_run(folder: Path) -> BegunRun:
    """Read ``run.json``; DataError where that cannot be."""
    path = folder / "run.json"
    try:
        description: dict[str, Any] = json.loads(path.read_text("utf-8"))
        known = description["format"]
        override(description["settings"], ())
        moved_along = (folder / description["project_from_here"]).resolve()
        original = Path(description["project"])
    except FileNotFoundError:
        raise DataError(f"{folder} is not the folder of a run: it has no run.json") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if known != FORMAT:
        raise DataError(f"{path} has format {known}; this nnl-core reads {FORMAT}")
    return BegunRun(folder, description, moved_along if moved_along.is_file() else original)


def read_run(folder: Path, overrides: Sequence[str] = ()) -> SavedRun:
    """Read a run's folder.

    Its project may have been moved, together with the run or not; only the data is looked for
    there. Raises DataError where the folder holds no finished run.
    """
    begun = read_begun_run(folder)
    project = begun.as_project(override(begun.description["settings"], overrides))
    for name in PARAMETER_FILES:
        if (folder / name).is_file():
            return SavedRun(folder, project, folder / name, begun.project_file.parent)
    raise DataError(f"{folder} has no parameters: the run has not finished, or failed")
