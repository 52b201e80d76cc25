"""The hooks themselves: each is documented, each is exercised, and the rules for new ones hold."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest

from nnl_core import hooks
from nnl_core.errors import HookError, PluginConflictError, UnknownComponentError
from nnl_core.hooks import Event, Plugin, SolverSpec, decision, event, provider, records
from nnl_core.hooks.checks import info_of, specifications
from nnl_core.hooks.entry import entry_for
from nnl_core.hooks.manager import PluginManager
from nnl_core.hooks.selection import Selection

ROOT = Path(__file__).parents[2]
HOOKS = {name: function for name, function in vars(Plugin).items() if name.startswith("nnl_")}
PROVIDERS = [name for name in HOOKS if info_of(HOOKS[name]).role == "provider"]
# Each provider hook by name; tests/hooks/test_components.py asks every one.
PROVIDED = """
nnl_operators nnl_kernels nnl_backends nnl_layers nnl_initializers nnl_solvers nnl_schedules
nnl_metrics nnl_data_sources nnl_file_formats nnl_commands nnl_explainers nnl_search_strategies
nnl_communicators nnl_graph_passes nnl_report_sections nnl_settings nnl_hookspecs
""".split()


def test_the_list_of_providers_is_complete():
    assert PROVIDERS == PROVIDED


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_says_when_and_how_often_it_is_called(hook):
    text = HOOKS[hook].__doc__
    as_another = re.search(r"As ``(nnl_\w+)`` \(D\)", text)
    assert as_another or re.search(r"Once .*\([ABCD]\)", text, re.DOTALL)
    assert re.search(r"\(([ABCD])\)", text).group(1) == info_of(HOOKS[hook]).cost


@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_are_documented(hook):
    text = (ROOT / "docs" / "hooks.md").read_text("utf-8")
    takes = ", ".join(info_of(HOOKS[hook]).takes)
    assert f"`{hook}({takes})`" in text


def test_nothing_else_is_documented_as_a_hook():
    text = (ROOT / "docs" / "hooks.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(nnl_\w+)\(", text, re.MULTILINE)) == set(HOOKS)


@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_have_tests(hook):
    tests = [path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    assert any(re.search(rf"\b{hook}\b", text) for text in tests)


def test_every_record_and_event_is_public():
    classes = [
        *(value for value in vars(records).values() if hasattr(value, "_fields")),
        *Event.__subclasses__(),
    ]
    assert [cls.__name__ for cls in classes if cls.__name__ not in hooks.__all__] == []


def test_every_record_begins_with_name_target_and_summary():
    for name in PROVIDERS:
        assert info_of(HOOKS[name]).record._fields[:3] == ("name", "target", "summary")


def test_the_base_class_implements_nothing(nnl_manager):
    class Empty(Plugin):
        name = "empty"

    assert nnl_manager.register(Empty).hooks == ()


# -------------------------------------------------------------------- hooks that plugins define


class EvaluatorSpec(NamedTuple):
    """What an evaluator of trials is known by."""

    name: str
    target: str
    summary: str


class SearchHooks:
    """What a search plugin lets others do."""

    @event("B")
    def nnl_nas_on_trial_end(self, event: object) -> None:
        """Hear of a trial."""

    @provider("evaluator", EvaluatorSpec)
    def nnl_nas_evaluators(self):
        """Contribute evaluators."""

    @decision("B", wrappers=True)
    def nnl_nas_choose(self, request: object) -> int | None:
        """Choose."""


def nas(**members: object) -> Plugin:
    spec = hooks.HookspecSpec("nas", f"{__name__}:SearchHooks", "search hooks")
    members = {"name": "nas", "nnl_hookspecs": lambda self: [spec], **members}
    return type("Nas", (Plugin,), members)()


def user(**members: object) -> Plugin:
    return type("User", (Plugin,), {"name": "aaa", **members})()


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Under importlib import mode this module is not in sys.modules by itself."""
    module = types.ModuleType(__name__)
    vars(module).update(globals())
    monkeypatch.setitem(sys.modules, __name__, module)


def loaded(*plugins: Plugin) -> PluginManager:
    reports: list[str] = []
    manager = PluginManager(
        Selection(named=tuple(plugin.name for plugin in plugins)),
        discover=False,
        report=reports.append,
    )
    manager.load(plugins)
    return manager


