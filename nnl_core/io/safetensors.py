"""Format ``safetensors``: a header and raw elements, which most other engines read too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nnl_core.errors import FileError
from nnl_core.graph.dtypes import bfloat16
from nnl_core.graph.operator import Array
from nnl_core.io.formats import Contents, StoredParameter
from nnl_core.io.manifest import describe, verify


class SafetensorsFormat:
    """Needs the library ``safetensors``, which the extra ``nnl-core[standard]`` installs."""

    def __init__(self) -> None:
        try:
            import safetensors.numpy as library
        except ImportError as error:
            raise FileError(
                "safetensors files need the library safetensors, which is not installed: "
                "pip install 'nnl-core[standard]', or use the suffix .npz"
            ) from error
        self._library = library

    def write_parameters(
        self,
        file: BinaryIO,
        parameters: Mapping[str, StoredParameter],
        metadata: Mapping[str, str],
    ) -> None:
        """Write everything to an open file."""
        arrays = {
            name: np.ascontiguousarray(array).reshape(array.shape)
            for name, (array, _) in parameters.items()
        }
        file.write(self._library.save(arrays, metadata=describe(parameters, metadata)))

    def read_parameters(self, path: Path) -> Contents:
        """Read everything; raise `FileError` naming the file where it is damaged."""
        from safetensors import SafetensorError, safe_open

        arrays: dict[str, Array] = {}
        try:
            with safe_open(path, framework="numpy") as source:
                for name in source.keys():
                    if source.get_slice(name).get_dtype() == "BF16":
                        bfloat16()  # so that NumPy knows it
                    arrays[name] = source.get_tensor(name)
                entries = source.metadata() or {}
        except (SafetensorError, ValueError, TypeError) as error:
            raise FileError(f"{path}: no safetensors file, or damaged: {error}") from error
        return verify(path, arrays, entries)
