"""The kit that plugins are tested with: `check_plugin`, and the fixtures for pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnl_core.builtin import PLUGINS
from nnl_core.hooks import Plugin
from nnl_core.hooks.loading import resolve
from nnl_core.testing import PluginCheckError, check_plugin

ROOT = Path(__file__).parents[2]


@pytest.fixture
def load(install):
    """Install a plugin and return its class, as its own test would import it."""

    def load(name: str, body: str = "", **options: object) -> type[Plugin]:
        install(name, body, **options)
        found = resolve(f"nnl_{name.replace('-', '_')}_plugin:ThePlugin", "the test")
        assert isinstance(found, type)
        return found

    return load


def test_a_good_plugin_passes(load, site):
    (site / "targets.py").write_text(
        "from pydantic import BaseModel\n"
        "class Settings(BaseModel):\n    x: int = 3\n"
        "def make(): pass\ndef probe(): return None\n"
    )
    (site / "commands.py").write_text("def add_arguments(p): pass\ndef run(a, s): return 0\n")
    check_plugin(
        load(
            "good",
            """
            def nnl_solvers(self): return [SolverSpec("good", "targets:make", "")]
            def nnl_layers(self): return [LayerSpec("good.Layer", "targets:make", "")]
            def nnl_commands(self): return [CommandSpec("good", "commands", "")]
            def nnl_settings(self): return [SettingsSpec("good", "targets:Settings", "")]
            def nnl_backends(self):
                return [BackendSpec("good", "targets:make", "", "targets:probe", 3)]
            def nnl_graph_passes(self):
                return [PassSpec("good", "targets:make", "", stage="fuse")]
            def nnl_on_step_end(self, event): pass
            """,
        )
    )


def test_a_plugin_may_require_another_that_is_installed(load, install):
    install("base")
    check_plugin(load("top", "requires = ('base',)"))


FLAWS = {
    "unknown hook": (
        "def nnl_on_step_edn(self, event): pass",
        "unknown hook nnl_on_step_edn; did you mean 'nnl_on_step_end'",
    ),
    "another interface": ("api = '2'", "it needs hook interface 2"),
    "nonsense": ("def nnl_solvers(self): return 3", "'int' object is not iterable"),
    "missing requirement": ("requires = ('zzz',)", "requires plugin 'zzz', which is not installed"),
    "target": (
        "def nnl_solvers(self): yield SolverSpec('s', 'json:dump_it', '')",
        "target 'json:dump_it': 'json' has no attribute 'dump_it'",
    ),
    "target that cannot be called": (
        "def nnl_solvers(self): yield SolverSpec('s', 'json:__name__', '')",
        "SolverSpec 's': target 'json:__name__' leads to 'json', which is not callable",
    ),
    "probe": (
        "def nnl_backends(self): yield BackendSpec('b', 'json:dumps', '', 'json:probe')",
        "target 'json:probe': 'json' has no attribute 'probe'",
    ),
    "probe that cannot be called": (
        "def nnl_backends(self): yield BackendSpec('b', 'json:dumps', '', 'json:__name__')",
        "probe 'json:__name__' is not callable",
    ),
    "layer outside the namespace": (
        "def nnl_layers(self): yield LayerSpec('Layer', 'json:dumps', '')",
        "LayerSpec 'Layer': the names of layers begin with 'bad.'",
    ),
    "field of another type": (
        "def nnl_file_formats(self): yield FileFormatSpec('f', 'json:dumps', '', '.json')",
        "file format 'f': suffixes must be of type tuple, not '.json'",
    ),
    "field of other elements": (
        "def nnl_data_sources(self): yield DataSourceSpec('f', 'json:dumps', '', (1,))",
        "data source 'f': schemes must hold strings, not (1,)",
    ),
    "unknown stage": (
        "def nnl_graph_passes(self): yield PassSpec('p', 'json:dumps', '', 'late')",
        "graph pass 'p': stage must be one of canonicalize, fuse, lower, not 'late'",
    ),
    "command without functions": (
        "def nnl_commands(self): yield CommandSpec('c', 'json', '')",
        "target 'json' is not a module with the function add_arguments",
    ),
    "operators that are not there": (
        "def nnl_operators(self): yield OperatorSet('zzz', 'json', '')",
        "importing 'json' defines no operator named 'zzz::...'",
    ),
    "kernels that are no module": (
        "def nnl_kernels(self): yield KernelSet('k', 'json:dumps', '', 'x::*', 'numpy')",
        "target 'json:dumps' is not a module",
    ),
    "settings that are no model": (
        "def nnl_settings(self): yield SettingsSpec('bad', 'json:dumps', '')",
        "is not a pydantic model",
    ),
}


@pytest.mark.parametrize(("body", "message"), FLAWS.values(), ids=FLAWS)
def test_a_flaw_is_named(load, body, message):
    plugin = load("bad", body)
    with pytest.raises(PluginCheckError) as caught:
        check_plugin(plugin)
    assert message in str(caught.value)
    assert str(caught.value).startswith("nnl_bad_plugin:ThePlugin\n- ")


def test_all_flaws_are_listed(load):
    plugin = load(
        "bad",
        "def nnl_solvers(self): yield SolverSpec('s', 'json:a', '')\n"
        "def nnl_metrics(self): yield MetricSpec('m', 'json:b', '')\n",
    )
    with pytest.raises(PluginCheckError) as caught:
        check_plugin(plugin)
    assert str(caught.value).count("\n- ") == 2


def test_settings_that_refuse_their_own_defaults_are_a_flaw(load, site):
    (site / "odd_settings.py").write_text(
        "from pydantic import BaseModel, Field\nclass S(BaseModel):\n    x: int = Field(-1, gt=0)\n"
    )
    plugin = load("bad", "def nnl_settings(self): yield SettingsSpec('bad', 'odd_settings:S', '')")
    with pytest.raises(PluginCheckError, match="S refuses its own defaults: x: "):
        check_plugin(plugin)


def test_a_module_that_imports_something_heavy_is_a_flaw(install):
    install(
        "bad",
        source="import numpy\nfrom nnl_core.hooks import Plugin\n"
        "class ThePlugin(Plugin):\n    name = 'bad'\n",
    )
    plugin = resolve("nnl_bad_plugin:ThePlugin", "the test")
    with pytest.raises(PluginCheckError, match="'nnl_bad_plugin' imports numpy: import it where"):
        check_plugin(plugin)


@pytest.mark.parametrize("method", ["def __init__(self):", "def nnl_solvers(self):\n    yield"])
def test_loading_something_heavy_is_a_flaw(load, method):
    plugin = load("bad", method.replace("yield", "yield from ()") + "\n    import numpy")
    with pytest.raises(PluginCheckError, match="'nnl_bad_plugin' imports numpy: import it where"):
        check_plugin(plugin)


def test_what_a_module_prints_is_no_flaw(install):
    source = "from nnl_core.hooks import Plugin\nprint('no numpy here')\n"
    install("good", source=f"{source}class ThePlugin(Plugin):\n    name = 'good'\n")
    check_plugin(resolve("nnl_good_plugin:ThePlugin", "the test"))


def test_the_name_of_a_plugin_that_comes_with_the_core_is_a_flaw(load):
    with pytest.raises(PluginCheckError, match="nnl-core has a plugin named 'progress'"):
        check_plugin(load("progress"))


def test_settings_that_break_on_their_own_defaults_are_a_flaw(load, site):
    (site / "broken_settings.py").write_text(
        "from pydantic import BaseModel, Field\n"
        "class S(BaseModel):\n    x: int = Field(default_factory=lambda: 1 // 0)\n"
    )
    body = "def nnl_settings(self): yield SettingsSpec('bad', 'broken_settings:S', '')"
    with pytest.raises(PluginCheckError, match="S refuses its own defaults: ZeroDivisionError"):
        check_plugin(load("bad", body))


def test_a_module_that_cannot_be_imported_by_itself_is_a_flaw():
    local = type("Local", (Plugin,), {"name": "local", "__module__": "no_such_module"})
    with pytest.raises(PluginCheckError, match="'no_such_module' cannot be imported by itself"):
        check_plugin(local)


@pytest.mark.parametrize("target", [target for _, target, _ in PLUGINS], ids=str)
def test_the_plugins_that_come_with_the_core_pass(target):
    check_plugin(resolve(target, "the test"))


# -------------------------------------------------------------------- fixtures


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> str:
    """What pytest says of tests that use the fixtures, one file for each behaviour."""
    folder = tmp_path_factory.mktemp("fixtures")
    for name, source in FILES.items():
        (folder / f"{name}.py").write_text(source, "utf-8")
    kit = ("-p", "nnl_core.testing.pytest_plugin", "-W", "error")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *kit],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "NNL_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


FILES = {
    "conftest": """