def test_a_kind_that_a_plugin_defines_is_known_before_plugins_were_looked_for():
    manager = PluginManager(Selection(), discover=False, built_in=[entry_for(nas())])
    with pytest.raises(UnknownComponentError, match="unknown evaluator 'best'"):
        manager.component(EvaluatorSpec, "best")


def test_a_plugins_own_hooks_exist_before_others_are_checked():
    heard = []
    manager = loaded(
        user(
            nnl_nas_on_trial_end=lambda self, event: heard.append(event),
            nnl_nas_evaluators=lambda self: [EvaluatorSpec("fast", "m:f", "fast")],
            nnl_nas_choose=lambda self, request: request + 1,
        ),
        nas(),
    )
    manager.check()
    manager.events.get("nnl_nas_on_trial_end")("trial 1")
    assert heard == ["trial 1"]
    assert manager.component("evaluator", "fast").target == "m:f"
    assert manager.collect("nnl_nas_evaluators") == (EvaluatorSpec("fast", "m:f", "fast"),)
    assert manager.decide("nnl_nas_choose", 1) == 2


def test_a_plugins_own_event_runs_in_reverse_where_it_ends_something():
    heard = []
    first = user(nnl_nas_on_trial_end=lambda self, event: heard.append("first"))
    second = nas(nnl_nas_on_trial_end=lambda self, event: heard.append("second"))
    loaded(first, second).events.get("nnl_nas_on_trial_end")(None)
    assert heard == ["second", "first"]


def test_inheriting_the_specification_is_not_implementing_it(nnl_manager):
    class Typed(Plugin, SearchHooks):
        name = "typed"

    nnl_manager.register(nas())
    assert nnl_manager.register(Typed).hooks == ()


def test_without_the_plugin_that_defines_it_a_hook_is_unknown():
    with pytest.raises(HookError, match="unknown hook nnl_nas_on_trial_end"):
        loaded(user(nnl_nas_on_trial_end=lambda self, event: None)).check()


def test_without_the_plugin_that_defines_it_an_optional_hook_is_silent():
    @hooks.hookimpl(optionalhook=True)
    def nnl_nas_on_trial_end(self, event):
        raise AssertionError

    manager = loaded(user(nnl_nas_on_trial_end=nnl_nas_on_trial_end))
    manager.check()
    with pytest.raises(HookError, match="no loaded plugin defines"):
        manager.events.get("nnl_nas_on_trial_end")


def test_when_the_defining_plugin_falls_out_its_hooks_go_with_it():
    manager = loaded(
        nas(nnl_solvers=lambda self: 1), user(nnl_nas_on_trial_end=lambda self, event: None)
    )
    assert [entry.state for entry in manager.entries] == ["failed", "failed"]
    assert "unknown hook nnl_nas_on_trial_end" in manager.entry("aaa").cause
    assert "nnl_nas_on_trial_end" not in manager.event_hooks()


def test_a_hook_cannot_be_defined_twice(nnl_manager):
    nnl_manager.register(nas())
    other = type("Other", (Plugin,), {"name": "nas_", "nnl_hookspecs": nas().nnl_hookspecs})
    with pytest.raises((PluginConflictError, HookError)):
        nnl_manager.register(other)


def spec(name: str, function, mark=lambda function: function) -> type:
    copy = types.FunctionType(function.__code__, globals(), name)
    copy.__annotations__ = function.__annotations__
    return type("Hooks", (), {name: mark(copy)})


def answers(self, request) -> int: ...


def silent(self, event) -> None: ...


def speaks(self, event) -> int: ...


def asks(self): ...


