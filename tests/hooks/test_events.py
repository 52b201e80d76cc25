"""Event hooks: order, cost when unused, and what happens when a listener raises."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from nnl_core.errors import HookError, PluginConflictError
from nnl_core.hooks import (
    EventTable,
    NodeForwardEnd,
    Plugin,
    PluginRegistered,
    StepEnd,
    StepStart,
    hookimpl,
)
from nnl_core.hooks.manager import PluginManager
from nnl_core.hooks.selection import Selection
from nnl_core.session import Session

# Each event hook by name, and its attribute in the event table.
EVENTS = {
    "nnl_on_plugin_registered": "plugin_registered",
    "nnl_on_session_start": "session_start",
    "nnl_on_session_end": "session_end",
    "nnl_on_graph_compiled": "graph_compiled",
    "nnl_on_node_created": "node_created",
    "nnl_on_node_forward_start": "node_forward_start",
    "nnl_on_node_forward_end": "node_forward_end",
    "nnl_on_node_backward_start": "node_backward_start",
    "nnl_on_node_backward_end": "node_backward_end",
    "nnl_on_train_start": "train_start",
    "nnl_on_train_end": "train_end",
    "nnl_on_epoch_start": "epoch_start",
    "nnl_on_epoch_end": "epoch_end",
    "nnl_on_step_start": "step_start",
    "nnl_on_step_end": "step_end",
    "nnl_on_gradients_ready": "gradients_ready",
    "nnl_on_update_start": "update_start",
    "nnl_on_update_end": "update_end",
    "nnl_on_evaluation_start": "evaluation_start",
    "nnl_on_evaluation_end": "evaluation_end",
    "nnl_on_metric": "metric",
    "nnl_on_safe_point": "safe_point",
    "nnl_on_checkpoint_save": "checkpoint_save",
    "nnl_on_checkpoint_load": "checkpoint_load",
    "nnl_on_exception": "exception",
}
SPECIFIED = {name for name in vars(Plugin) if name.startswith("nnl_on_")}


def listener(name: str, heard: list[str], *hooks: str) -> Plugin:
    """A plugin that notes its name whenever one of these hooks is called."""

    def method(self: Plugin, event: object) -> None:
        heard.append(name)

    return type(name, (Plugin,), {"name": name, **dict.fromkeys(hooks, method)})()


def active(*plugins: object) -> PluginManager:
    names = tuple(plugin.name for plugin in plugins)
    manager = PluginManager(Selection(named=names), discover=False)
    manager.load(plugins)
    manager.check()
    return manager


def test_the_list_above_is_complete():
    assert set(EVENTS) == SPECIFIED
    assert {*EVENTS.values(), "reduce_gradients"} == set(EventTable.__annotations__)


@pytest.mark.parametrize("hook", EVENTS)
def test_an_event_that_nobody_hears_is_none(nnl_manager, hook):
    assert getattr(nnl_manager.events, EVENTS[hook]) is None
    assert nnl_manager.events.get(hook) is None


@pytest.mark.parametrize("hook", sorted(SPECIFIED - {"nnl_on_plugin_registered"}))
def test_an_event_reaches_its_implementer_with_the_object_that_was_given(hook):
    heard = []
    plugin = type(
        "One", (Plugin,), {"name": "one", hook: lambda self, event: heard.append((self, event))}
    )()
    event = object()
    getattr(active(plugin).events, EVENTS[hook])(event)
    assert heard == [(plugin, event)]


@pytest.mark.parametrize("hook", sorted(SPECIFIED - {"nnl_on_plugin_registered"}))
def test_plugins_hear_in_the_order_of_the_project_and_in_reverse_at_the_end(hook):
    heard: list[str] = []
    manager = active(*[listener(name, heard, hook) for name in ("b", "c", "a")])
    manager.events.get(hook)(None)
    assert heard == (["a", "c", "b"] if hook.endswith("_end") else ["b", "c", "a"])


def test_tryfirst_and_trylast_go_around_the_order():
    heard: list[str] = []

    class Last(Plugin):
        name = "last"

        @hookimpl(trylast=True)
        def nnl_on_step_start(self, event):
            heard.append("last")

        @hookimpl(trylast=True)
        def nnl_on_step_end(self, event):
            heard.append("last")

    both = ("nnl_on_step_start", "nnl_on_step_end")
    manager = active(Last(), listener("x", heard, *both), listener("y", heard, *both))
    manager.events.step_start(None)
    manager.events.step_end(None)
    assert heard == ["x", "y", "last", "last", "y", "x"]


@pytest.mark.parametrize("count", [1, 3])
def test_an_exception_passes_through_and_names_plugin_and_hook(install, count):
    install(
        "lime",
        "def nnl_on_step_end(self, event): raise ValueError('sour')",
        version="1.0",
    )
    heard: list[str] = []
    others = [listener(f"p{i}", heard, "nnl_on_step_end") for i in range(count - 1)]
    manager = PluginManager(Selection(named=("p0", "lime", "p1")))
    manager.load(others)
    with pytest.raises(ValueError, match="sour") as caught:
        manager.events.step_end(None)
    assert caught.value.__notes__ == ["in plugin 'lime' 1.0, hook nnl_on_step_end"]
    assert heard == (["p1"] if count > 1 else [])


def test_an_exception_that_takes_no_notes_passes_through_all_the_same(nnl_manager):
    @dataclass(frozen=True)
    class FrozenError(Exception):
        code: int

    def fail(self, event):
        raise FrozenError(3)

    nnl_manager.register(type("P", (Plugin,), {"name": "p", "nnl_on_step_end": fail}))
    with pytest.raises(FrozenError):
        nnl_manager.events.step_end(None)


def test_the_table_is_the_same_object_before_and_after():
    heard: list[str] = []
    manager = PluginManager(discover=False)
    table = manager.events
    manager.register(listener("x", heard, "nnl_on_step_end"))
    table.step_end(None)
    manager.unregister("x")
    assert table.step_end is None
    assert heard == ["x"]


def test_an_inactive_plugin_hears_nothing(nnl_manager):
    nnl_manager.register(listener("x", [], "nnl_on_step_end"), active=False)
    assert nnl_manager.events.step_end is None


# -------------------------------------------------------------------- listening without a plugin


class Steps:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def nnl_on_step_end(self, event: object) -> None:
        self.heard.append(event)


def test_an_object_listens_inside_a_with_block_only():
    with Session(environment={}, discover=False) as session:
        steps = Steps()
        with session.listen(steps):
            session.events.step_end(1)
        assert session.events.step_end is None
        assert steps.heard == [1]


def test_listeners_come_after_plugins_and_first_at_the_end():
    heard: list[str] = []

    class Both:
        def nnl_on_step_start(self, event):
            heard.append("listener")

        nnl_on_step_end = nnl_on_step_start

    manager = active(listener("plugin", heard, "nnl_on_step_start", "nnl_on_step_end"))
    with manager.listen(Both()):
        manager.events.step_start(None)
        manager.events.step_end(None)
    assert heard == ["plugin", "listener", "listener", "plugin"]


def test_a_listener_that_raises_is_named(nnl_manager):
    class Broken:
        def nnl_on_metric(self, event):
            raise RuntimeError("no disk")

    with nnl_manager.listen(Broken()), pytest.raises(RuntimeError) as caught:
        nnl_manager.events.metric(None)
    assert caught.value.__notes__ == ["in listener Broken, hook nnl_on_metric"]


def test_listeners_are_gone_after_an_exception(nnl_manager):
    with pytest.raises(RuntimeError), nnl_manager.listen(Steps()):
        raise RuntimeError
    assert nnl_manager.events.step_end is None


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, "has no method named nnl_on_"),
        ({"nnl_on_step_edn": lambda self, event: None}, "did you mean 'nnl_on_step_end'"),
        ({"nnl_solvers": lambda self: ()}, "unknown hook nnl_solvers"),
        ({"nnl_reduce_gradients": lambda self, gradients: True}, "unknown hook"),
        ({"nnl_on_step_end": lambda self: None}, r"takes \(event\), not \(\)"),
    ],
)
def test_what_cannot_listen_is_refused(nnl_manager, members, message):
    odd = type("Odd", (), members)()
    with pytest.raises(HookError, match=message), nnl_manager.listen(odd):
        pass


# -------------------------------------------------------------------- plugins coming and going


def test_plugins_hear_of_those_registered_before_and_after(nnl_manager):
    heard: list[tuple[str, str]] = []

    def watcher(name: str) -> type[Plugin]:
        def note(self, event: PluginRegistered) -> None:
            heard.append((name, event.name))

        return type(name, (Plugin,), {"name": name, "nnl_on_plugin_registered": note})

    for name in ("a", "b"):
        nnl_manager.register(watcher(name))
    assert sorted(heard) == [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")]


def test_a_plugin_that_comes_again_hears_and_is_heard_of_again(nnl_manager):
    heard: list[str] = []

    def note(self, event: PluginRegistered) -> None:
        heard.append(f"{self.name} hears of {event.name}")

    nnl_manager.register(type("Old", (Plugin,), {"name": "old", "nnl_on_plugin_registered": note}))
    for _ in range(20):  # objects of which some have the address of those before them
        heard.clear()
        new = {"name": "new", "nnl_on_plugin_registered": note}
        nnl_manager.register(type("New", (Plugin,), new))
        nnl_manager.unregister("new")
        assert sorted(heard) == ["new hears of new", "new hears of old", "old hears of new"]


def test_a_plugin_that_breaks_on_hearing_of_others_is_out_and_they_stay(install):
    install("a", "def nnl_on_plugin_registered(self, event): raise ValueError('shy')")
    install("b")
    reports: list[str] = []
    manager = PluginManager(Selection(named=("a", "b")), report=reports.append)
    manager.load()
    assert [entry.state for entry in manager.entries] == ["failed", "active"]
    assert "nnl_on_plugin_registered: ValueError: shy" in reports[0]


def test_registering_a_plugin_activates_what_it_requires(nnl_manager):
    heard: list[str] = []
    nnl_manager.register(listener("base", heard, "nnl_on_step_end"), active=False)
    top = listener("top", heard, "nnl_on_step_end")
    type(top).requires = ("base",)
    nnl_manager.register(top)
    nnl_manager.events.step_end(None)
    assert sorted(heard) == ["base", "top"]


def test_a_name_can_be_registered_once(nnl_manager):
    nnl_manager.register(listener("x", []))
    with pytest.raises(PluginConflictError, match="'x' is already registered"):
        nnl_manager.register(listener("x", []))


def test_a_plugin_refused_by_register_leaves_no_trace(nnl_manager):
    bad = type(
        "Bad",
        (Plugin,),
        {
            "name": "bad",
            "nnl_on_step_end": lambda self, event: None,
            "nnl_solvers": lambda self: [1],
        },
    )
    with pytest.raises(Exception, match="which is no SolverSpec"):
        nnl_manager.register(bad)
    assert nnl_manager.entries == []
    assert nnl_manager.events.step_end is None


# -------------------------------------------------------------------- the reducer


def reducer(name: str, answer: bool) -> type[Plugin]:
    return type(
        name,
        (Plugin,),
        {"name": name, "nnl_reduce_gradients": lambda self, gradients: answer},
    )


def test_the_one_reducer_is_called_directly(nnl_manager):
    assert nnl_manager.events.reduce_gradients is None
    nnl_manager.register(reducer("x", True))
    assert nnl_manager.events.reduce_gradients(None) is True


def test_two_reducers_are_an_error_when_they_are_enabled():
    manager = PluginManager(Selection(named=("x", "y")), discover=False, report=lambda text: None)
    manager.load([reducer("x", True), reducer("y", True)])
    with pytest.raises(
        PluginConflictError, match="'y': nnl_reduce_gradients is already implemented by plugin 'x'"
    ):
        manager.check()


def test_a_second_reducer_that_is_not_active_does_not_matter(nnl_manager):
    nnl_manager.register(reducer("x", True))
    nnl_manager.register(reducer("y", False), active=False)
    assert nnl_manager.events.reduce_gradients(None) is True


# -------------------------------------------------------------------- event objects


def test_events_show_their_fields():
    assert repr(StepEnd("T", 3, [1], 0.5)) == "StepEnd(batch=[1], step=3, trainer='T', loss=0.5)"


def test_end_events_are_start_events_with_more():
    assert issubclass(StepEnd, StepStart)
    assert NodeForwardEnd("n", [1], [2]).inputs == [1]


def test_events_take_no_unknown_fields():
    with pytest.raises(AttributeError):
        StepStart(None, 0, None).losss = 1
