"""What a trainer does besides the plain step: parts, averages, loss scale, groups, plateaus."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import PF, F, S
from nnl_core.data import ArraySource
from nnl_core.errors import ConfigurationError, TrainingError
from nnl_core.initializers import ConstantInitializer
from nnl_core.parameters import Parameter
from nnl_core.schedules import PlateauScheduler
from nnl_core.settings import check
from nnl_core.training import Trainer
from nnl_core.training.project import Workbench


class Listener:
    """Notes what a run announces."""

    def __init__(self):
        self.metrics, self.rates, self.updates = {}, [], 0

    def nnl_on_metric(self, event):
        self.metrics.setdefault(event.name, []).append(event.value)

    def nnl_on_step_end(self, event):
        self.rates.append(event.trainer.solver.learning_rate())

    def nnl_on_update_end(self, event):
        self.updates += 1


class Between(Listener):
    """Comes between gradients and update, so that a step is two programs."""

    def nnl_on_update_start(self, event):
        pass


def arrays(model):
    return {name: parameter.d.copy() for name, parameter in model.parameters.items()}


# Batches in parts --------------------------------------------------------------------------------


def trained(session, line, model, listener=None, **keywords):
    trainer = Trainer(model, line, S.Momentum(0.05), epochs=3, session=session, **keywords)
    with session.listen(listener or Listener()):
        result = trainer.run()
    return result, arrays(model)


@pytest.mark.parametrize("accumulate", [2, 3, 99])
@pytest.mark.parametrize("batch_size", [10, 4])
def test_batches_in_parts_train_as_whole_ones(session, line, make_model, accumulate, batch_size):
    whole, expected = trained(session, line, make_model(), batch_size=batch_size)
    parts, found = trained(
        session, line, make_model(), batch_size=batch_size, accumulate=accumulate
    )
    assert parts.steps == whole.steps
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)
    for one, other in zip(parts.history, whole.history, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_a_plugin_between_gradients_and_update_changes_no_bit_of_parts(session, line, make_model):
    keywords = {"batch_size": 4, "accumulate": 2, "clip_grad_value": 0.5, "weight_decay": 0.1}
    _, whole = trained(session, line, make_model(), **keywords)
    _, split = trained(session, line, make_model(), Between(), **keywords)
    assert all(np.array_equal(whole[name], split[name]) for name in whole)


def test_a_part_holds_a_part_of_the_batch(session, line, make_model):
    trainer = Trainer(
        make_model(), line, S.Sgd(), epochs=1, batch_size=10, accumulate=4, session=session
    )
    assert sorted(trainer._steps) == [2, 3]


# Averages ----------------------------------------------------------------------------------------


def test_averages_are_evaluated_and_the_parameters_go_on(session, line, make_model):
    model, plain = make_model(), make_model()
    solver = S.Sgd(0.1)
    solver.keep_average(0.5)
    trainer = Trainer(model, line, solver, epochs=4, session=session, evaluate={"test": line})
    history = trainer.run().history
    Trainer(plain, line, S.Sgd(0.1), epochs=4, session=session).run()
    found = arrays(model)
    assert all(np.array_equal(found[name], value) for name, value in arrays(plain).items())
    with trainer.averaged():
        w, b = (float(parameter.d.ravel()[0]) for parameter in model.parameters.values())
    x, y = (line.arrays[key].astype(np.float64) for key in "xy")
    assert history[-1]["test/loss"] == pytest.approx(np.mean((w * x + b - y) ** 2), rel=1e-5)
    assert w != float(next(iter(found.values())).ravel()[0])


# Loss scale --------------------------------------------------------------------------------------


def half(x):
    """A line computed in half precision, where a scale of 2^16 overflows."""
    w = PF.affine(x, 1, w_init=ConstantInitializer(0), name="fit")
    return F.cast(F.cast(w, "float16"), "float32")


@pytest.mark.parametrize("listener", [Listener, Between])
def test_skipped_steps_are_reported_and_are_no_updates(session, line, make_model, listener):
    heard, scale = listener(), S.DynamicLossScale(2.0**20)
    trainer = Trainer(
        make_model(half), line, S.Sgd(0.1), epochs=30, loss_scale=scale, session=session
    )
    with session.listen(heard):
        result = trainer.run()
    assert scale.skipped > 0
    assert heard.metrics["skipped_steps"] == list(range(1, scale.skipped + 1))
    assert heard.updates == result.steps - scale.skipped
    assert {state.t for state in trainer.solver.get_states().values()} == {heard.updates}
    assert result.metrics["train/loss"] < 1


# Schedules that watch ----------------------------------------------------------------------------


def test_a_plateau_lowers_the_rate_between_epochs(session, line, make_model):
    heard = Listener()
    schedule = PlateauScheduler(0.0, "test/loss", factor=0.5, patience=0)
    schedule.init_lr = 1e-30  # too small to change the loss
    trainer = Trainer(
        make_model(),
        line,
        S.Sgd(),
        epochs=4,
        batch_size=5,
        schedule=schedule,
        evaluate={"test": line},
        session=session,
    )
    schedule.observe([])
    with session.listen(heard):
        trainer.run()
    assert np.array(heard.rates) / 1e-30 == pytest.approx([1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25])


def test_a_metric_that_is_not_there_is_named(session, line, make_model):
    schedule = PlateauScheduler(0.1, "test/loss")
    trainer = Trainer(make_model(), line, S.Sgd(), epochs=1, schedule=schedule, session=session)
    with pytest.raises(TrainingError, match="'test/loss'; there are train/loss"):
        trainer.run()


# Checkpoints -------------------------------------------------------------------------------------


def test_a_run_with_all_of_it_goes_on_from_a_checkpoint_bit_for_bit(session, line, make_model):
    def make():
        model, solver = make_model(half), S.Adam(0.01)
        solver.keep_average(0.9)
        solver.set_groups([S.ParameterGroup("*/b", rate_factor=0.5)])
        trainer = Trainer(
            model,
            line,
            solver,
            epochs=6,
            batch_size=4,
            accumulate=2,
            loss_scale=S.DynamicLossScale(2.0**20, interval=4),
            schedule=PlateauScheduler(0.05, factor=0.5, patience=0, threshold=0.9),
            clip_grad_norm_each=1.0,
            session=session,
        )
        return model, trainer

    model, trainer = make()
    kept = []

    class Keep:
        def nnl_on_epoch_end(self, event):
            if event.epoch == 2:
                kept.append(event.trainer.checkpoint())

    with session.listen(Keep()):
        trainer.run()
    again, other = make()
    other.restore(kept[0])
    other.run()
    for name, value in arrays(model).items():
        assert np.array_equal(value, again.parameters[name].d)
    for name, state in trainer.solver.get_states().items():
        found = other.solver.get_states()[name].pstate["average"]
        assert np.array_equal(state.pstate["average"], found)
    assert trainer.loss_scale.get_state() == other.loss_scale.get_state()
    assert trainer.solver.learning_rate() == other.solver.learning_rate()


# Project files -----------------------------------------------------------------------------------


def workbench(session, folder, solver, **train):
    table = {"model": {"function": "m:f"}, "solver": solver, "train": train}
    return Workbench(check(table, "nnl.toml"), folder, session)


def test_a_project_names_groups_averages_and_a_loss_scale(session, tmp_path):
    bench = workbench(
        session,
        tmp_path,
        {
            "name": "Sgd",
            "lr": 1.0,
            "average": 0.5,
            "groups": [{"pattern": "a", "rate_factor": 0.5}, {"pattern": "b", "frozen": True}],
            "loss_scale": {"scale": 256.0},
        },
    )
    solver = bench.solver()
    assert solver.average_decay == 0.5
    parameters = {name: Parameter((1,)) for name in ("a/W", "b/W", "c/W")}
    for parameter in parameters.values():
        parameter.d, parameter.g = 1, 1
    solver.set_parameters(parameters)
    solver.update()
    assert [float(p.d[0]) for p in parameters.values()] == [0.5, 1.0, 0.0]
    scale = bench.loss_scale()
    assert (scale.scale, scale.factor, scale.interval) == (256.0, 2.0, 2000)


@pytest.mark.parametrize(
    ("name", "arguments", "steps", "expected"),
    [
        ("step", {"gamma": 0.5, "iter_steps": 2}, [0, 2], [1, 0.5]),
        ("step", {"gamma": 0.5, "iter_steps": [1, 2]}, [0, 2], [1, 0.25]),
        ("exponential", {"gamma": 0.5}, [0, 2], [1, 0.25]),
        ("polynomial", {"power": 2}, [0, 20], [1, 0.25]),
        ("cosine", {}, [0, 20], [1, 0.5]),
        ("cosine_restarts", {"T_0": 2, "T_mult": 2}, [1, 2, 4], [0.5, 1, 0.5]),
        ("one_cycle", {"pct_start": 0.025, "anneal_strategy": "linear"}, [0, 39], [1, 4e-6]),
        ("plateau", {"metric": "validation/loss"}, [0, 20], [1, 1]),
    ],
)
def test_a_project_names_schedules(session, tmp_path, name, arguments, steps, expected):
    bench = workbench(session, tmp_path, {"schedule": {"name": name, **arguments}})
    made = bench.schedule(1.0, 40)
    assert [made.get_learning_rate(step) for step in steps] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("solver", "named"),
    [
        ({"average": 1.0}, "solver.average = 1.0"),
        ({"groups": [{"rate_factor": 2}]}, "pattern is missing"),
        ({"groups": [{"pattern": "a", "rate": 2}]}, "rate: unknown key"),
        ({"loss_scale": {"factor": 1}}, "solver.loss_scale.factor = 1"),
        ({"clip_grad_value": 0}, "solver.clip_grad_value = 0"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(session, tmp_path, solver, named):
    with pytest.raises(ConfigurationError, match=named):
        workbench(session, tmp_path, solver)


def test_a_project_trains_in_parts(session, tmp_path):
    assert workbench(session, tmp_path, {}, accumulate=4).settings.train.accumulate == 4


def test_data_sources_of_one_sample_have_one_part(session, make_model):
    source = ArraySource({"x": np.ones((1, 1), np.float32), "y": np.ones((1, 1), np.float32)})
    trainer = Trainer(make_model(), source, S.Sgd(0.5), epochs=1, accumulate=3, session=session)
    trainer.run()
    # the gradient of (w + b - 1)^2 at 0 is -2
    assert {float(p.d.ravel()[0]) for p in trainer.model.parameters.values()} == {1.0}
