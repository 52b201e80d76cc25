"""How much code the core is, per package; blank lines, comments and docstrings do not count."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

from benchmarks.report import Cell, Report

CORE = Path(__file__).parents[1] / "nnl_core"
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


def run(rounds: int) -> Report:
    """Count; ``rounds`` is of no use here, since a count is always the same."""
    files: Counter[str] = Counter()
    code: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    for path in sorted(CORE.rglob("*")):
        package = path.relative_to(CORE).parts[0].removesuffix(".py")
        if path.suffix == ".py":
            files[package] += 1
            code[package] += code_lines(path.read_text("utf-8"))
        elif path.suffix in (".c", ".h", ".cu", ".cuh"):
            files[package] += 1
            kernels[package] += sum(
                1 for line in path.read_text("utf-8").splitlines() if line.strip()
            )
    rows: list[tuple[Cell, ...]] = [
        (package, files[package], code[package], kernels[package]) for package in sorted(files)
    ]
    rows.append(("total", files.total(), code.total(), kernels.total()))
    columns = ("package", "files", "lines of Python", "lines of C and CUDA")
    return Report("Lines of code of nnl_core", columns, rows)


def code_lines(source: str) -> int:
    """Count the lines that hold code: no blank line, comment or docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(ast.parse(source)))


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines
