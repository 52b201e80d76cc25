"""Kernels of where extremes are, and of what is put there."""

from __future__ import annotations

from nnl_native.kernel import CStep, Emission, Operand

# A negative position counts from the end where it may. What is no position says so in `failure`,
# which is to be looked at before the result is used.
TEXT = """
#ifndef NNL_POSITION_{name}
#define NNL_POSITION_{name}
INLINE int64_t nnl_position_{name}({kind} value, int64_t length, int from_end, int32_t *failure) {{
    {check}
    int64_t place = (int64_t)value;
    if (({kind})place != value) {{ *failure = 1; return 0; }}
    if (from_end && place < 0) place += length;
    if (place < 0 || place >= length) {{ *failure = 1; return 0; }}
    return place;
}}
#endif
"""
RANGE = "if (!(value > -9e18f && value < 9e18f)) { *failure = 1; return 0; }"  # of the cast


def reader(indices: Operand) -> str:
    """Return the C function that reads the positions in an operand."""
    check = RANGE if indices.dtype.kind == "f" else ""
    return TEXT.format(name=indices.dtype.name, kind=indices.c_type, check=check)


def position(indices: Operand, value: str, length: str, *, from_end: bool = False) -> str:
    """Return a C expression of one position."""
    return f"nnl_position_{indices.dtype.name}({value}, {length}, {int(from_end)}, failure)"


def flat_position(indices: Operand, depth: int, at: int, element: str) -> list[str]:
    """Return what declares ``place``, the row that positions along several axes name.

    Their lengths are ``d[at]`` and the following; ``element`` is the C expression of the position
    along ``axis``.
    """
    lines = ["int64_t place = 0;"]
    for axis in range(depth):
        one = position(
            indices, element.replace("axis", str(axis)), f"d[{at + axis}]", from_end=True
        )
        lines.append(f"place = place * d[{at + axis}] + {one};")
    return [*lines, "if (*failure) return;"]


def only_checked(
    name: str, indices: Operand, lengths: tuple[int, ...], *, from_end: bool = False
) -> Emission:
    """Look at positions of which nothing is made: ``lengths`` are of equal parts of them."""
    if not indices.size:
        return Emission(())
    value = position(indices, f"{name}[i]", "d[1 + i / d[0]]", from_end=from_end)
    body = f"for (int64_t i = 0; i < {len(lengths)} * d[0]; i++) {value};"
    dims = (indices.size // len(lengths), *lengths)
    return Emission((CStep(body, (name,), dims, 1, indices.size, reader(indices)),))
