"""Format ``npz``: a zip of NumPy arrays, which ``numpy.load`` reads too."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nnl_core.errors import FileError
from nnl_core.graph.dtypes import bfloat16
from nnl_core.graph.operator import Array
from nnl_core.io.formats import Contents, StoredParameter
from nnl_core.io.manifest import DIGEST, MANIFEST, describe, verify

_MANIFEST = "nnl.json"
_COMMENT = b"nnl.manifest.sha256 "
_ARRAY = ".npy"


class NpzFormat:
    """Each parameter is a member ``NAME.npy``; nothing is ever pickled."""

    def write_parameters(
        self,
        file: BinaryIO,
        parameters: Mapping[str, StoredParameter],
        metadata: Mapping[str, str],
    ) -> None:
        """Write everything to an open file."""
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, (array, _) in parameters.items():
                with archive.open(zipfile.ZipInfo(f"{name}{_ARRAY}"), "w", force_zip64=True) as out:
                    np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
            entries = describe(parameters, metadata)
            archive.writestr(zipfile.ZipInfo(_MANIFEST), entries[MANIFEST])
            # Apart from the manifest: a damaged directory of the zip may hide whole members.
            archive.comment = _COMMENT + entries[DIGEST].encode()

    def read_parameters(self, path: Path) -> Contents:
        """Read everything; raise `FileError` naming the file where it is damaged."""
        arrays: dict[str, Array] = {}
        entries: dict[str, str] = {}
        try:
            with zipfile.ZipFile(path) as archive:
                if archive.comment.startswith(_COMMENT):
                    entries[DIGEST] = archive.comment.removeprefix(_COMMENT).decode()
                for member in archive.namelist():
                    with archive.open(member) as source:
                        if member == _MANIFEST:
                            entries[MANIFEST] = source.read().decode()
                        else:
                            array = np.lib.format.read_array(source, allow_pickle=False)
                            arrays[member.removesuffix(_ARRAY)] = _as_saved(array)
        except (
            zipfile.BadZipFile,
            zlib.error,
            ValueError,
            EOFError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise FileError(f"{path}: no npz file, or damaged: {error}") from error
        return verify(path, arrays, entries)


def _as_saved(array: Array) -> Array:
    """Give elements of ``bfloat16`` their dtype: NumPy's files call them two bytes of no kind."""
    return array.view(bfloat16()) if array.dtype == np.dtype("V2") else array
