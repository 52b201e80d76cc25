"""Finding installed plugins: what is broken is named, and disturbs nobody."""

from __future__ import annotations

import sys

import pytest

from nnl_core.errors import (
    ConfigurationError,
    PluginConflictError,
    PluginError,
    PluginLoadError,
    PluginVersionError,
    PluginWarning,
    TargetError,
    UnknownComponentError,
)
from nnl_core.hooks import SolverSpec
from nnl_core.hooks.manager import PluginManager
from nnl_core.hooks.selection import Selection

GOOD = """
def nnl_solvers(self):
    return [SolverSpec("good-solver", "json:dumps", "a solver")]
def nnl_on_step_end(self, event):
    event.batch.append("good")
"""


def load(**selection) -> tuple[PluginManager, list[str]]:
    reports: list[str] = []
    manager = PluginManager(Selection(**selection), report=reports.append)
    manager.load()
    return manager, reports


def states(manager: PluginManager) -> dict[str, str]:
    return {entry.name: entry.state for entry in manager.entries}


def test_installed_plugins_are_available_and_named_ones_active(install):
    install("alpha", GOOD.replace("good-", "alpha-"))
    install("beta", GOOD.replace("good-", "beta-"))
    manager, reports = load(named=("beta",))
    assert states(manager) == {"alpha": "available", "beta": "active"}
    assert reports == []


def test_components_of_available_plugins_can_be_named_but_their_events_are_not_called(install):
    install("alpha", GOOD)
    manager, _ = load()
    assert manager.component("solver", "good-solver").summary == "a solver"
    assert manager.events.step_end is None


def test_metadata_gives_distribution_version_summary_and_target(install):
    install("alpha", version="2.5", summary="does things")
    (entry,) = load()[0].entries
    assert (entry.distribution, entry.version, entry.summary, entry.target) == (
        "nnl-alpha",
        "2.5",
        "does things",
        "nnl_alpha_plugin:ThePlugin",
    )
    assert entry.import_ms > 0


def test_a_summary_is_one_line_whatever_the_metadata_has(install):
    install("alpha", summary="does things\n    and others")
    (entry,) = load()[0].entries
    assert entry.summary == "does things and others"


def test_plugins_are_sorted_by_distribution_whatever_order_the_disk_has(install):
    for name in ("delta", "alpha", "charlie", "bravo"):
        install(name)
    assert list(states(load()[0])) == ["alpha", "bravo", "charlie", "delta"]


