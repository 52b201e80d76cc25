"""The processes that are compared: which there are, how one starts, what it is asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from benchmarks.cpu.arrays import CASES, INFERENCE
from benchmarks.peers import NNABLA, TORCH, Peer, PeerUnavailableError, peer_python

ROOT = Path(__file__).parents[2]
ONNX = Peer("onnxruntime", "1.32.0", ("onnxruntime==1.32.0", "onnx==1.23.2", "numpy<3"))


def threads() -> str:
    """Return the number of threads that everyone has."""
    return os.environ.get("OMP_NUM_THREADS", "1")


class Kind(NamedTuple):
    """A way to run the workloads."""

    module: str
    arguments: Callable[[], list[str]]
    peer: Peer | None = None  # None: NNL itself
    cases: tuple[str, ...] = CASES


KINDS = {
    "NNL": Kind("cpu.nnl_worker", list),
    "PyTorch": Kind("cpu.torch_worker", lambda: [threads()], TORCH),
    "torch.compile": Kind("cpu.torch_worker", lambda: [threads(), "compile"], TORCH),
    "nnabla": Kind("cpu.nnabla_worker", list, NNABLA),
    "ONNX Runtime": Kind("cpu.onnx_worker", lambda: [threads()], ONNX, INFERENCE),
}


class Worker:
    """A process that runs one workload in one library, with caches of compiled code of its own."""

    def __init__(
        self,
        name: str,
        cache: Path,
        backend: str | None = None,
        kinds: Mapping[str, Kind] = KINDS,
    ) -> None:
        self.name = name
        kind = kinds[name]
        python = sys.executable if kind.peer is None else str(peer_python(kind.peer))
        arguments = kind.arguments()
        if kind.peer is None and backend is not None:
            arguments.append(backend)
        variables = {"NNL_CACHE_DIR": str(cache), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        self.process = subprocess.Popen(
            [python, "-m", f"benchmarks.{kind.module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env={**os.environ, **variables},
            start_new_session=True,  # with those that it starts to compile in, which end with it
        )

    def ask(self, *command: Any) -> Any:
        """Send a command and wait for the answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self.process.wait()
            raise PeerUnavailableError(f"its process ended with status {status}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerUnavailableError(answer["error"].splitlines()[0])
        return answer["answer"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
