"""``nnl info``: versions, and which backends work here."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from nnl_core import __version__
from nnl_core.errors import NnlError
from nnl_core.hooks import BackendSpec
from nnl_core.hooks.loading import describe, resolve
from nnl_core.hooks.manager import installed_version
from nnl_core.session import Session

Details: TypeAlias = Callable[[], Mapping[str, str]]

DISTRIBUTIONS = (
    "numpy",
    "pluggy",
    "pydantic",
    "rich",
    "matplotlib",
    "jinja2",
    "safetensors",
    "pycuda",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Print what is here, and why what is missing is missing."""
    backends = sorted(session.manager.collect(BackendSpec), key=lambda spec: -spec.priority)
    rows: list[dict[str, Any]] = [
        {
            "name": spec.name,
            "summary": spec.summary,
            "priority": spec.priority,
            "problem": session.backend_problem(spec),
            "details": _details(spec, session),
        }
        for spec in backends
    ]
    facts = {
        "nnl-core": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        **{name: installed_version(name) for name in DISTRIBUTIONS},
    }
    project = None if session.project is None else str(session.project.path)
    active = [entry.name for entry in session.manager.entries if entry.state == "active"]
    try:
        default, reason = session.default_backend()
    except NnlError as error:
        default, reason = "none", str(error)
    if arguments.json:
        found = {
            "versions": facts,
            "backends": rows,
            "default_backend": default if default != "none" else None,
            "project": project,
            "plugins": active,
        }
        print(json.dumps(found, indent=2))
        return 0
    for name, version in facts.items():
        print(f"{name:<12} {version or 'not installed'}")
    print(f"{'project':<12} {project or 'none here'}")
    print(f"{'plugins':<12} {', '.join(active)} (`nnl plugins` lists all)")
    print(f"{'backend':<12} {default} ({reason})")
    print("backends, the preferred one first:")
    for row in rows:
        state = "works" if row["problem"] is None else f"cannot be used: {row['problem']}"
        print(f"  {row['name']:<10} {state}  ({row['summary']})")
        for name, text in row["details"].items():
            print(f"  {'':<10} {name}: {text}")
    return 0


def _details(spec: BackendSpec, session: Session) -> dict[str, str]:
    """Return what a backend that works has to say of itself."""
    if not spec.details or session.backend_problem(spec) is not None:
        return {}
    try:
        found = cast("Details", resolve(spec.details, f"details of backend {spec.name!r}"))()
    except Exception as error:
        return {"details": describe(error)}
    return dict(found)