BROKEN = {
    "import error": ("import no_such_module", "ModuleNotFoundError: No module named"),
    "syntax error": ("def (", "SyntaxError"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "base exception": ("class Odd(BaseException): pass\nraise Odd('odd')", "Odd: odd"),
    "generator exit": ("raise GeneratorExit", "GeneratorExit"),
    "exception that cannot be printed": (
        "class Mute(Exception):\n    def __str__(self): raise RuntimeError\nraise Mute",
        "Mute",
    ),
    "no such class": ("class thePlugin: pass", "no attribute 'ThePlugin'; did you mean"),
    "not a plugin": ("class ThePlugin: pass", "is not a subclass of nnl_core.hooks.Plugin"),
    "a function": ("def ThePlugin(): pass", "is not a subclass of nnl_core.hooks.Plugin"),
    "a module": ("", "is not a subclass of nnl_core.hooks.Plugin"),
    "a plugin of another name": (
        "from nnl_core.hooks import Plugin\nclass ThePlugin(Plugin): name = 'other'",
        "its class is named 'other', but its entry point 'bad'",
    ),
    "a plugin without a name": (
        "from nnl_core.hooks import Plugin\nclass ThePlugin(Plugin): pass",
        "its class is named ''",
    ),
    "a constructor that fails": (
        "from nnl_core.hooks import Plugin\nclass ThePlugin(Plugin):\n"
        "    name = 'bad'\n    def __init__(self): raise ValueError('no')",
        "ValueError: no",
    ),
}


@pytest.mark.parametrize(("source", "cause"), BROKEN.values(), ids=BROKEN)
def test_a_module_that_breaks_is_reported_and_the_others_work(install, source, cause):
    target = None if source else "nnl_bad_plugin"
    install("bad", source=source, version="0.3", target=target)
    install("good", GOOD)
    manager, reports = load(named=("bad", "good"))
    assert states(manager) == {"bad": "failed", "good": "active"}
    (report,) = reports
    assert report.startswith("plugin 'bad' (nnl-bad 0.3): ")
    assert cause in report
    heard: list[str] = []
    manager.events.step_end(type("Event", (), {"batch": heard}))
    assert heard == ["good"]


NONSENSE = {
    "not iterable": ("return 3", "nnl_solvers: TypeError: 'int' object is not iterable"),
    "nothing": ("pass", "nnl_solvers: TypeError: 'NoneType' object is not iterable"),
    "one record": ("return SolverSpec('a', 'b:c', '')", "nnl_solvers returned one record"),
    "another record": ("yield LayerSpec('a', 'b:c', '')", "which is no SolverSpec"),
    "a plain tuple": ("yield ('a', 'b:c', '')", "which is no SolverSpec"),
    "an empty name": ("yield SolverSpec('', 'b:c', '')", "'': a name is one word"),
    "a dotted target": ("yield SolverSpec('a', 'b.c:', '')", "'b.c:' is not an import string"),
    "two lines": ("yield SolverSpec('a', 'b:c', 'x\\ny')", "a summary is one line"),
    "a name twice": (
        "return [SolverSpec('a', 'b:c', '')] * 2",
        "nnl_solvers returned two records named 'a'",
    ),
    "an exception": ("raise RuntimeError('oh')", "nnl_solvers: RuntimeError: oh"),
    "an exit": ("raise SystemExit", "nnl_solvers: SystemExit"),
    "an exception half way": (
        "yield SolverSpec('half', 'b:c', '')\n    raise KeyError('k')",
        "nnl_solvers: KeyError: 'k'",
    ),
    "a record of a subclass": (
        "class Mine(SolverSpec): pass\n    return [Mine('a', 'b:c', '')]",
        "which is no SolverSpec",
    ),
    "a name of two words": ("yield SolverSpec('a b', 'b:c', '')", "'a b': a name is one word"),
    "an option for a name": ("yield SolverSpec('-x', 'b:c', '')", "'-x': a name is one word"),
    "an unprintable name": ("yield SolverSpec('a\\x1b', 'b:c', '')", "a name is one word"),
    "no end": (
        "import itertools\n    return (SolverSpec(f's{i}', 'b:c', '') for i in itertools.count())",
        "more than 10000 records",
    ),
}


@pytest.mark.parametrize(("body", "cause"), NONSENSE.values(), ids=NONSENSE)
def test_a_hook_that_returns_nonsense_takes_its_whole_plugin_out(install, body, cause):
    install(
        "bad",
        "def nnl_metrics(self):\n    yield MetricSpec('early', 'b:c', '')\n"
        f"def nnl_solvers(self):\n    {body}\n"
        "def nnl_on_step_end(self, event): pass\n",
    )
    install("good", GOOD)
    manager, reports = load(named=("bad", "good"))
    assert states(manager) == {"bad": "failed", "good": "active"}
    assert cause in reports[0]
    assert [record.name for record in manager.collect(SolverSpec)] == ["good-solver"]
    assert manager.collect("metric") == ()
    assert manager.entry("bad").hooks and len(manager.entry("good").hooks) == 2


FIELDS = {
    "a number that is none": (
        "def nnl_backends(self): yield BackendSpec('a', 'b:c', '', priority='high')",
        "backend 'a': priority must be of type int, not 'high'",
    ),
    "a string for a tuple": (
        "def nnl_data_sources(self): yield DataSourceSpec('a', 'b:c', '', schemes='mnist:')",
        "data source 'a': schemes must be of type tuple, not 'mnist:'",
    ),
    "a tuple of other things": (
        "def nnl_file_formats(self): yield FileFormatSpec('a', 'b:c', '', (1,))",
        "file format 'a': suffixes must hold strings, not (1,)",
    ),
    "an unknown stage": (
        "def nnl_graph_passes(self): yield PassSpec('a', 'b:c', '', [])",
        "graph pass 'a': stage must be one of canonicalize, fuse, lower, not []",
    ),
    "a name that is no string": (
        "def nnl_solvers(self): yield SolverSpec(b'a', 'b:c', '')",
        "solver b'a': name must be of type str, not b'a'",
    ),
    "no summary": (
        "def nnl_solvers(self): yield SolverSpec('a', 'b:c', None)",
        "solver 'a': summary must be of type str, not None",
    ),
}


@pytest.mark.parametrize(("body", "cause"), FIELDS.values(), ids=FIELDS)
def test_a_field_of_another_type_takes_the_plugin_out_before_anybody_uses_it(install, body, cause):
    install("bad", body)
    install("good", GOOD)
    manager, reports = load(named=("bad", "good"))
    assert states(manager) == {"bad": "failed", "good": "active"}
    assert cause in reports[0]


MISUSED = {
    "a property": (
        "@property\ndef nnl_on_step_end(self): raise AssertionError",
        "nnl_on_step_end is a property, not a method",
    ),
    "an object that can be called": (
        "import functools\nnnl_on_step_end = functools.partialmethod(print)",
        "nnl_on_step_end is a partialmethod, not a method",
    ),
    "a class": ("class nnl_on_step_end: pass", "nnl_on_step_end is a type, not a method"),
    "no self": ("def nnl_solvers(): return []", "nnl_solvers: ValueError: invalid method sig"),
    "a keyword-only event": (
        "def nnl_on_step_end(self, *, event): pass",
        "nnl_on_step_end takes (event), not (*, event)",
    ),
    "equality of its own": (
        "def __eq__(self, other): raise ValueError",
        "it defines __eq__; plugins are told apart by identity",
    ),
    "unknown": ("def nnl_on_step_edn(self, event): pass", "did you mean 'nnl_on_step_end'"),
    "no method": ("nnl_solvers = ()", "nnl_solvers is a tuple, not a method"),
    "no argument": ("def nnl_on_step_end(self): pass", "nnl_on_step_end takes (event), not ()"),
    "wrong argument": (
        "def nnl_on_step_end(self, e): pass",
        "nnl_on_step_end takes (event), not (e)",
    ),
    "many arguments": (
        "def nnl_on_step_end(self, event, more): pass",
        "takes (event), not (event, more)",
    ),
    "a provider's argument": ("def nnl_solvers(self, x): pass", "nnl_solvers takes (), not (x)"),
    "generator": ("def nnl_on_step_end(self, event): yield", "contains a yield"),
    "asynchronous": ("async def nnl_on_step_end(self, event): pass", "asynchronous"),
    "an answer": ("def nnl_on_step_end(self, event) -> bool: pass", "returns nothing, not"),
    "a hot wrapper": (
        "@hookimpl(wrapper=True)\ndef nnl_on_step_end(self, event): yield",
        "nnl_on_step_end (event, class C) takes no wrappers",
    ),
    "a provider's wrapper": (
        "@hookimpl(wrapper=True)\ndef nnl_solvers(self): yield",
        "takes no wrappers",
    ),
    "a reducer's wrapper": (
        "@hookimpl(wrapper=True)\ndef nnl_reduce_gradients(self, gradients): yield",
        "takes no wrappers",
    ),
    "marked but misnamed": (
        "@hookimpl\ndef on_step_end(self, event): pass",
        "on_step_end is marked with hookimpl, but is not named nnl_",
    ),
    "api of the future": ("api = '1.9'", "it needs hook interface 1.9; this nnl-core has 1.0"),
    "api of the past": ("api = '0'", "it needs hook interface 0"),
    "api that is no version": ("api = 1", "api must be a string like '1' or '1.2', not 1"),
    "requires that is a string": ("requires = 'good'", "requires must be a tuple"),
}


@pytest.mark.parametrize(("body", "cause"), MISUSED.values(), ids=MISUSED)
def test_a_class_that_misuses_the_interface_is_refused(install, body, cause):
    install("bad", body)
    install("good", GOOD)
    manager, reports = load(named=("good", "bad"))
    assert states(manager) == {"bad": "failed", "good": "active"}
    assert cause in reports[0]


def test_what_a_class_says_of_itself_is_not_asked_for_again(install):
    install(
        "odd",
        """
        @property
        def requires(self):
            self.asked = getattr(self, "asked", 0) + 1
            if self.asked > 2: raise AssertionError("asked again")
            return ()
        """,
    )
    manager, _ = load(named=("odd",))
    assert [manager.entry("odd").requires for _ in range(3)] == [()] * 3


def test_a_hook_of_a_newer_core_may_be_optional(install):
    install("alpha", "@hookimpl(optionalhook=True)\ndef nnl_on_next_year(self, event): pass")
    assert states(load(named=("alpha",))[0]) == {"alpha": "active"}


def test_the_requirement_on_the_core_is_checked_before_anything_is_imported(install):
    install("bad", source="raise AssertionError('imported')", requires=["nnl-core>=99,<100"])
    manager, _ = load()
    (entry,) = manager.entries
    assert isinstance(entry.error, PluginVersionError)
    assert "it requires 'nnl-core>=99,<100'; this is nnl-core 0." in entry.cause
    assert "nnl_bad_plugin" not in sys.modules


@pytest.mark.parametrize(
    "requirement",
    [
        "nnl-core>=0.1",
        "NNL_Core (>=0.1)",
        "nnl-core @ git+https://host/nnl",
        "numpy>=99",
        "nnl-core>=99; extra == 'x'",
        "nnl-core>=99; python_version < '3'",
        "odd @ url",
    ],
)
def test_other_requirements_do_not_matter(install, requirement):
    install("alpha", requires=[requirement])
    assert states(load()[0]) == {"alpha": "available"}


def test_of_two_distributions_that_claim_a_name_the_first_in_order_has_it(install):
    install("same", GOOD, distribution="nnl-zebra")
    install("same", GOOD, distribution="nnl-ant", version="2.0")
    manager, reports = load(named=("same",))
    first, second = manager.entries
    assert (first.distribution, first.state) == ("nnl-ant", "active")
    assert (second.distribution, second.state) == ("nnl-zebra", "failed")
    assert isinstance(second.error, PluginConflictError)
    assert reports == [
        "plugin 'same' (nnl-zebra 1.0): its name is taken by plugin 'same' (nnl-ant 2.0); left out"
    ]


def test_of_two_plugins_with_one_component_the_second_is_refused_naming_both(install):
    install("alpha", GOOD)
    install("beta", GOOD)
    manager, reports = load()
    assert states(manager) == {"alpha": "available", "beta": "failed"}
    assert reports == [
        "plugin 'beta' (nnl-beta 1.0): nnl_solvers: solver 'good-solver' is already provided by "
        "plugin 'alpha' (nnl-alpha 1.0); left out"
    ]


def test_a_named_plugin_has_its_component_names_before_one_that_is_only_installed(install):
    install("alpha", GOOD)
    install("beta", GOOD)
    assert states(load(named=("beta",))[0]) == {"alpha": "failed", "beta": "active"}


def test_unreadable_metadata_is_reported_and_the_others_work(install, site):
    install("good", GOOD)
    broken = install("bad")
    (broken / "METADATA").unlink()
    manager, reports = load()
    assert states(manager)["good"] == "available"
    assert len(reports) == 1
    assert "nnl_bad-1.0" in reports[0]


@pytest.mark.parametrize("field", ["Name", "Version"])
def test_metadata_without_name_or_version_are_reported(install, field):
    install("good", GOOD)
    path = install("bad") / "METADATA"
    text = path.read_text("utf-8")
    path.write_text(text.replace(f"{field}:", f"Former-{field}:"), "utf-8")
    manager, reports = load()
    assert states(manager)["good"] == "available"
    assert len(reports) == 1
    assert "cannot read" in reports[0] and field in reports[0]


def test_entry_points_that_are_no_ini_file_are_reported(install):
    install("good")
    info = install("bad")
    (info / "entry_points.txt").write_text("[nnl.plugins]\nbad\n", "utf-8")
    manager, reports = load()
    assert states(manager)["good"] == "available"
    assert len(reports) == 1


def test_extras_of_an_entry_point_are_passed_over(install):
    install("alpha", target="nnl_alpha_plugin:ThePlugin [fast]")
    assert states(load()[0]) == {"alpha": "available"}


def test_a_keyboard_interrupt_while_importing_is_not_swallowed(install):
    install("slow", source="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load()


def test_without_a_reporter_a_failure_is_a_warning(install):
    install("bad", source="import no_such_module")
    manager = PluginManager()
    with pytest.warns(PluginWarning, match=r"plugin 'bad' .*no_such_module"):
        manager.load()


def test_unknown_components_name_the_nearest_and_the_plugins_that_failed(install):
    install("bad", source="import no_such_module", version="0.3")
    install("good", GOOD)
    manager, _ = load()
    with pytest.raises(UnknownComponentError) as caught:
        manager.component("solver", "good-solvr")
    text = str(caught.value)
    assert text.startswith("unknown solver 'good-solvr'; did you mean 'good-solver'?")
    assert "plugin 'bad' (nnl-bad 0.3), which may provide it, failed: " in text
    assert "No module named 'no_such_module'" in text


def test_a_name_inside_a_failed_plugins_namespace_blames_it(install):
    install("bad", source="raise RuntimeError('boom')")
    manager, _ = load()
    with pytest.raises(UnknownComponentError, match=r"which would provide it, failed: .*boom"):
        manager.component("layer", "bad.Dense")


# -------------------------------------------------------------------- choosing


def test_blocked_plugins_are_not_imported(install):
    install("bad", source="raise AssertionError('imported')")
    manager, reports = load(blocked=frozenset(["bad"]), sources={"bad": "-p no:bad"})
    assert [(entry.state, entry.cause) for entry in manager.entries] == [
        ("disabled", "by -p no:bad")
    ]
    assert reports == []


def test_blocking_a_plugin_blocks_those_that_require_it(install):
    install("base")
    install("middle", "requires = ('base',)")
    install("top", "requires = ('middle',)")
    manager, reports = load(named=("top",), blocked=frozenset(["base"]))
    assert set(states(manager).values()) == {"disabled"}
    assert manager.entry("middle").cause == "it requires 'base', disabled by request"
    assert reports == []


def test_blocking_at_run_time_takes_dependents_along(install):
    install("base")
    install("top", "requires = ('base',)\n" + GOOD)
    manager, _ = load(named=("top",))
    assert manager.events.step_end is not None
    manager.block("base")
    assert states(manager) == {"base": "disabled", "top": "disabled"}
    assert manager.events.step_end is None
    assert manager.collect("solver") == ()


def test_what_an_active_plugin_requires_is_active(install):
    install("base")
    install("middle", "requires = ('base',)")
    install("top", "requires = ('middle',)")
    install("other")
    assert states(load(named=("top",))[0]) == {
        "base": "active",
        "middle": "active",
        "top": "active",
        "other": "available",
    }


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        (None, "it requires plugin 'base', which is not installed"),
        ("import no_such_module", "it requires plugin 'base', which failed: target"),
    ],
)
def test_a_plugin_whose_requirement_is_unusable_fails(install, source, cause):
    if source:
        install("base", source=source)
    install("top", "requires = ('base',)\n" + GOOD)
    manager, _ = load(named=("top",))
    assert manager.entry("top").state == "failed"
    assert manager.entry("top").cause.startswith(cause)
    assert manager.collect("solver") == ()