@pytest.mark.parametrize(
    ("namespace", "message"),
    [
        (spec("nnl_other_on_x", silent, event("B")), "must be called nnl_nas_..., like its plugin"),
        (spec("nnl_nas_on_x", silent), "not marked with provider, decision or event"),
        (spec("nnl_nas_x", silent, event("B")), "events, and they alone, are called"),
        (spec("nnl_nas_on_x", answers, decision("B")), "events, and they alone, are called"),
        (spec("nnl_nas_on_x", speaks, event("C")), "an event returns nothing"),
        (spec("nnl_nas_on_x", asks, event("C")), "(event) takes one argument"),
        (spec("nnl_nas_x", silent, provider("x", SolverSpec)), "(provider) takes no argument"),
        (spec("nnl_nas_x", answers, decision("C")), "decision of class C must be exclusive"),
        (spec("nnl_nas_x", answers, decision("D")), "decision of class D must be exclusive"),
        (
            spec("nnl_nas_x", answers, decision("C", exclusive=True, wrappers=True)),
            "take no wrappers",
        ),
        (spec("nnl_nas_x", asks, provider("x", int)), "int does not begin with name, target"),
        (spec("other", silent), "specifies no hook"),
        (silent, "is not a class of hook specifications"),
    ],
)
def test_a_specification_that_breaks_the_rules_is_refused(namespace, message):
    with pytest.raises(HookError, match=re.escape(message)):
        specifications(namespace, "nnl_nas_")


class SecondSolvers:
    @provider("second solver", SolverSpec)
    def nnl_nas_solvers(self):
        """Contribute what is there already."""


class SecondWord:
    @provider("solver", EvaluatorSpec)
    def nnl_nas_solvers(self):
        """Contribute what is called like something else."""


@pytest.mark.parametrize(
    ("namespace", "message"),
    [
        (SecondSolvers, "nnl_nas_solvers: SolverSpec is what nnl_solvers returns"),
        (SecondWord, "nnl_nas_solvers: 'solver' is what nnl_solvers returns"),
    ],
)
def test_a_plugins_hook_cannot_take_the_word_or_the_record_of_another(
    nnl_manager, monkeypatch, namespace, message
):
    monkeypatch.setattr(sys.modules[__name__], "SearchHooks", namespace)
    with pytest.raises(PluginConflictError, match=message):
        nnl_manager.register(nas())
    nnl_manager.register(user(nnl_solvers=lambda self: [SolverSpec("fast", "m:f", "")]))
    assert nnl_manager.collect(SolverSpec) == nnl_manager.collect("solver") != ()


class StepHooks:
    @event("B")
    def nnl_step_on_end(self, event: object) -> None:
        """Hear of something else than ``nnl_on_step_end``."""

    @decision("C", exclusive=True)
    def nnl_step_reduce(self, request: object) -> int | None:
        """Decide something else than ``nnl_reduce_gradients``."""


def test_events_of_a_plugin_called_like_one_of_the_cores_are_other_events(nnl_manager, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SearchHooks", StepHooks)
    heard = []
    members = {
        "nnl_hookspecs": nas().nnl_hookspecs,
        "nnl_step_on_end": lambda self, event: heard.append("the plugin's"),
        "nnl_on_step_end": lambda self, event: heard.append("the core's"),
    }
    nnl_manager.register(type("Step", (Plugin,), {"name": "step", **members}))
    nnl_manager.events.step_end(None)
    nnl_manager.events.get("nnl_step_on_end")(None)
    nnl_manager.unregister("step")
    assert heard == ["the core's", "the plugin's"]
    assert nnl_manager.events.step_end is None


class StepEndHooks:
    @decision("C", exclusive=True)
    def nnl_step_end(self, request: object) -> int | None:
        """Decide under the name of an event's attribute."""


def test_a_decision_cannot_take_the_place_of_an_event(nnl_manager, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SearchHooks", StepEndHooks)
    members = {"name": "step", "nnl_hookspecs": nas().nnl_hookspecs}
    with pytest.raises(PluginConflictError, match="nnl_step_end is taken by nnl_on_step_end"):
        nnl_manager.register(type("Step", (Plugin,), members))
    assert nnl_manager.events.step_end is None


def test_implementing_a_deprecated_hook_warns(nnl_manager, monkeypatch):
    class Old:
        @event("B", warn_on_impl=DeprecationWarning("use something newer"))
        def nnl_nas_on_old(self, event) -> None:
            """Hear of something old."""

    monkeypatch.setattr(sys.modules[__name__], "SearchHooks", Old)
    nnl_manager.register(nas())
    with pytest.warns(DeprecationWarning, match="use something newer"):
        nnl_manager.register(user(nnl_nas_on_old=lambda self, event: None))
