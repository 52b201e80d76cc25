"""Environments for the libraries that NNL is measured beside, made when first asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Peer(NamedTuple):
    """A library at one version, and the Python that it runs on."""

    name: str
    version: str
    requirements: tuple[str, ...]
    python: str | None = None  # None: the Python that runs the benchmark


TORCH = Peer("torch", "2.13.0", ("torch==2.13.0", "numpy<3"))
NNABLA = Peer("nnabla", "1.39.0", ("nnabla==1.39.0", "numpy<2"), python="3.10")


class PeerUnavailableError(Exception):
    """The peer cannot be had here; the message says why."""


def peer_python(peer: Peer) -> Path:
    """Return the interpreter of an environment that holds ``peer``, installing it if need be."""
    base = _interpreter(peer)
    folder = cache_folder() / f"{peer.name}-{peer.version}"
    python = folder / "bin" / "python"
    marker = folder / "ready"
    wanted = f"{base}\n" + "\n".join(peer.requirements)
    if python.exists() and marker.is_file() and marker.read_text("utf-8") == wanted:
        return python
    print(f"installing {peer.name} {peer.version} into {folder}", file=sys.stderr)
    _run([base, "-m", "venv", "--clear", str(folder)])
    _run([str(python), "-m", "pip", "install", "--quiet", *peer.requirements])
    marker.write_text(wanted, "utf-8")
    return python


def cache_folder() -> Path:
    """Return the folder that keeps the environments between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nnl-benchmarks"


def _interpreter(peer: Peer) -> str:
    if peer.python is None:
        return sys.executable
    name = f"python{peer.python}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    # pyenv puts on the PATH a stand-in that fails unless its version is selected: look past it.
    found = [str(path) for path in sorted(pyenv.glob(f"{peer.python}.*/bin/{name}"))]
    found += [path] if (path := shutil.which(name)) else []
    if not found:
        reason = f"{peer.name} {peer.version} needs {name}, which is not on this machine"
        raise PeerUnavailableError(reason)
    return found[0]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise PeerUnavailableError(f"'{' '.join(command)}' failed: {lines[-1]}")
