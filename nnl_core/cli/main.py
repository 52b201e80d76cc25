"""``nnl``: global options, the commands that plugins contribute, and errors in one line."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from nnl_core.errors import NnlError, PluginError, UnknownComponentError
from nnl_core.hooks import CommandSpec
from nnl_core.hooks.loading import describe
from nnl_core.session import Session

SessionFactory = Callable[[Sequence[str], Callable[[str], None]], Session]


def main(arguments: Sequence[str] | None = None, make_session: SessionFactory | None = None) -> int:
    """Run ``nnl`` with these arguments (default: the process's own) and return its exit status.

    0 is success, 1 an error, 2 wrong usage, 130 an interruption (of a training by SIGTERM 143, by
    SIGHUP 129), 141 a lost reader of the output. ``make_session`` gets the values
    of ``-p`` and a function that reports plugins that fail.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    show_traceback = False
    if isinstance(sys.stdout, io.TextIOWrapper):  # what a terminal cannot show must not stop us
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        options = _global_options().parse_args(arguments)
        show_traceback = options.traceback
        status = _run(options, make_session or _project_session)
        print(end="", flush=True)  # also where there is no stdout
        return status
    except SystemExit as error:  # argparse ends like this
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except KeyboardInterrupt as error:
        if hasattr(error, "__notes__"):
            print(f"nnl: interrupted{_notes(error)}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _discard_output()
        return 141
    except Exception as error:
        if show_traceback:
            import traceback

            traceback.print_exc()
        text = " ".join(str(error).split()) if isinstance(error, NnlError) else describe(error)
        hint = "" if isinstance(error, NnlError) or show_traceback else "; --traceback shows where"
        print(f"nnl: error: {text}{_notes(error)}{hint}", file=sys.stderr)
        return 2 if isinstance(error, UnknownCommandError) else 1


def _notes(error: BaseException) -> str:
    return "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


def _discard_output() -> None:
    """Let what is still to be flushed go nowhere: whoever read it has gone."""
    with contextlib.suppress(io.UnsupportedOperation):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, sys.stdout.fileno())
        finally:
            os.close(null)


class UnknownCommandError(UnknownComponentError):
    """There is no such command."""


def _global_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nnl", add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true", help="show this text and exit")
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    parser.add_argument(
        "-p",
        dest="plugins",
        metavar="NAME",
        action="append",
        default=[],
        help="activate a plugin; -p no:NAME disables one",
    )
    parser.add_argument(
        "--traceback", action="store_true", help="show where in the code an error arose"
    )
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _project_session(command_line: Sequence[str], report: Callable[[str], None]) -> Session:
    return Session.from_project(Path.cwd(), command_line=command_line, report=report, tolerant=True)


def _run(options: argparse.Namespace, make_session: SessionFactory) -> int:
    if options.version:
        from nnl_core import __version__

        print(f"nnl {__version__}")
        return 0
    if options.help or options.command is None:
        text = _help(options, make_session)
        print(text, end="", file=sys.stdout if options.help else sys.stderr)
        return 0 if options.help else 2
    with contextlib.redirect_stdout(sys.stderr):  # for what plugins say on the way
        session = make_session(options.plugins, report)
        try:
            record = session.manager.component(CommandSpec, options.command)
        except UnknownComponentError as error:
            raise UnknownCommandError(str(error)) from None
        if not record.tolerant:
            session.check()
        module = session.manager.resolve(record)
    if not isinstance(module, ModuleType) or not {"add_arguments", "run"} <= vars(module).keys():
        raise PluginError(
            f"command {record.name!r} of {session.manager.owner(record)}: target {record.target!r} "
            "is not a module with add_arguments and run"
        )
    parser = argparse.ArgumentParser(
        prog=f"nnl {record.name}", description=record.summary, allow_abbrev=False
    )
    module.add_arguments(parser)
    arguments = parser.parse_args(options.rest)
    if record.tolerant:  # looks at the session from outside
        status = module.run(arguments, session)
    else:
        with session:
            status = module.run(arguments, session)
    if not isinstance(status, int):
        raise PluginError(f"command {record.name!r}: run returned {status!r}, not an exit status")
    return status


def _help(options: argparse.Namespace, make_session: SessionFactory) -> str:
    """Return the text of ``nnl --help``; what is wrong with the project must not keep it away."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            commands = make_session(options.plugins, report).manager.collect(CommandSpec)
    except NnlError as error:
        report(str(error))
        from nnl_core.builtin import COMMANDS as commands
    parser = argparse.ArgumentParser(
        prog="nnl",
        usage="nnl [-p NAME] [--traceback] COMMAND ...",
        description="Train, evaluate and ship models; see `nnl COMMAND --help`.",
        parents=[_global_options()],
        add_help=False,
    )
    table = parser.add_subparsers(title="commands", metavar="COMMAND")
    for record in commands:
        table.add_parser(record.name, help=record.summary.replace("%", "%%"))
    return parser.format_help()


def report(message: str) -> None:
    """Print a warning, in one line."""
    print(f"nnl: warning: {' '.join(message.split())}", file=sys.stderr)
