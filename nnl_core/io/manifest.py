"""What is written with arrays so that a damaged file is noticed: their order, flags and digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nnl_core.errors import FileError
from nnl_core.graph.operator import Array
from nnl_core.io.formats import Contents, StoredParameter

VERSION = 1
# Two keys, so that damage to one cannot make a file look as if another program had written it.
MANIFEST, DIGEST = "nnl.manifest", "nnl.manifest.sha256"


def describe(
    parameters: Mapping[str, StoredParameter], metadata: Mapping[str, str]
) -> dict[str, str]:
    """Return the two entries of metadata that go into the file."""
    manifest = {
        "version": VERSION,
        "metadata": dict(metadata),
        "parameters": [
            {"name": name, "need_grad": bool(need_grad), "sha256": _digest(array)}
            for name, (array, need_grad) in parameters.items()
        ],
    }
    text = json.dumps(manifest, ensure_ascii=True, sort_keys=True)
    return {MANIFEST: text, DIGEST: hashlib.sha256(text.encode()).hexdigest()}


def verify(path: Path, arrays: Mapping[str, Array], entries: Mapping[str, str]) -> Contents:
    """Return what a file holds, checked against what `describe` made of it.

    A file of another program has neither entry: its arrays are taken as they are. Raises
    `FileError` naming the file and the damaged parameter.
    """
    text, digest = entries.get(MANIFEST), entries.get(DIGEST)
    if text is None and digest is None:
        return Contents({name: StoredParameter(array) for name, array in arrays.items()}, {})
    if text is None or digest != hashlib.sha256(text.encode()).hexdigest():
        raise FileError(f"{path}: damaged: the list of its parameters is not what was saved")
    manifest = json.loads(text)
    if manifest["version"] > VERSION:
        raise FileError(
            f"{path}: written by a newer version of nnl-core (file version "
            f"{manifest['version']}, this one reads {VERSION}); upgrade nnl-core"
        )
    listed = {entry["name"]: entry for entry in manifest["parameters"]}
    if listed.keys() != arrays.keys():
        odd = min(listed.keys() ^ arrays.keys())
        state = "missing" if odd in listed else "not in its list"
        raise FileError(f"{path}: damaged: parameter {odd!r} is {state}")
    for name, entry in listed.items():
        if _digest(arrays[name]) != entry["sha256"]:
            raise FileError(f"{path}: damaged: parameter {name!r} is not what was saved")
    return Contents(
        {name: StoredParameter(arrays[name], entry["need_grad"]) for name, entry in listed.items()},
        manifest["metadata"],
    )


def _digest(array: Array) -> str:
    """Return the SHA-256 of dtype, shape and elements."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    hasher = hashlib.sha256(f"{array.dtype.name} {array.shape} ".encode())
    hasher.update(little.reshape(-1).view(np.uint8).data if little.size else b"")
    return hasher.hexdigest()