from nnl_core.hooks import BackendSpec, Plugin
from nnl_core.session import current_session
def probe(): return "no such hardware"
class P(Plugin):
    name = "p"
    def nnl_backends(self):
        return [BackendSpec("dream", "json:dumps", "", "conftest:probe")]
current_session().manager.register(P)
""",
    "test_each": "def test_it(backend): assert backend == 'numpy'",
    "test_fixture_of_its_own": """
import pytest
@pytest.fixture
def backend(): return "mine"
def test_it(backend): assert backend == "mine"
""",
    "test_parameter_of_its_own": """
import pytest
@pytest.mark.parametrize("backend", ["mine"])
def test_it(backend): assert backend == "mine"
""",
    "test_one_of_several_parameters": """
import pytest
@pytest.mark.parametrize("x, backend", [(1, "mine")])
def test_it(x, backend): assert backend == "mine"
""",
    "test_manager": """
def test_it(nnl_manager):
    nnl_manager.load()
    assert nnl_manager.entries == []
""",
    "test_session": """
def test_it(nnl_session):
    from nnl_core.session import current_session
    assert current_session() is nnl_session
""",
    "test_run": """
def test_it(nnl_run): assert nnl_run("--version").status == 0
""",
}


@pytest.mark.parametrize(
    "line",
    [
        "test_each.py::test_it[numpy] PASSED",
        "test_each.py::test_it[dream] SKIPPED (backend 'dream': no such hardware)",
    ],
)
def test_backend_runs_a_test_on_each_backend_and_skips_with_the_reason(output, line):
    assert line in output


@pytest.mark.parametrize(
    "test",
    [
        "test_fixture_of_its_own.py::test_it",
        "test_parameter_of_its_own.py::test_it[mine]",
        "test_one_of_several_parameters.py::test_it[1-mine]",
    ],
)
def test_another_backend_of_the_tests_own_is_left_alone(output, test):
    assert f"{test} PASSED" in output


@pytest.mark.parametrize("test", ["test_manager", "test_session", "test_run"])
def test_fixtures_give_an_empty_manager_a_fresh_session_and_a_run_of_nnl(output, test):
    assert f"{test}.py::test_it PASSED" in output
