"""Import strings: finding what ``"package.module:attribute"`` names, or one clear error."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from nnl_core.errors import TargetError

_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")


def resolve(target: str, wanted_by: str) -> object:
    """Import what ``"package.module"`` or ``"package.module:attribute.attribute"`` names.

    Raises `TargetError`, which begins with ``wanted_by``, whatever goes wrong on the way: also
    where the imported module exits or raises nonsense. Only KeyboardInterrupt passes.
    """
    problem = target_problem(target)
    if problem:
        raise TargetError(f"{wanted_by}: {problem}")
    module, _, path = target.partition(":")
    found: object = import_module(module, f"{wanted_by}: target {target!r}")
    reached = module
    for part in path.split(".") if path else ():
        try:
            found = getattr(found, part)
        except KeyboardInterrupt:
            raise
        except AttributeError:
            hint = did_you_mean(part, dir(found))
            raise TargetError(
                f"{wanted_by}: target {target!r}: {reached!r} has no attribute {part!r}{hint}"
            ) from None
        except BaseException as error:
            raise TargetError(f"{wanted_by}: target {target!r}: {describe(error)}") from error
        reached += f":{part}" if reached == module else f".{part}"
    return found


def target_problem(target: object) -> str | None:
    """Say what is wrong with the form of an import string, or ``None``."""
    if isinstance(target, str) and _TARGET.fullmatch(target):
        return None
    return f"target {target!r} is not an import string like 'package.module:attribute'"


def import_module(module: str, wanted_by: str) -> object:
    """Import a module; `TargetError` says what went wrong and what may have been meant."""
    try:
        return importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        hint = ""
        if isinstance(error, ModuleNotFoundError) and error.name and module.startswith(error.name):
            parent, _, last = error.name.rpartition(".")
            if hasattr(sys.modules.get(parent), last):
                hint = f"; write '{parent}:{last}', with a colon before the attribute"
        raise TargetError(f"{wanted_by}: {describe(error)}{hint}") from error


def describe(error: BaseException) -> str:
    """Return an exception in one line, even where the exception itself is broken."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception; one that takes none (a frozen data class) goes without."""
    with suppress(Exception):
        error.add_note(note)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x' or 'y'?"``, or nothing where no known name is near.

    Nearest are names that end with this one, as ``train/loss`` and ``train.seed`` do.
    """
    from difflib import get_close_matches  # only errors need it

    by_lower = {entry.lower(): entry for entry in sorted(known, reverse=True)}
    ends = tuple(f"{mark}{name.lower()}" for mark in "/.")
    found = [entry for entry in reversed(by_lower) if entry.endswith(ends)][:3]
    near = [repr(by_lower[match]) for match in found or get_close_matches(name.lower(), by_lower)]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def import_file(path: Path) -> ModuleType:
    """Import a Python file that is on no path, as a module called like the file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(path.stem)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        if before is not None:
            sys.modules[path.stem] = before
        raise
    return module
