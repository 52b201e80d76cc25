"""Checkpoints on disk: written whole or not at all, and noticed where they are damaged.

::

    checkpoints/1200/
        manifest.json            format, place in the run, versions, SHA-256 of the other files
        manifest.sha256          that of the manifest, as ``sha256sum -c`` reads it
        parameters.safetensors   (or .npz, as all of these)
        solver.safetensors       states of the solver, averages among them
        arrays.safetensors       running metrics, and arrays of plugins
        state.json               all else
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from nnl_core.data.source import Array
from nnl_core.errors import FileError, TrainingError
from nnl_core.io import StoredParameter, load, replace_file, save
from nnl_core.solvers.states import read_states, write_states
from nnl_core.training.checkpoint import Checkpoint
from nnl_core.training.files import jsonable
from nnl_core.training.state import TrainState
from nnl_core.training.stored_values import pack, unpack

FORMAT = 1
FOLDER = "checkpoints"
MANIFEST, DIGEST = "manifest.json", "manifest.sha256"
BLOCK = 1 << 20


class Checkpoints:
    """The checkpoints in a folder, each a directory called like the number of steps made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """Return the steps of which there is a checkpoint, the oldest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def place(self, step: int) -> Path:
        """Return the directory of a checkpoint."""
        return self.folder / str(step)

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint and return its directory; one of the same step is left as it is.

        Raises `FileError` where it cannot be written (those before it are unchanged),
        `TrainingError` where a plugin keeps what no file can hold.
        """
        step = checkpoint.state.step
        place = self.place(step)
        if place.is_dir():
            return place
        known = self.steps()
        draft = self.folder / f".draft-{step}"
        try:
            if not self.folder.is_dir():
                self.folder.mkdir()  # not those above: a run whose folder was deleted is to end
                synchronise(self.folder.parent)
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            _write(draft, checkpoint)
            synchronise(draft)
            os.rename(draft, place)
            synchronise(self.folder)
        except (OSError, FileError) as error:
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            reason = cause.strerror if isinstance(cause, OSError) else None
            kept = f"checkpoint {known[-1]} is unchanged" if known else "there is none before it"
            raise FileError(
                f"{place}: the checkpoint cannot be written: {reason or cause}; {kept}"
            ) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return place

    def load(self, step: int) -> Checkpoint:
        """Read a checkpoint.

        Raises `FileError` where there is none, or naming the file that is damaged.
        """
        place = self.place(step)
        if not place.is_dir():
            known = ", ".join(map(str, self.steps())) or "none"
            raise FileError(f"{self.folder} has no checkpoint of step {step}; it has {known}")
        manifest = read_manifest(place)
        found = manifest["format"]
        if found not in READERS:
            raise FileError(
                f"{place / MANIFEST}: written by another version of nnl-core (format {found}, "
                f"this one reads {', '.join(map(str, READERS))}); use nnl-core "
                f"{manifest['made_with'].get('versions', {}).get('nnl-core', '')}".rstrip()
            )
        for name, entry in manifest["files"].items():
            _verify(place / name, entry["bytes"], entry["sha256"])
        return READERS[found](place, manifest)

    def newest(self, report: Callable[[str], None]) -> Checkpoint:
        """Read the newest checkpoint that is whole; ``report`` hears of each that is not.

        Raises `FileError` where there is none.
        """
        steps = self.steps()
        for number in reversed(range(len(steps))):
            try:
                return self.load(steps[number])
            except FileError as error:
                if number == 0:
                    raise
                before = steps[number - 1]
                report(f"{error}; trying the checkpoint before it, of step {before}")
        raise FileError(
            f"{self.folder}: there is no checkpoint to go on from; `nnl runs` "
            "lists the runs there are, and --resume RUN names one"
        )

    def remove(self, steps: Iterable[int]) -> None:
        """Delete checkpoints; what a crash leaves of one is not taken for a damaged one."""
        for step in steps:
            hidden = self.folder / f".old-{step}"
            shutil.rmtree(hidden, ignore_errors=True)
            try:
                os.rename(self.place(step), hidden)
            except OSError as error:
                raise FileError(
                    f"{self.place(step)}: cannot be deleted: {error.strerror or error}"
                ) from error
            shutil.rmtree(hidden, ignore_errors=True)

    def sweep(self) -> None:
        """Delete what processes left here that were killed; nobody may be writing."""
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if path.name.startswith((".draft-", ".old-")):
                    shutil.rmtree(path, ignore_errors=True)


