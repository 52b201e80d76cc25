"""``nnl``: options, commands of plugins, and how errors end."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest

from nnl_core.errors import NnlError
from nnl_core.hooks import CommandSpec, Plugin


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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = "import sys; from nnl_core.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "plugins", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    process.stdout.close()  # nobody reads
    assert process.stderr.read() == ""
    assert process.wait() == 141
    process.stderr.close()
