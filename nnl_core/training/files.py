"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path beside ``path`` to write to, which takes its place if the block succeeds."""
    draft = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def jsonable(value: object) -> object:
    """Return numbers in dictionaries and lists as JSON has them: NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON, whole or not at all; NaN is not JSON, and raises ValueError."""
    with replacing(path) as draft:
        draft.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", "utf-8")
