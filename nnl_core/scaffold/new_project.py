"""Starting a project: a commented project file, a model, and data to train it on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nnl_core.errors import ConfigurationError
from nnl_core.io.atomic import replace_file

SOURCE = Path(__file__).parent / "project"
DATA = "spirals.npz"
ARMS, NOISE = 3, 0.03


def create_project(folder: Path) -> list[Path]:
    """Write a project into a folder, which is made if need be, and return the files.

    Raises ConfigurationError where one of them exists, or the folder cannot be written to.
    """
    texts = {path.name.removesuffix(".template"): path for path in SOURCE.glob("*.template")}
    paths = [folder / name for name in (*sorted(texts), DATA)]
    for path in paths:
        if path.exists():
            raise ConfigurationError(f"{path} exists already; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replace_file(folder / DATA) as file:
            np.savez_compressed(file, allow_pickle=False, **spirals())
        for name, source in texts.items():
            with replace_file(folder / name) as file:
                file.write(source.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"cannot write into {folder}: {error}") from error
    return paths


def spirals() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    """Return points on three arms of a spiral, and the arm of each: 600 to train on, 150 to test.

    ``train_x`` and ``test_x`` are ``(count, 2)``, ``train_y`` and ``test_y`` ``(count,)``.
    """
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 600), ("test", 150)):
        arm = rng.integers(ARMS, size=count)
        radius = np.sqrt(rng.uniform(0.02, 1.0, size=count))
        angle = 4 * radius + 2 * np.pi * arm / ARMS
        points = radius * np.stack([np.cos(angle), np.sin(angle)])
        points = points.T + rng.normal(scale=NOISE, size=(count, 2))
        arrays[f"{part}_x"] = points.astype(np.float32)
        arrays[f"{part}_y"] = arm.astype(np.int32)
    return arrays
