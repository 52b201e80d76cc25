"""Arrays for `check_operator`: other dtypes, other memory layouts, and how two of them compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nnl_core.errors import BackendError
from nnl_core.graph.dtypes import bfloat16, is_floating
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import Spec

Values: TypeAlias = Sequence[Array | None]

INTEGERS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3, "bfloat16": 1e-2}


def floating_dtypes() -> list[np.dtype]:
    """Return the floating dtypes, the widest first; ``bfloat16`` where its library is there."""
    known: list[np.dtype] = [np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16)]
    try:
        return [*known, bfloat16()]
    except BackendError:
        return known


def variants(inputs: Values) -> Iterator[list[Array | None]]:
    """Yield the inputs in each floating dtype; once as they are where none is floating."""
    if any(a is not None and is_floating(a.dtype) for a in inputs):
        for dtype in floating_dtypes():
            yield cast_floating(inputs, dtype)
    else:
        yield copies(inputs)


def integer_variants(inputs: Values) -> Iterator[list[Array | None]]:
    """Yield the inputs with the integers among them in each other dtype that holds them."""
    whole = [a for a in inputs if a is not None and a.dtype.kind in "iu"]
    for dtype in INTEGERS:
        bounds = np.iinfo(dtype)
        fits = all(np.all((a >= bounds.min) & (a <= bounds.max)) for a in whole)
        if fits and any(a.dtype != dtype for a in whole):
            yield [a if a is None or a.dtype.kind not in "iu" else a.astype(dtype) for a in inputs]


def cast_floating(inputs: Values, dtype: npt.DTypeLike) -> list[Array | None]:
    """Convert what is floating."""
    return [
        None if a is None else a.astype(dtype if is_floating(a.dtype) else a.dtype) for a in inputs
    ]


def copies(inputs: Values) -> list[Array | None]:
    """Return contiguous copies."""
    return [None if a is None else np.array(a, order="C") for a in inputs]


def _sliced(array: Array) -> Array:
    """Put the elements two apart, with garbage between them."""
    wide = garbage(Spec(tuple(2 * n for n in array.shape), array.dtype))
    view = wide[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def _reversed(array: Array) -> Array:
    """Store the elements backwards along every axis."""
    backwards = tuple(slice(None, None, -1) for _ in array.shape)
    view: Array = np.array(array[backwards], order="C")[backwards]
    return view


LAYOUTS: Mapping[str, Callable[[Array], Array]] = {
    "transposed": np.asfortranarray,
    "reversed": _reversed,
    "sliced": _sliced,
}


def repeated(array: Array) -> Array:
    """Repeat the first place of the first axis by a stride of zero."""
    if not array.ndim or not array.size:
        return array
    return np.broadcast_to(array[:1], array.shape)


def garbage(spec: Spec) -> Array:
    """Return memory filled with what no result should show."""
    if is_floating(spec.dtype):
        return np.full(spec.shape, np.nan, spec.dtype)
    if spec.dtype.kind == "b":
        return np.ones(spec.shape, spec.dtype)
    return np.full(spec.shape, np.iinfo(spec.dtype).max, spec.dtype)


def same_bits(left: Array, right: Array) -> bool:
    """Whether two arrays agree bit for bit."""
    return left.shape == right.shape and left.tobytes() == right.tobytes()


def close(result: Array, target: Array, tolerance: float) -> bool:
    """Whether an array is as near to another as its dtype allows; `NaN` only equals `NaN`."""
    if not is_floating(target.dtype):
        return bool(np.array_equal(result, target))
    allowed = TOLERANCES[target.dtype.name] * tolerance
    finite = np.abs(target[np.isfinite(target)].astype(np.float64))
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    with np.errstate(all="ignore"):
        return bool(
            np.allclose(
                result.astype(np.float64),
                target.astype(np.float64),
                rtol=allowed,
                atol=allowed * scale,
                equal_nan=True,
            )
        )


def difference(result: Array, target: Array) -> str:
    """Say where two arrays differ most."""
    if result.shape != target.shape:
        return f"of shape {result.shape}, not {target.shape}"
    if not target.size:
        return "empty"
    with np.errstate(all="ignore"):
        gaps = np.abs(result.astype(np.float64) - target.astype(np.float64))
        unequal = ~((result == target) | (np.isnan(gaps) & np.isnan(target) & np.isnan(result)))
    gaps = np.where(unequal, np.where(np.isnan(gaps), np.inf, gaps), -1)
    place = np.unravel_index(int(np.argmax(gaps)), gaps.shape)
    where = tuple(int(axis) for axis in place)
    return (
        f"{result[place]!r} at {where}, not {target[place]!r} "
        f"({int(np.count_nonzero(unequal))} of {target.size} elements differ)"
    )


def describe(inputs: Values) -> str:
    """Name dtypes and shapes."""
    return ", ".join("none" if a is None else f"{a.dtype}{a.shape}" for a in inputs)
