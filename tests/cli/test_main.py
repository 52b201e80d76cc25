"""``nnl``: options, commands of plugins, and how errors end."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest

from nnl_core.cli import main
from nnl_core.errors import NnlError
from nnl_core.hooks import CommandSpec, Plugin

MAIN = "import sys; from nnl_core.cli import main; sys.exit(main())"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.fixture
def command(monkeypatch):
    """Make a plugin with the command ``greet``, whose module has these functions."""

    def make(run, add_arguments=lambda parser: None, **members: object) -> type[Plugin]:
        module = types.ModuleType("greetings")
        module.run, module.add_arguments = run, add_arguments
        monkeypatch.setitem(sys.modules, "greetings", module)
        record = CommandSpec("greet", "greetings", "say 100% hello")
        members = {"name": "hello", "nnl_commands": lambda self: [record], **members}
        return type("Hello", (Plugin,), members)

    return make


def test_help_lists_the_commands_of_all_plugins_with_their_summaries(nnl_run, command):
    outcome = nnl_run("--help", plugins=[command(lambda arguments, session: 0)])
    assert outcome.status == 0
    assert "train " in outcome.stdout
    assert "say 100% hello" in outcome.stdout


def test_help_does_not_import_the_commands(nnl_run):
    record = CommandSpec("greet", "no_such_module", "say hello")
    plugin = type("P", (Plugin,), {"name": "p", "nnl_commands": lambda self: [record]})
    assert "say hello" in nnl_run("--help", plugins=[plugin]).stdout


def test_without_a_command_the_help_goes_to_stderr_with_status_2(nnl_run):
    outcome = nnl_run()
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("usage: nnl")


def test_version(nnl_run):
    assert nnl_run("--version") == (0, "nnl 0.1.0\n", "")


def test_a_command_gets_its_arguments_and_an_entered_session(nnl_run, command):
    def add_arguments(parser):
        parser.add_argument("--name")

    def run(arguments, session):
        from nnl_core.session import current_session

        print(arguments.name, current_session() is session, session.events.step_end is not None)
        return 7

    plugin = command(run, add_arguments, nnl_on_step_end=lambda self, event: None)
    outcome = nnl_run("greet", "--name", "you", plugins=[plugin])
    assert outcome == (7, "you True True\n", "")


def test_help_of_a_command(nnl_run, command):
    outcome = nnl_run("greet", "--help", plugins=[command(lambda arguments, session: 0)])
    assert outcome.status == 0
    assert outcome.stdout.startswith("usage: nnl greet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grete"], "nnl: error: unknown command 'grete'; did you mean 'greet'?"),
        (["--unknown"], "unrecognized arguments: --unknown"),
        (["greet", "--unknown"], "unrecognized arguments: --unknown"),
        (["-p"], "argument -p: expected one argument"),
    ],
)
def test_wrong_usage_is_status_2(nnl_run, command, arguments, message):
    outcome = nnl_run(*arguments, plugins=[command(lambda arguments, session: 0)])
    assert (outcome.status, outcome.stdout) == (2, "")
    assert message in outcome.stderr
    assert "Traceback" not in outcome.stderr


def fail(error: BaseException):
    def run(arguments, session):
        raise error

    return run


def fail_alone(error: BaseException):
    def hook(self):
        raise error

    return hook


def test_an_error_of_ours_is_one_line_and_status_1(nnl_run, command):
    outcome = nnl_run("greet", plugins=[command(fail(NnlError("no such\nthing")))])
    assert outcome == (1, "", "nnl: error: no such thing\n")


def test_another_exception_is_one_line_that_says_how_to_see_more(nnl_run, command):
    outcome = nnl_run("greet", plugins=[command(fail(ValueError("odd")))])
    assert outcome == (1, "", "nnl: error: ValueError: odd; --traceback shows where\n")


def test_traceback_shows_the_traceback(nnl_run, command):
    outcome = nnl_run("--traceback", "greet", plugins=[command(fail(NnlError("odd")))])
    assert outcome.status == 1
    assert "in run" in outcome.stderr and "Traceback" in outcome.stderr
    assert outcome.stderr.endswith("nnl: error: odd\n")


def test_a_plugin_that_dies_in_an_event_is_named(nnl_run, command):
    def run(arguments, session):
        session.events.step_end(None)

    def die(self, event):
        raise ValueError("sour")

    outcome = nnl_run("greet", plugins=[command(run, nnl_on_step_end=die)])
    assert outcome.status == 1
    assert "ValueError: sour (in plugin 'hello', hook nnl_on_step_end)" in outcome.stderr


def test_an_interruption_is_quiet_with_status_130(nnl_run, command):
    assert nnl_run("greet", plugins=[command(fail(KeyboardInterrupt()))]) == (130, "", "")


def test_an_interruption_says_which_plugin_was_busy(nnl_run, command):
    plugin = command(fail(KeyboardInterrupt()), nnl_metrics=fail_alone(KeyboardInterrupt()))
    outcome = nnl_run("greet", plugins=[plugin])
    assert outcome == (130, "", "nnl: interrupted (while plugin 'hello' was loaded)\n")


def test_a_reader_that_has_gone_is_no_error(nnl_run, command):
    outcome = nnl_run("greet", plugins=[command(fail(BrokenPipeError()))])
    assert (outcome.status, outcome.stderr) == (141, "")


@pytest.mark.parametrize(("code", "status"), [(3, 3), (None, 0), ("text", 1)])
def test_a_command_may_exit(nnl_run, command, code, status):
    outcome = nnl_run("greet", plugins=[command(fail(SystemExit(code)))])
    assert outcome.status == status
    assert outcome.stderr == ("text\n" if code == "text" else "")


def test_a_command_must_return_a_status(nnl_run, command):
    outcome = nnl_run("greet", plugins=[command(lambda arguments, session: "done")])
    assert (
        outcome.stderr == "nnl: error: command 'greet': run returned 'done', not an exit status\n"
    )


@pytest.mark.parametrize("target", ["json", "json:dumps"])
def test_a_target_that_is_no_command_is_an_error(nnl_run, target):
    record = CommandSpec("greet", target, "")
    plugin = type("P", (Plugin,), {"name": "p", "nnl_commands": lambda self: [record]})
    outcome = nnl_run("greet", plugins=[plugin])
    assert outcome.status == 1
    assert "is not a module with add_arguments and run" in outcome.stderr


def test_a_command_that_clashes_is_reported(nnl_run):
    record = CommandSpec("train", "json", "")
    plugin = type("P", (Plugin,), {"name": "p", "nnl_commands": lambda self: [record]})
    outcome = nnl_run("plugins", "doctor", plugins=[plugin])
    assert outcome.status == 1
    assert (
        "plugin 'p': nnl_commands: command 'train' is already provided by plugin 'core'"
        in outcome.stdout
    )


@pytest.mark.parametrize(
    "text", ["plugins = 'onn'", "plugins = [", "[plugin]\nonn = 3", "plugins = ['no_such_plugin']"]
)
def test_a_broken_project_file_stops_commands_but_not_the_help(nnl_run, command, tmp_path, text):
    (tmp_path / "nnl.toml").write_text(text)
    plugin = command(lambda arguments, session: 0)
    outcome = nnl_run("greet", plugins=[plugin], directory=tmp_path)
    assert outcome.status == 1
    assert outcome.stderr.startswith("nnl: error: ") and outcome.stderr.count("\n") == 1
    outcome = nnl_run("--help", directory=tmp_path)
    assert outcome.status == 0
    assert "train " in outcome.stdout


def test_a_process_reading_only_the_first_line_sees_no_traceback():
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "plugins", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
    )
    process.stdout.close()  # nobody reads
    assert process.stderr.read() == ""
    assert process.wait() == 141
    process.stderr.close()


def test_what_plugins_print_while_they_are_loaded_does_not_mix_with_the_output(nnl_run, command):
    def metrics(self):
        print("hello from a plugin")
        return []

    plugin = command(lambda arguments, session: print("the output") or 0, nnl_metrics=metrics)
    for arguments, beginning in (
        (["--help"], "usage: nnl"),
        (["greet"], "the output"),
        (["plugins", "--json"], "["),
        (["plugins", "doctor", "--json"], "[]"),
    ):
        outcome = nnl_run(*arguments, plugins=[plugin])
        assert outcome.stdout.startswith(beginning)
        assert outcome.stderr == "hello from a plugin\n"


def test_what_a_terminal_cannot_show_is_escaped():
    code = (
        "import sys\n"
        "from nnl_core.cli import main\n"
        "from nnl_core.hooks import CommandSpec, Plugin\n"
        "from nnl_core.session import Session\n"
        "class P(Plugin):\n"
        "    name = 'p'\n"
        "    def nnl_commands(self): return [CommandSpec('p', 'json', 'caf\\u00e9 \\ud800')]\n"
        "make = lambda *_: Session([P], environment={}, discover=False)\n"
        "sys.exit(main(['--help'], make))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "caf\\xe9 \\ud800" in done.stdout


def test_nobody_needs_to_see_the_output(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it where the descriptor is closed
    assert main(["--version"]) == 0
