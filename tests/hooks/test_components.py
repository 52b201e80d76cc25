"""Looking components up, importing what they stand for, and asking plugins to decide."""

from __future__ import annotations

import re

import pytest

from nnl_core import hooks
from nnl_core.errors import HookError, TargetError, UnknownComponentError
from nnl_core.hooks import BackendRequest, Plugin, SolverSpec, hookimpl
from nnl_core.hooks.checks import info_of
from nnl_core.hooks.loading import did_you_mean
from nnl_core.hooks.manager import PluginManager
from nnl_core.hooks.selection import Selection

PROVIDERS = {
    name: info_of(function)
    for name, function in vars(Plugin).items()
    if name.startswith("nnl_") and info_of(function).role == "provider"
}
EXTRA = {"KernelSet": {"operators": "x::*", "backend": "numpy"}}


def plugin(name: str, **members: object) -> Plugin:
    return type(name, (Plugin,), {"name": name, **members})()


def solvers(*names: str, target: str = "json:dumps"):
    return lambda self: [SolverSpec(name, target, f"the {name}") for name in names]


@pytest.mark.parametrize("hook", sorted(set(PROVIDERS) - {"nnl_hookspecs"}))
def test_every_kind_is_found_by_record_word_and_hook(nnl_manager, hook):
    info = PROVIDERS[hook]
    record = info.record("x", "json:dumps", "an x", **EXTRA.get(info.record.__name__, {}))
    nnl_manager.register(plugin("x", **{hook: lambda self: [record]}))
    for kind in (info.record, info.kind, hook):
        assert nnl_manager.component(kind, "x") == record
        assert nnl_manager.collect(kind) == (record,)


def test_records_come_in_the_order_of_the_plugins():
    manager = PluginManager(Selection(named=("b", "a")), discover=False)
    manager.load(
        [plugin("a", nnl_solvers=solvers("z")), plugin("b", nnl_solvers=solvers("y", "x"))]
    )
    assert [record.name for record in manager.collect("solver")] == ["y", "x", "z"]


def test_only_active_leaves_out_what_is_merely_installed(nnl_manager):
    nnl_manager.register(plugin("a", nnl_solvers=solvers("z")))
    nnl_manager.register(plugin("b", nnl_solvers=solvers("y")), active=False)
    found = nnl_manager.collect(SolverSpec, only_active=True)
    assert [record.name for record in found] == ["z"]


def test_a_generator_will_do(nnl_manager):
    def generate(self):
        yield SolverSpec("g", "m:f", "")

    nnl_manager.register(plugin("a", nnl_solvers=generate))
    assert nnl_manager.component("solver", "g").name == "g"


def test_plugins_are_asked_once(nnl_manager):
    asked = []

    def ask(self):
        asked.append(1)
        return [SolverSpec("s", "m:f", "")]

    nnl_manager.register(plugin("a", nnl_solvers=ask))
    for _ in range(3):
        nnl_manager.collect("solver")
        nnl_manager.component("solver", "s")
    assert asked == [1]


def test_the_owner_of_a_record_is_known(nnl_manager):
    nnl_manager.register(plugin("a", nnl_solvers=solvers("z")))
    assert nnl_manager.owner(nnl_manager.component("solver", "z")).name == "a"
    assert nnl_manager.owner(SolverSpec("z", "other:target", "")) is None


def test_the_cores_own_components_need_no_look_at_what_is_installed(monkeypatch):
    import importlib_metadata

    from nnl_core.session import Session

    def forbidden():
        raise AssertionError("looked for plugins")

    monkeypatch.setattr(importlib_metadata, "distributions", forbidden)
    session = Session(environment={})
    assert session.manager.component("command", "train").name == "train"


def test_an_unknown_name_suggests_the_nearest(nnl_manager):
    nnl_manager.register(plugin("a", nnl_solvers=solvers("adam", "sgd")))
    with pytest.raises(UnknownComponentError, match=r"unknown solver 'Adma'; did you mean 'adam'?"):
        nnl_manager.component("solver", "Adma")


def test_an_unknown_name_far_from_all_lists_them(nnl_manager):
    nnl_manager.register(plugin("a", nnl_solvers=solvers("adam", "sgd")))
    with pytest.raises(UnknownComponentError, match="unknown solver 'zzz'; known: adam, sgd"):
        nnl_manager.component("solver", "zzz")