def synchronise(folder: Path) -> None:
    """Make what happened to names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not every file system can
            raise
    finally:
        os.close(descriptor)


# -------------------------------------------------------------------- writing


def _write(draft: Path, checkpoint: Checkpoint) -> None:
    suffix = ".safetensors" if find_spec("safetensors") else ".npz"
    names = [f"{name}{suffix}" for name in ("parameters", "solver", "arrays")]
    frozen = set(checkpoint.frozen)
    save(
        draft / names[0],
        {
            name: StoredParameter(array, name not in frozen)
            for name, array in checkpoint.parameters.items()
        },
    )
    write_states(draft / names[1], checkpoint.solver_name, checkpoint.solver)
    arrays: dict[str, Array] = {}
    values = pack(_values(checkpoint), arrays, "")
    save(draft / names[2], {name: StoredParameter(a, False) for name, a in arrays.items()})
    _write_text(draft / "state.json", json.dumps(values, allow_nan=False) + "\n")
    state = checkpoint.state
    manifest = {
        "format": FORMAT,
        **asdict(state),
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
        "solver": checkpoint.solver_name,
        "metrics": jsonable(checkpoint.history[-1]) if checkpoint.history else {},
        "made_with": checkpoint.made_with,
        "files": {
            name: {"bytes": (draft / name).stat().st_size, "sha256": _digest(draft / name)}
            for name in (*names, "state.json")
        },
    }
    text = json.dumps(manifest, indent=2, default=str) + "\n"
    _write_text(draft / MANIFEST, text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    _write_text(draft / DIGEST, f"{digest}  {MANIFEST}\n")


def _values(checkpoint: Checkpoint) -> dict[str, object]:
    """Return what is neither parameters nor states of the solver."""
    for name, kept in checkpoint.plugins.items():
        try:
            pack(kept, {}, "its state")
        except (TypeError, RecursionError) as error:
            version = checkpoint.made_with.get("plugins", {}).get(name)
            who = f"plugin {name!r}" if not version else f"plugin {name!r} {version}"
            raise TrainingError(
                f"{who} keeps in a checkpoint what no file can hold: {error}; it may keep arrays "
                "of numbers, and what JSON can hold"
            ) from error
    return {
        "learning_rate": checkpoint.learning_rate,
        "random": checkpoint.random,
        "history": checkpoint.history,
        "tracker": checkpoint.tracker,
        "metrics": checkpoint.metrics,
        "loss_scale": checkpoint.loss_scale,
        "plugins": checkpoint.plugins,
    }


def _write_text(path: Path, text: str) -> None:
    with replace_file(path) as file:
        file.write(text.encode())


# -------------------------------------------------------------------- reading


def read_manifest(place: Path) -> dict[str, Any]:
    """Return what a checkpoint says of itself; `FileError` where that is damaged."""
    text = _bytes(place / MANIFEST)
    digest = hashlib.sha256(text).hexdigest()
    if _bytes(place / DIGEST) != f"{digest}  {MANIFEST}\n".encode():
        raise FileError(f"{place / MANIFEST}: damaged: it is not what {DIGEST} says")
    return cast("dict[str, Any]", json.loads(text))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _verify(path: Path, size: int, digest: str) -> None:
    try:
        found = path.stat().st_size
        if found != size:
            raise FileError(f"{path}: damaged: it has {found} bytes of {size}")
        if _digest(path) != digest:
            raise FileError(f"{path}: damaged: it is not what was saved")
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _digest(path: Path) -> str:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            hasher.update(block)
    return hasher.hexdigest()


def _read_1(place: Path, manifest: Mapping[str, Any]) -> Checkpoint:
    files = {Path(name).stem: place / name for name in manifest["files"]}
    parameters = load(files["parameters"]).parameters
    arrays = {name: entry.array for name, entry in load(files["arrays"]).parameters.items()}
    values = cast("dict[str, Any]", unpack(json.loads(files["state"].read_bytes()), arrays))
    return Checkpoint(
        state=TrainState(**{key: manifest[key] for key in ("epoch", "batch", "step", "samples")}),
        parameters={name: entry.array for name, entry in parameters.items()},
        frozen=[name for name, entry in parameters.items() if not entry.need_grad],
        solver=read_states(files["solver"], manifest["solver"]),
        solver_name=manifest["solver"],
        made_with=manifest["made_with"],
        **values,
    )


READERS = {1: _read_1}
"""what reads a directory of each format, given its manifest"""
