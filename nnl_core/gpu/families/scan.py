"""CUDA kernels of scans along an axis: running sums, products, extremes, recurrences."""

from __future__ import annotations

import numpy as np

from nnl_core.gpu.families.reduction import added_type, sizeof
from nnl_core.gpu.families.softmax import split
from nnl_core.gpu.kernel import (
    FLOATING,
    NULL,
    THREADS,
    Address,
    Argument,
    Call,
    Emission,
    Launch,
    blocks,
    c_type,
    computing_type,
    emitter,
    given,
    kernel,
    over,
    result,
    scratch,
)
from nnl_core.graph.spec import Spec

TILE = 4  # elements of a thread in a tile of a row
SHORT = 32  # elements of a row up to which one thread scans it


def _scan(
    call: Call,
    x: Spec,
    operation: str,
    added: str,
    state: int,
    *,
    source: Address | None = None,
    factors: Address = NULL,
    index: Address = NULL,
) -> Emission:
    """Scan along an axis; ``state`` are the bytes of what is known of a chunk."""
    outer, n, inner = split(x.shape, call.attributes["axis"])
    lines = outer * inner
    if not x.size:
        return Emission(())
    wanted = 4 * call.device.multiprocessors
    if inner == 1 and n > SHORT:
        kind = "rows"
        threads = min(THREADS, 32 * blocks(n, 32 * TILE))
        grid, least, most = lines, 4 * threads * TILE, threads
    else:
        kind, threads = "columns", min(THREADS, 32 * blocks(lines, 32))
        grid, least, most = blocks(lines, threads), 32, 32
    chunks = 1
    if grid * 2 <= wanted and n >= 2 * least:
        chunks = min(most, blocks(wanted, grid), n // least)
    each = blocks(n, chunks)
    chunks = blocks(n, each)
    defines: dict[str, str | int] = {
        "T": c_type(x.dtype),
        "C": computing_type(x.dtype),
        "OUT": c_type(call.outputs[0].dtype),
        "ACC": added,
        "OPERATION": operation,
    }
    if x.dtype.name in FLOATING:
        defines["FLOATS"] = 1
    arguments: tuple[Argument, ...] = (
        given(0) if source is None else source,
        factors,
        result(),
        index,
        scratch() if chunks > 1 else NULL,
        *(np.int64(one) for one in (lines, n, inner, chunks, each)),
        np.int32(call.attributes.get("reverse", False)),
        np.int32(call.attributes.get("exclusive", False)),
    )
    entries = [f"{kind}_totals", kind] if chunks > 1 else [kind]
    launches = tuple(
        Launch(kernel("scan.cu", entry, **defines), (grid, chunks, 1), (threads, 1, 1), arguments)
        for entry in entries
    )
    return Emission(launches, (lines * chunks * state,) if chunks > 1 else ())


@emitter("nnl::cumsum", "nnl::cumprod")
def running_sum(call: Call) -> Emission | None:
    """Running sums and products: half precision in ``float``, integers in 64 bits."""
    x = call.inputs[0]
    assert x is not None
    operation = "Adding" if call.name == "nnl::cumsum" else "Multiplying"
    added = added_type(x.dtype)
    return _scan(call, x, operation, added, sizeof(added))


@emitter("nnl::logcumsumexp")
def running_log_sum(call: Call) -> Emission | None:
    """Running logarithms of sums of exponentials."""
    x = call.inputs[0]
    assert x is not None
    added = computing_type(x.dtype)
    return _scan(call, x, "LogAdding", added, sizeof(added))


@emitter("nnl::running_extreme")
def running_extreme(call: Call) -> Emission | None:
    """The most extreme so far, and where it was first met."""
    x = call.inputs[0]
    assert x is not None
    operation = "Sinking" if call.attributes["smallest"] else "Rising"
    return _scan(call, x, operation, added_type(x.dtype), 16, index=result(1))


@emitter("nnl::recurrence")
def recurrence(call: Call) -> Emission | None:
    """``s[k] = b[k] + a[k] s[k-1]``, as a scan of the maps ``s -> b + a s``."""
    a, b = call.inputs
    if a is None or b is None or a.dtype != b.dtype or not call.has_only(*FLOATING):
        return None
    added = computing_type(b.dtype)
    return _scan(call, b, "Recurring", added, 2 * sizeof(added), source=given(1), factors=given(0))


@emitter("nnl::delay")
def delay(call: Call) -> Emission | None:
    """Elements moved one place along an axis."""
    x = call.inputs[0]
    assert x is not None
    _, n, inner = split(x.shape, call.attributes["axis"])
    numbers = (np.int64(n), np.int64(inner), np.int32(call.attributes["reverse"]))
    run = kernel("scan.cu", "delay", T=c_type(x.dtype))
    return Emission((over(run, x.size, (given(0), result(), *numbers)),))
