"""What a plugin of a few lines can do to a run, the core knowing nothing of it."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, S
from nnl_core.errors import NotFiniteError, PluginError
from nnl_core.hooks import MetricSpec, Plugin
from nnl_core.hooks.events import EventTable
from nnl_core.session import Session
from nnl_core.testing import record_hooks
from nnl_core.training import Model, Trainer, TrainResult


@pytest.fixture
def train(line):
    """Train the line for two epochs of two steps with plugins; return trainer and result."""

    def train(*plugins, solver=None, metrics=(), **keywords):
        with Session(plugins, discover=False, environment={}) as session:
            model = Model(affine, loss="squared_error", metrics=metrics, session=session)
            keywords = {"epochs": 2, "batch_size": 5, **keywords}
            trainer = Trainer(model, line, solver or S.Sgd(lr=0.1), session=session, **keywords)
            return trainer, trainer.run()

    return train


def affine(x):
    return PF.affine(x, 1, w_init=np.ones((1, 1)), name="fit")


def values(trainer):
    return {name.split("/")[-1]: p.d.copy() for name, p in trainer.model.parameters.items()}


# -------------------------------------------------------------------- every event is announced


def test_every_event_is_announced_where_it_happens(line):
    session = Session(discover=False, environment={})
    with record_hooks(session) as recorder, session:
        x = nnl.Variable((2, 1), need_grad=True)
        y = F.sum(F.tanh(x))
        y.forward()
        y.backward()
        model = Model(affine, loss="squared_error", session=session)
        trainer = Trainer(
            model, line, S.Sgd(lr=0.1), epochs=1, batch_size=5, evaluate={"t": line},
            session=session,
        )  # fmt: skip
        trainer.run()
        trainer.restore(trainer.checkpoint())
        trainer.solver.set_learning_rate(1e30)
        with pytest.raises(NotFiniteError):
            trainer.epochs = 9
            trainer.run()
    expected = {f"nnl_on_{name}" for name in EventTable.__annotations__} - {
        "nnl_on_reduce_gradients"
    }
    assert set(recorder.names) == expected


# -------------------------------------------------------------------- what a plugin can do


def test_it_logs(train):
    class Log(Plugin):
        name = "log"

        def __init__(self):
            self.lines = []

        def nnl_on_step_end(self, event):
            self.lines.append(f"{event.step} {float(event.loss):.3f}")

    log = Log()
    train(log)
    assert [line.split()[0] for line in log.lines] == ["0", "1", "2", "3"]


def test_it_clips_gradients(train):
    class Clip(Plugin):
        name = "clip"

        def nnl_on_update_start(self, event):
            for gradient in event.gradients.by_name.values():
                np.clip(gradient, -0.01, 0.01, out=gradient)

    trainer, _ = train(Clip(), epochs=1)  # two steps of a rate of 0.1
    assert abs(values(trainer)["W"] - 1).max() <= 2 * 0.1 * 0.01 + 1e-6


def test_it_prunes_parameters(train):
    class Prune(Plugin):
        name = "prune"

        def nnl_on_update_end(self, event):
            for parameter in event.parameters.values():
                parameter.d[np.abs(parameter.d) < 1.5] = 0

    trainer, _ = train(Prune(), solver=S.Sgd(lr=1e-3))
    assert values(trainer) == {"W": 0, "b": 0}


def test_it_freezes_parameters(train):
    class Freeze(Plugin):
        name = "freeze"

        def nnl_on_update_start(self, event):
            event.gradients.by_name["fit/affine/W"][...] = 0

    trainer, _ = train(Freeze())
    assert values(trainer)["W"] == 1 and values(trainer)["b"] != 0


def test_it_injects_noise(train):
    class Noise(Plugin):
        name = "noise"

        def __init__(self):
            self.generator = np.random.default_rng(0)

        def nnl_on_step_start(self, event):
            event.batch["x"][...] += self.generator.normal(size=event.batch["x"].shape)

    noisy, plain = train(Noise())[0], train()[0]
    assert values(noisy)["W"] != values(plain)["W"]


def test_it_stops_early(train):
    class Stop(Plugin):
        name = "stop"

        def nnl_on_step_end(self, event):
            if event.step == 2:
                event.trainer.request_stop("three are enough")

    _, result = train(Stop())
    assert (result.steps, result.stopped) == (3, "three are enough")


def test_it_changes_the_learning_rate(train):
    class Halve(Plugin):
        name = "halve"

        def nnl_on_epoch_end(self, event):
            solver = event.trainer.solver
            solver.set_learning_rate(solver.learning_rate() / 2)

    trainer, _ = train(Halve())
    assert trainer.solver.learning_rate() == 0.1 / 4


def test_it_adds_a_metric(train, monkeypatch):
    module = types.ModuleType("bias_metric")
    module.bias = lambda output, target: output - target
    monkeypatch.setitem(sys.modules, "bias_metric", module)

    class Adds(Plugin):
        name = "adds"

        def nnl_metrics(self):
            return [MetricSpec("bias", "bias_metric:bias", "", higher_is_better=False)]

    _, result = train(Adds(), metrics=["bias"])
    assert result.metrics.keys() == {"train/loss", "train/bias"}


def test_it_reports_numbers_of_its_own(train):
    class Norm(Plugin):
        name = "norm"

        def nnl_on_epoch_end(self, event):
            norm = sum(float((p.d**2).sum()) for p in event.trainer.model.parameters.values())
            event.trainer.report("norm", norm)

    class Hears(Plugin):
        name = "hears"
        heard = ()

        def nnl_on_metric(self, event):
            self.heard = (*self.heard, event.name)

    hears = Hears()
    train(Norm(), hears)
    assert hears.heard.count("norm") == 2


def test_it_keeps_state_in_a_checkpoint(line):
    class Counts(Plugin):
        name = "counts"
        steps = 0

        def nnl_on_step_end(self, event):
            self.steps += 1

        def nnl_on_checkpoint_save(self, event):
            event.checkpoint.plugins["counts"] = {"steps": self.steps}

        def nnl_on_checkpoint_load(self, event):
            self.steps = event.checkpoint.plugins["counts"]["steps"]

    counts = Counts()
    with Session([counts], discover=False, environment={}) as session:
        model = Model(affine, loss="squared_error", session=session)
        trainer = Trainer(model, line, S.Sgd(lr=0.1), epochs=1, batch_size=5, session=session)
        trainer.run()
        checkpoint = trainer.checkpoint()
        counts.steps = 99
        trainer.restore(checkpoint)
    assert counts.steps == 2


def test_it_replaces_the_loop(train):
    class Nothing(Plugin):
        name = "nothing"

        def nnl_run_training(self, trainer):
            return TrainResult(0, 0, 0.0, "there is nothing to learn", [])

    trainer, result = train(Nothing())
    assert result.stopped == "there is nothing to learn"
    assert trainer.state.step == 0


def test_a_plugin_that_replaces_the_loop_returns_a_result(line, make_model):
    class Wrong(Plugin):
        name = "wrong"

        def nnl_run_training(self, trainer):
            return 3

    with Session([Wrong], discover=False, environment={}) as session:
        trainer = Trainer(make_model(), line, S.Sgd(), epochs=1, session=session)
        with pytest.raises(PluginError, match="nnl_run_training returned 3, not a TrainResult"):
            trainer.run()


def test_numbers_of_numpy_are_reported_as_numbers(session, line, make_model):
    trainer = Trainer(make_model(), line, S.Sgd(), epochs=1, session=session)
    heard = []

    class Listener:
        def nnl_on_metric(self, event):
            heard.append(event.value)

    with session.listen(Listener()):
        trainer.report("norm", np.float32(2.5))
    assert [type(value) for value in heard] == [float]