def test_a_name_in_a_disabled_plugins_namespace_says_so():
    manager = PluginManager(
        Selection(blocked=frozenset(["a"]), sources={"a": "nnl.toml"}), discover=False
    )
    manager.load([plugin("a")])
    with pytest.raises(UnknownComponentError, match=r"plugin 'a' is disabled: by nnl.toml"):
        manager.component("operators", "a::sine")


def test_an_unknown_kind_is_an_error(nnl_manager):
    with pytest.raises(HookError, match="'solvre'; did you mean 'solver'"):
        nnl_manager.component("solvre", "adam")


# -------------------------------------------------------------------- targets

TARGETS = {
    "no module": ("no_such_module:f", "ModuleNotFoundError: No module named 'no_such_module'"),
    "no submodule": ("json.nothing:f", "No module named 'json.nothing'"),
    "no attribute": ("json:nothing", "'json' has no attribute 'nothing'"),
    "wrong case": ("json:DUMPS", "'json' has no attribute 'DUMPS'; did you mean 'dumps'"),
    "a dot for the colon": ("json.decoder.JSONDecoder", "write 'json.decoder:JSONDecoder', with a"),
    "a dot for the colon, deep": ("json.JSONDecoder.decode", "write 'json:JSONDecoder', with a"),
    "too deep": ("json:dumps.nothing", "'json:dumps' has no attribute 'nothing'"),
}


@pytest.mark.parametrize(("target", "message"), TARGETS.values(), ids=TARGETS)
def test_a_target_that_leads_nowhere_says_whose_it_is(nnl_manager, target, message):
    nnl_manager.register(plugin("a", nnl_solvers=solvers("z", target=target)))
    with pytest.raises(TargetError) as caught:
        nnl_manager.resolve(nnl_manager.component("solver", "z"))
    text = str(caught.value)
    assert text.startswith(f"solver 'z' of plugin 'a': target {target!r}: ")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "target", ["", ":f", "m:", "m:f:g", "m f", "m.:f", "m:.f", "1m:f", "m-n:f"]
)
def test_what_is_no_import_string_is_refused_when_the_plugin_loads(nnl_manager, target):
    with pytest.raises(Exception, match="is not an import string"):
        nnl_manager.register(plugin("a", nnl_solvers=solvers("z", target=target)))


@pytest.mark.parametrize(
    ("target", "name"),
    [("json", "json"), ("json:dumps", "dumps"), ("json:JSONDecoder.decode", "decode")],
)
def test_a_target_is_a_module_or_an_attribute_at_any_depth(nnl_manager, target, name):
    nnl_manager.register(plugin("a", nnl_solvers=solvers("z", target=target)))
    found = nnl_manager.resolve(nnl_manager.component("solver", "z"))
    assert found.__name__ == name


@pytest.mark.parametrize("source", ["raise SystemExit(0)", "class B(BaseException): pass\nraise B"])
def test_a_target_module_that_exits_is_an_error_like_others(nnl_manager, site, source):
    (site / "exits.py").write_text(source)
    nnl_manager.register(plugin("a", nnl_solvers=solvers("z", target="exits:f")))
    with pytest.raises(TargetError, match="solver 'z' of plugin 'a'"):
        nnl_manager.resolve(nnl_manager.component("solver", "z"))