def test_without_autoload_only_named_plugins_and_what_they_require_are_imported(install):
    install("base")
    install("top", "requires = ('base',)")
    install("other", source="raise AssertionError('imported')")
    manager, reports = load(named=("top",), autoload=False)
    assert states(manager) == {"base": "active", "top": "active", "other": "disabled"}
    assert manager.entry("other").cause == "plugin autoload is off"
    assert reports == []


def test_a_named_plugin_that_is_not_installed_is_an_error_with_a_suggestion(install):
    install("alpha")
    manager, _ = load(named=("alpa",), sources={"alpa": "nnl.toml"})
    with pytest.raises(ConfigurationError, match=r"'alpa' \(named by nnl.toml\) .*mean 'alpha'"):
        manager.check()


def test_strict_makes_any_failure_an_error(install):
    install("bad", source="import no_such_module")
    manager, _ = load(strict=True)
    with pytest.raises(TargetError, match="plugin 'bad'"):
        manager.check()


@pytest.mark.parametrize(
    "required", ["nnl-alpha>=1,<2", "alpha", "NNL_alpha==1.*", "nnl-alpha~=1.0"]
)
def test_a_required_plugin_of_the_right_version_passes(install, required):
    install("alpha")
    load(required=(required,))[0].check()


@pytest.mark.parametrize(
    ("required", "error", "message"),
    [
        ("nnl-alpha>=2", PluginVersionError, r"nnl-alpha 1.0\) is installed, but 'nnl-alpha>=2'"),
        ("nnl-beta", ConfigurationError, "required plugin 'nnl-beta' is not installed"),
        ("nnl-alpha>=two", ConfigurationError, "required_plugins: .*'two' is not a version"),
        ("nnl-bad", PluginLoadError, "boom"),
        ("nnl-off", PluginError, "is required, but disabled"),
    ],
)
def test_a_required_plugin_that_cannot_be_had_is_an_error(install, required, error, message):
    install("alpha")
    install("bad", "def nnl_solvers(self): raise ValueError('boom')")
    install("off")
    manager, _ = load(required=(required,), blocked=frozenset(["off"]))
    with pytest.raises(error, match=message):
        manager.check()
