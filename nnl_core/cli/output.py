"""Output that may lose its reader without ending what writes it."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

GONE = (errno.EPIPE, errno.EIO)  # of a pipe that nobody reads, of a terminal that was closed


class _Steady(io.FileIO):
    """Writes to a descriptor; once nobody reads what is written, it goes nowhere."""

    # The type of a buffer is one that io has no name for.
    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # a buffer
        try:
            return super().write(view) or 0
        except OSError as error:
            if error.errno not in GONE:
                raise
            null = os.open(os.devnull, os.O_WRONLY)
            try:
                os.dup2(null, self.fileno())
            finally:
                os.close(null)
            return len(view)


@contextmanager
def steady_output() -> Iterator[None]:
    """Let output and messages go nowhere from where on nobody reads them, or where none can be."""
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(_steady(sys.stdout, stack)))
        stack.enter_context(redirect_stderr(_steady(sys.stderr, stack)))
        yield


def _steady(stream: TextIO | None, stack: ExitStack) -> TextIO:
    if stream is None:  # the process was started with it closed
        return stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # python -u has no buffer
    if type(stream) is not io.TextIOWrapper or type(raw) is not io.FileIO:
        return stream  # somebody's own, such as a test's
    stream.flush()
    steady = io.TextIOWrapper(
        io.BufferedWriter(_Steady(raw.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering or stream.write_through,
    )
    stack.callback(steady.flush)
    return steady
