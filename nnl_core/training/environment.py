"""What a run was computed on: machine, threads, and the state of the project's repository."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from nnl_core.cpu.threads import thread_count

THREADS = ("NNL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def describe_environment(project: Path) -> dict[str, object]:
    """Return what results may depend on besides settings and versions."""
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": thread_count(),
        "variables": {name: os.environ[name] for name in THREADS if name in os.environ},
        "commit": _commit(project),
    }


def _processor() -> str:
    """Return the name of the processor, which only Linux's own table knows on Linux."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit(folder: Path) -> str | None:
    """Return the commit of the repository that a folder is in; with a ``+`` where it differs."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return f"{commit}+" if changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
