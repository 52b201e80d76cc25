"""Nested values with arrays in them as JSON and a table of arrays, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import is_
from typing import cast

import numpy as np

from nnl_core.data.source import Array
from nnl_core.graph.dtypes import is_real

# A dictionary with one such key stands for what JSON has not.
ARRAY, NUMBER, TUPLE, PAIRS = "$array", "$number", "$tuple", "$pairs"


def pack(value: object, arrays: dict[str, Array], place: str) -> object:
    """Return a value as what JSON can hold; its arrays go into ``arrays``, under their places.

    Tuples, keys that are no texts, NaN and infinities come back as they are, NumPy's scalars as
    Python's. Raises TypeError, naming the place, for all else.
    """
    # First of all what there is most of: a long history is packed for each checkpoint.
    if type(value) is float and math.isfinite(value):
        return value
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        if not is_real(value.dtype) or value.dtype.itemsize > 8:
            raise TypeError(f"{place} is an array of {value.dtype}")
        name = place
        while name in arrays:  # {"a/b": ..., "a": {"b": ...}}
            name += "'"
        arrays[name] = value.copy()
        return {ARRAY: name}
    if isinstance(value, float) and not math.isfinite(value):
        return {NUMBER: repr(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value  # also what was one of NumPy's
    if isinstance(value, list | tuple):
        items = [pack(item, arrays, f"{place}/{i}") for i, item in enumerate(value)]
        if isinstance(value, tuple):
            return {TUPLE: items}
        # What JSON can hold is not copied: a history of many epochs would be there twice.
        return value if all(map(is_, items, value)) else items
    if isinstance(value, Mapping):
        if all(type(key) is str and not key.startswith("$") for key in value):
            packed = {key: pack(item, arrays, f"{place}/{key}") for key, item in value.items()}
            is_same = type(value) is dict and all(map(is_, packed.values(), value.values()))
            return value if is_same else packed
        pairs = [[*pair] for pair in value.items()]
        return {PAIRS: pack(pairs, arrays, place)}
    raise TypeError(f"{place} is a {type(value).__name__}")


def unpack(value: object, arrays: Mapping[str, Array]) -> object:
    """Return the value of which `pack` made this."""
    if isinstance(value, list):
        return [unpack(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$array": place}:
            return arrays[cast(str, place)]
        case {"$number": text}:
            return float(cast(str, text))
        case {"$tuple": items}:
            return tuple(cast("list[object]", unpack(items, arrays)))
        case {"$pairs": pairs}:
            return dict(cast("list[tuple[object, object]]", unpack(pairs, arrays)))
    return {key: unpack(item, arrays) for key, item in value.items()}
