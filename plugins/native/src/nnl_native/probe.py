"""Whether this backend can be used here, and if not, what is missing."""

from __future__ import annotations

import functools

from nnl_core.errors import NnlError


@functools.cache
def probe() -> str | None:
    """Return ``None``, or why the backend cannot be used here and what would help.

    oneDNN is not needed: without it, NumPy computes convolutions and products of matrices.
    """
    from nnl_native.compiler import compiler_command

    if compiler_command() is None:
        return "there is no C compiler (cc, gcc, clang, or CC); install one, or nnl-native[zig]"
    try:
        from nnl_native.runtime import libraries, walker

        walker()
        libraries()
    except (NnlError, OSError) as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        return f"its C does not compile or load here: {first[-1]}"
    return None
