"""Sessions: which one is current, what it activates, settings, backends, and what it imports."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from pydantic import BaseModel, Field, model_validator

from nnl_core.errors import (
    BackendError,
    ConfigurationError,
    HookError,
    NnlError,
    PluginError,
    UnknownComponentError,
)
from nnl_core.hooks import BackendSpec, Plugin, SettingsSpec
from nnl_core.hooks.selection import find_project
from nnl_core.session import Session, current_session
from nnl_core.testing import record_hooks


def python(code: str, **environment: str) -> str:
    import os

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


HEAVY = "print([name for name in ('numpy', 'pydantic', 'pycuda') if name in sys.modules])"


@pytest.mark.parametrize(
    "statement",
    [
        "import nnl_core",
        "import nnl_core.hooks",
        "import nnl_core.builtin",
        "import nnl_core.testing.pytest_plugin",
        "from nnl_core.session import current_session; current_session()",
        "from nnl_core.cli import main; main(['--help'])",
        "from nnl_core.cli import main; main(['--version'])",
    ],
)
def test_what_must_start_fast_imports_nothing_heavy(statement):
    code = "import sys, io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()):\n"
    assert python(f"{code}    exec({statement!r})\n{HEAVY}") == "[]"


def test_the_default_session_is_made_once_and_activates_nothing():
    code = (
        "from nnl_core.session import current_session\n"
        "session = current_session()\n"
        "assert session is current_session()\n"
        "print([entry.name for entry in session.manager.entries if entry.state == 'active'])"
    )
    assert python(code, NNL_PLUGINS="") == "['core']"


def test_a_plugin_that_asks_for_the_session_it_is_loaded_for_fails(install, site):
    install(
        "eager",
        source="from nnl_core.session import current_session\ncurrent_session()\n",
    )
    code = (
        "import warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from nnl_core.session import current_session\n"
        "print(current_session().manager.entry('eager').cause)"
    )
    paths = f"import sys; sys.path.insert(0, {str(site)!r})\n"
    assert "there is no session yet" in python(paths + code, NNL_PLUGINS="eager")


def test_threads_share_the_default_session():
    with Session(environment={}, discover=False) as session:
        found = []
        thread = threading.Thread(target=lambda: found.append(current_session()))
        thread.start()
        thread.join()
    assert found == [session]


def test_the_innermost_with_block_is_current():
    outer = current_session()
    first, second = (Session(environment={}, discover=False) for _ in range(2))
    with first:
        with second:
            assert current_session() is second
        assert current_session() is first
    assert current_session() is outer


def starter(name: str, heard: list[str], *, fails_at: str = "") -> type[Plugin]:
    """A plugin that notes starts and ends of sessions, and raises at one of them."""

    def method(what: str):
        def hear(self, event):
            if what == fails_at:
                raise RuntimeError(f"no licence to {what}")
            heard.append(f"{name} {what}s")

        return hear

    hooks = {"nnl_on_session_start": method("start"), "nnl_on_session_end": method("end")}
    return type(name, (Plugin,), {"name": name, **hooks})


def test_start_and_end_are_heard_once_in_reverse_order_also_after_an_exception():
    heard: list[str] = []
    plugins = [starter("b", heard), starter("a", heard)]
    session = Session(plugins, environment={}, discover=False)
    with pytest.raises(RuntimeError), session, session:
        raise RuntimeError
    assert heard == ["b starts", "a starts", "a ends", "b ends"]


def test_who_has_heard_of_a_start_hears_of_the_end_also_where_the_next_one_raises():
    heard: list[str] = []
    plugins = [starter("a", heard), starter("b", heard, fails_at="start"), starter("c", heard)]
    session = Session(plugins, environment={}, discover=False)
    with pytest.raises(RuntimeError, match="no licence to start") as caught, session:
        pass
    assert heard == ["a starts", "a ends"]
    assert caught.value.__notes__ == ["in plugin 'b', hook nnl_on_session_start"]


def test_everybody_hears_of_an_end_also_where_one_raises():
    heard: list[str] = []
    plugins = [starter("a", heard), starter("b", heard, fails_at="end"), starter("c", heard)]
    session = Session(plugins, environment={}, discover=False)
    with pytest.raises(RuntimeError, match="no licence to end") as caught, session:
        heard.clear()
    assert heard == ["c ends", "a ends"]
    assert caught.value.__notes__ == ["in plugin 'b', hook nnl_on_session_end"]
    assert current_session() is not session


def test_a_session_that_cannot_start_is_not_current():
    def fail(self, event):
        raise RuntimeError("no licence")

    broken = type("B", (Plugin,), {"name": "b", "nnl_on_session_start": fail})
    before = current_session()
    with pytest.raises(RuntimeError, match="no licence"):
        Session([broken], environment={}, discover=False).__enter__()
    assert current_session() is before


def test_plugins_are_named_or_given(install):
    install("alpha")
    install("beta")
    given = type("Given", (Plugin,), {"name": "given"})
    session = Session(["beta", given], environment={})
    states = {entry.name: entry.state for entry in session.manager.entries}
    assert (states["alpha"], states["beta"], states["given"]) == ("available", "active", "active")


def test_a_plugin_class_that_is_wrong_raises_at_once():
    wrong = type("W", (Plugin,), {"name": "wrong", "nnl_on_step_edn": lambda self, event: None})
    with pytest.raises(NnlError, match="plugin 'wrong': unknown hook nnl_on_step_edn"):
        Session([wrong], environment={}, discover=False)


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        ("alpha", r"plugins is a list of plugins, such as \['alpha'\]"),
        ([3], "3 is not a subclass of nnl_core.hooks.Plugin"),
    ],
)
def test_what_is_no_plugin_is_refused(plugins, message):
    with pytest.raises(NnlError, match=message):
        Session(plugins, environment={}, discover=False)


def test_the_environment_counts_without_a_project(install, monkeypatch):
    install("alpha")
    monkeypatch.setenv("NNL_PLUGINS", "alpha")
    assert Session().manager.entry("alpha").state == "active"


def test_the_command_line_beats_the_project_file(install, tmp_path):
    install("alpha")
    install("beta")
    (tmp_path / "nnl.toml").write_text('plugins = ["alpha"]')
    session = Session.from_project(tmp_path, command_line=["no:alpha", "beta"])
    states = {entry.name: entry.state for entry in session.manager.entries}
    assert (states["alpha"], states["beta"]) == ("disabled", "active")


# -------------------------------------------------------------------- the project's own plugin


def test_functions_of_nnlfile_are_a_plugin(tmp_path, site):
    (tmp_path / "nnl.toml").write_text("")
    (tmp_path / "nnlfile.py").write_text(
        "heard = []\ndef nnl_on_step_end(event):\n    heard.append(event)\n"
    )
    session = Session.from_project(tmp_path)
    session.events.step_end(1)
    assert session.manager.entry("nnlfile").plugin.heard == [1]
    assert session.manager.entry("nnlfile").target == str(tmp_path / "nnlfile.py")
    del sys.modules["nnlfile"]


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("def nnl_on_next_year(event): pass", "unknown hook nnl_on_next_year"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("x = 1", "it defines no function named nnl_"),
    ],
)
def test_an_nnlfile_that_breaks_is_left_out_with_one_warning(tmp_path, site, source, cause):
    (tmp_path / "nnl.toml").write_text("")
    (tmp_path / "nnlfile.py").write_text(source)
    reports: list[str] = []
    session = Session.from_project(tmp_path, report=reports.append)
    assert session.manager.entry("nnlfile").state == "failed"
    assert cause in reports[0] and len(reports) == 1
    sys.modules.pop("nnlfile", None)


def test_an_nnlfile_without_a_project_file_is_not_run(tmp_path, site):
    (tmp_path / "nnlfile.py").write_text("raise AssertionError('run')")
    Session.from_project(tmp_path)


# -------------------------------------------------------------------- settings


class LimeSettings(BaseModel, extra="forbid"):
    samples: int = Field(default=10, gt=0)


class LimePlugin(Plugin):
    name = "lime"

    def nnl_settings(self):
        return [SettingsSpec("lime", "lime_settings:LimeSettings", "of lime")]


@pytest.fixture
def settings_module(monkeypatch):
    import types

    module = types.ModuleType("lime_settings")
    module.LimeSettings = LimeSettings
    monkeypatch.setitem(sys.modules, "lime_settings", module)


def lime(tmp_path, text: str, name: str = "nnl.toml") -> Session:
    (tmp_path / name).write_text(text)
    return Session([LimePlugin], project=find_project(tmp_path), environment={}, discover=False)


def test_a_plugin_gets_its_table_as_its_model(tmp_path, settings_module):
    session = lime(tmp_path, "[plugin.lime]\nsamples = 3")
    assert session.plugin_settings("lime", LimeSettings) == LimeSettings(samples=3)


def test_settings_of_a_pyproject_file(tmp_path, settings_module):
    session = lime(tmp_path, "[tool.nnl.plugin.lime]\nsamples = 3", "pyproject.toml")
    assert session.plugin_settings("lime", LimeSettings).samples == 3


def test_without_a_table_settings_are_the_defaults(tmp_path, settings_module):
    assert lime(tmp_path, "").plugin_settings("lime", LimeSettings).samples == 10


def test_without_a_table_the_model_is_not_imported(tmp_path):
    with lime(tmp_path, ""):
        pass


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("samples = 0", r"nnl.toml \[plugin.lime\]: samples = 0: .*greater than 0"),
        ("samples = 'many'", r"nnl.toml \[plugin.lime\]: samples = 'many': .*valid integer"),
        ("sampels = 3", r"nnl.toml \[plugin.lime\]: sampels: unknown key; did you mean 'samples'"),
    ],
)
def test_wrong_settings_stop_the_session_and_point_at_the_key(
    tmp_path, settings_module, table, message
):
    with pytest.raises(ConfigurationError, match=message):
        lime(tmp_path, f"[plugin.lime]\n{table}")


def test_a_validator_that_breaks_is_named(tmp_path, settings_module, monkeypatch):
    class Breaks(BaseModel):
        @model_validator(mode="before")
        @classmethod
        def divide(cls, value):
            return 1 / 0

    monkeypatch.setattr(sys.modules["lime_settings"], "LimeSettings", Breaks)
    with pytest.raises(PluginError, match=r"nnl.toml \[plugin.lime\]: ZeroDivisionError"):
        lime(tmp_path, "[plugin.lime]\nsamples = 3")


def test_settings_for_a_plugin_that_is_not_there_are_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match=r"\[plugin.liem\]: plugin 'liem' .*mean 'lime'"):
        lime(tmp_path, "[plugin.liem]\nsamples = 3")


def test_settings_for_a_disabled_plugin_are_not_looked_at(tmp_path):
    lime(tmp_path, 'disabled_plugins = ["other"]\n[plugin.other]\nx = 3')


def test_settings_for_a_plugin_without_any_are_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="plugin 'progress' takes no settings"):
        lime(tmp_path, "[plugin.progress]\nx = 3").plugin_settings("progress", LimeSettings)


def test_a_plugin_that_asks_for_another_model_is_told(tmp_path, settings_module):
    class Other(BaseModel):
        pass

    with pytest.raises(PluginError, match="is no Other"):
        lime(tmp_path, "").plugin_settings("lime", Other)


def test_a_plugin_contributes_settings_under_its_own_name_only():
    def steal(self):
        return [SettingsSpec("onn", "m:f", "")]

    thief = type("Thief", (Plugin,), {"name": "thief", "nnl_settings": steal})
    with pytest.raises(NnlError, match="settings under its own name"):
        Session([thief], environment={}, discover=False)


class Explaining(LimePlugin):
    def nnl_settings(self):
        return [
            SettingsSpec("lime", "lime_settings:LimeSettings", "of lime"),
            SettingsSpec(
                "explain.occlusion", "lime_settings:LimeSettings", "of a table of its own"
            ),
        ]


def explaining(tmp_path, text: str) -> Session:
    (tmp_path / "nnl.toml").write_text(text)
    project = find_project(tmp_path)
    return Session([Explaining], project=project, environment={}, discover=False)


def test_a_plugin_may_have_tables_in_the_sections_of_explanations_and_reports(
    tmp_path, settings_module
):
    session = explaining(tmp_path, "[explain.occlusion]\nsamples = 4")
    assert session.plugin_settings("explain.occlusion", LimeSettings).samples == 4
    assert session.plugin_settings("lime", LimeSettings).samples == 10


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[explain.occlusion]\nsamples = 0", r"nnl.toml \[explain.occlusion\]: samples = 0"),
        ("[explain.oclusion]", r"\[explain.oclusion\]: no plugin .* mean 'explain.occlusion'"),
        ("[report.worst]", r"nnl.toml \[report.worst\]: no plugin here has such a table"),
    ],
)
def test_a_wrong_table_of_a_section_is_named(tmp_path, settings_module, table, message):
    with pytest.raises(ConfigurationError, match=message):
        explaining(tmp_path, table)


# -------------------------------------------------------------------- backends


class Works:
    """A stand-in for a backend."""


def works() -> None:
    return None


def wants_hardware() -> str:
    return "no device found"


def breaks() -> str:
    raise OSError("no driver")


@pytest.fixture
def backends(monkeypatch):
    import types

    module = types.ModuleType("some_backends")
    vars(module).update(Works=Works, works=works, wants_hardware=wants_hardware, breaks=breaks)
    monkeypatch.setitem(sys.modules, "some_backends", module)

    def make(
        *records: tuple[str, str, int], asked: str | None = None, **members: object
    ) -> Session:
        specs = [
            BackendSpec(name, "some_backends:Works", "", f"some_backends:{probe}", priority)
            for name, probe, priority in records
        ]
        members = {"name": "b", "nnl_backends": lambda self: specs, **members}
        environment = {} if asked is None else {"NNL_BACKEND": asked}
        return Session([type("B", (Plugin,), members)], environment=environment, discover=False)

    return make


def test_numpy_is_always_there(nnl_session):
    assert nnl_session.backend().name == "numpy"
    assert nnl_session.backend("numpy") is nnl_session.backend()


def test_the_backend_of_highest_priority_that_works_is_the_default(backends):
    session = backends(("slow", "works", 1), ("fast", "works", 2), ("best", "wants_hardware", 9))
    assert session.backend() is session.backend("fast")


@pytest.mark.parametrize(
    ("probe", "reason"), [("wants_hardware", "no device found"), ("breaks", "OSError: no driver")]
)
def test_asking_for_a_backend_that_does_not_work_repeats_the_reason(backends, probe, reason):
    session = backends(("x", probe, 1))
    with pytest.raises(BackendError, match=f"backend 'x' cannot be used here: {reason}"):
        session.backend("x")


def test_a_plugin_may_select_the_default(backends):
    def select(self, request):
        return request.candidates[-1]

    session = backends(("slow", "works", -1), ("fast", "works", 2), nnl_select_backend=select)
    assert session.backend() is session.backend("slow")


@pytest.mark.parametrize("answer", ["zzz", 3, "broken"])
def test_a_selected_backend_must_be_one_that_works(backends, answer):
    select = {"nnl_select_backend": lambda self, request: answer}
    session = backends(("good", "works", 1), ("broken", "breaks", 2), **select)
    message = f"nnl_select_backend answered {answer!r}; what works here is good, numpy"
    with pytest.raises(HookError, match=message):
        session.backend()


def test_the_environment_names_the_default_whatever_plugins_select(backends):
    select = {"nnl_select_backend": lambda self, request: "fast"}
    session = backends(("slow", "works", -1), ("fast", "works", 2), asked="slow", **select)
    assert session.backend() is session.backend("slow")
    assert session.default_backend() == ("slow", "NNL_BACKEND")


def test_an_empty_variable_names_no_default(backends):
    session = backends(("fast", "works", 2), asked=" ")
    assert session.backend() is session.backend("fast")


def test_a_default_of_the_environment_that_does_not_exist_is_an_error(backends):
    session = backends(("fast", "works", 2), asked="fats")
    with pytest.raises(BackendError, match=r"NNL_BACKEND is 'fats': unknown backend .*'fast'"):
        session.backend()


def test_a_default_of_the_environment_that_does_not_work_repeats_the_reason(backends):
    session = backends(("fast", "wants_hardware", 2), asked="fast")
    message = "NNL_BACKEND is 'fast', which cannot be used here: "
    with pytest.raises(BackendError, match=message):
        session.backend()


def test_an_unknown_backend_is_an_error(nnl_session):
    with pytest.raises(UnknownComponentError, match=r"unknown backend 'nunpy'; .*'numpy'"):
        nnl_session.backend("nunpy")


# -------------------------------------------------------------------- graphs


def test_the_graph_version_is_0_until_a_plugin_has_to_do_with_graphs(nnl_session):
    assert nnl_session.graph_version == 0
    nnl_session.manager.register(type("A", (Plugin,), {"name": "a"}))
    assert nnl_session.graph_version == 0
    passes = type("P", (Plugin,), {"name": "p", "nnl_graph_passes": lambda self: ()})
    nnl_session.manager.register(passes)
    first = nnl_session.graph_version
    assert first > 0
    nnl_session.manager.unregister("p")
    assert nnl_session.graph_version == 0
    nnl_session.manager.register(passes)
    assert nnl_session.graph_version > first


def test_recording_hears_events_in_order(nnl_session):
    with record_hooks(nnl_session, "nnl_on_metric", "nnl_on_step_end") as recorder:
        nnl_session.events.metric(1)
        nnl_session.events.step_end(2)
    assert recorder.calls == [("nnl_on_metric", 1), ("nnl_on_step_end", 2)]
    assert recorder.names == ["nnl_on_metric", "nnl_on_step_end"]
    assert recorder.events("nnl_on_metric") == [1]
    assert nnl_session.events.metric is None