def test_a_target_error_keeps_its_cause(nnl_manager, site):
    (site / "divides.py").write_text("1 / 0")
    nnl_manager.register(plugin("a", nnl_solvers=solvers("z", target="divides:f")))
    with pytest.raises(TargetError) as caught:
        nnl_manager.resolve(nnl_manager.component("solver", "z"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# -------------------------------------------------------------------- decisions

DECISIONS = {
    "nnl_select_backend": "select_backend",
    "nnl_select_kernel": "select_kernel",
    "nnl_compile_graph": "compile_graph",
    "nnl_run_training": "run_training",
    "nnl_run_evaluation": "run_evaluation",
}


def test_the_list_of_decisions_is_complete():
    assert {*DECISIONS, "nnl_reduce_gradients"} == {
        name
        for name, function in vars(Plugin).items()
        if name.startswith("nnl_") and info_of(function).role == "decision"
    }


def answering(hook: str, answer: object):
    """Make an implementation with the argument that the hook takes."""
    (takes,) = info_of(getattr(Plugin, hook)).takes
    scope: dict[str, object] = {"answer": answer}
    exec(f"def {hook}(self, {takes}): return answer", scope)
    return scope[hook]


@pytest.mark.parametrize("hook", DECISIONS)
def test_the_first_answer_in_the_order_of_plugins_counts(hook):
    manager = PluginManager(Selection(named=("a", "b", "c")), discover=False)
    manager.load(
        plugin(name, **{hook: answering(hook, answer)})
        for name, answer in (("c", "third"), ("b", "second"), ("a", None))
    )
    assert getattr(manager, DECISIONS[hook])(object()) == "second"


@pytest.mark.parametrize("hook", DECISIONS)
def test_nobody_decides_where_nobody_implements(nnl_manager, hook):
    assert getattr(nnl_manager, DECISIONS[hook])(object()) is None


@pytest.mark.parametrize("hook", ["nnl_compile_graph", "nnl_run_training", "nnl_run_evaluation"])
def test_a_wrapper_goes_around_the_others(nnl_manager, hook):
    (takes,) = info_of(getattr(Plugin, hook)).takes
    scope: dict[str, object] = {}
    exec(f"def {hook}(self, {takes}):\n    answer = yield\n    return f'({{answer}})'", scope)
    nnl_manager.register(plugin("outer", **{hook: hookimpl(wrapper=True)(scope[hook])}))
    nnl_manager.register(plugin("inner", **{hook: answering(hook, "inside")}))
    assert getattr(nnl_manager, DECISIONS[hook])(object()) == "(inside)"


def test_the_core_runs_what_no_plugin_runs(nnl_session):
    class Loop:
        def run_loop(self):
            return "the core's"

    assert nnl_session.manager.run_training(Loop()) == "the core's"
    assert nnl_session.manager.run_evaluation(Loop()) == "the core's"
    nnl_session.manager.register(plugin("a", nnl_run_training=lambda self, trainer: "mine"))
    assert nnl_session.manager.run_training(Loop()) == "mine"


def test_an_exception_in_a_decision_names_the_plugin_that_raised(install):
    install("calm", "def nnl_select_backend(self, request): return None")
    install(
        "lime", "def nnl_select_backend(self, request): raise ValueError('sour')", version="2.0"
    )
    manager = PluginManager(Selection(named=("calm", "lime")))
    manager.load()
    with pytest.raises(ValueError, match="sour") as caught:
        manager.select_backend(BackendRequest(["numpy"]))
    assert caught.value.__notes__ == ["in plugin 'lime' 2.0, hook nnl_select_backend"]


def test_a_wrapper_is_not_blamed_for_what_passes_through_it(nnl_manager):
    @hookimpl(wrapper=True)
    def wrap(self, trainer):
        return (yield)

    def fail(self, trainer):
        raise ValueError

    nnl_manager.register(plugin("outer", nnl_run_training=wrap))
    nnl_manager.register(plugin("inner", nnl_run_training=fail))
    with pytest.raises(ValueError) as caught:
        nnl_manager.run_training(None)
    assert caught.value.__notes__ == ["in plugin 'inner', hook nnl_run_training"]


def test_deciding_on_something_else_is_an_error(nnl_manager):
    with pytest.raises(HookError, match=re.escape("'nnl_on_step_end' is no decision hook")):
        nnl_manager.decide("nnl_on_step_end", None)


def test_hooks_are_called_in_one_module_only():
    from pathlib import Path

    core = Path(hooks.__file__).parents[1]
    guilty = [
        str(path)
        for path in core.rglob("*.py")
        if path.name != "manager.py" and re.search(r"\.hook\.", path.read_text("utf-8"))
    ]
    assert guilty == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("loss", "; did you mean 'test/loss' or 'train/loss'?"),
        ("seed", "; did you mean 'train.seed'?"),
        ("test/lost", "; did you mean 'test/loss'?"),
        ("nothing", ""),
    ],
)
def test_nearest_is_what_ends_with_a_name_else_what_is_spelt_like_it(name, hint):
    assert did_you_mean(name, ["train/loss", "test/loss", "train.seed"]) == hint
