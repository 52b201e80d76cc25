"""Plugins that come with the core: what each does to a run."""

from __future__ import annotations

import csv
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnl_core import PF, F, S
from nnl_core.data import ArraySource
from nnl_core.errors import ConfigurationError, NotFiniteError, TrainingError
from nnl_core.initializers import ConstantInitializer
from nnl_core.session import Session
from nnl_core.testing import record_hooks
from nnl_core.training import Model, Trainer
from nnl_core.training.plugins.early_stopping import without_improvement


@pytest.fixture
def run(make_model, line, tmp_path):
    """Train with plugins and their settings, in an empty folder."""

    def run(*plugins, settings=None, model=None, epochs=2, lr=0.1, listen=None, **keywords):
        keywords.setdefault("folder", tmp_path)
        with Session(plugins, settings=settings, discover=False, environment={}) as session:
            trainer = Trainer(
                model or make_model(), line, S.Sgd(lr=lr), epochs=epochs, batch_size=5,
                session=session, **keywords,
            )  # fmt: skip
            if listen is None:
                return trainer.run()
            with session.listen(listen(trainer)):
                return trainer.run()

    return run


# -------------------------------------------------------------------- csv_log


def table(folder):
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_the_table_has_a_line_for_each_epoch_and_a_column_for_each_metric(run, line, tmp_path):
    result = run("csv_log", evaluate={"test": line})
    head, *rows = table(tmp_path)
    assert head == ["epoch", "train/loss", "test/loss"]
    assert [row[0] for row in rows] == ["1", "2"]
    assert [float(row[2]) for row in rows] == [metrics["test/loss"] for metrics in result.history]


def test_what_was_not_measured_in_an_epoch_is_an_empty_cell(run, line, tmp_path):
    run("csv_log", evaluate={"test": line}, evaluate_every=2, epochs=2)
    _, first, second = table(tmp_path)
    assert first[2] == "" and float(second[2]) > 0


def test_a_run_that_goes_on_has_each_epoch_once(make_model, line, tmp_path):
    checkpoint = None
    for epochs in (2, 3):
        with Session(["csv_log"], discover=False, environment={}) as session:
            trainer = Trainer(
                make_model(), line, S.Sgd(lr=0.1), epochs=epochs, batch_size=5, folder=tmp_path,
                session=session,
            )  # fmt: skip
            if checkpoint is not None:
                trainer.restore(checkpoint)
            trainer.run()
            checkpoint = trainer.checkpoint()
    assert [row[0] for row in table(tmp_path)] == ["epoch", "1", "2", "3"]


def test_the_table_of_a_run_without_a_folder_is_refused(run):
    with pytest.raises(ConfigurationError, match="csv_log writes into a folder"):
        run("csv_log", folder=None)


# -------------------------------------------------------------------- early_stopping


def stopping(**settings):
    return {"early_stopping": {"metric": "test/loss", **settings}}


def test_a_run_ends_when_its_metric_gets_no_better(run, line):
    result = run(
        "early_stopping", settings=stopping(patience=2), lr=0.0, epochs=9, evaluate={"test": line}
    )
    assert result.epochs == 3  # the first is the best, two more are not better
    assert result.stopped == "test/loss got no better 2 times"


def test_a_run_that_gets_better_goes_on(run, line):
    result = run("early_stopping", settings=stopping(patience=1), epochs=4, evaluate={"test": line})
    assert (result.epochs, result.stopped) == (4, None)


def test_the_other_direction_may_be_asked_for(run, line):
    settings = stopping(patience=1, mode="max")
    result = run("early_stopping", settings=settings, epochs=4, evaluate={"test": line})
    assert result.epochs == 2


def test_a_gain_of_no_more_than_min_delta_does_not_count(run, line):
    settings = stopping(patience=1, min_delta=1e9)
    assert run("early_stopping", settings=settings, epochs=4, evaluate={"test": line}).epochs == 2


def test_a_metric_that_is_not_measured_is_named(run, line):
    with pytest.raises(TrainingError, match=r"not measure 'test/los'; did you mean 'test/loss'"):
        run("early_stopping", settings=stopping(metric="test/los"), evaluate={"test": line})


@given(st.lists(st.integers(-5, 5), min_size=1))
def test_what_counts_is_how_long_ago_the_first_best_value_was(values):
    assert without_improvement(values, 0.0, rises=True) == len(values) - 1 - values.index(
        max(values)
    )
    lowered = [-value for value in values]
    assert without_improvement(lowered, 0.0, rises=False) == without_improvement(
        values, 0.0, rises=True
    )


def test_nan_is_no_improvement_and_any_number_improves_on_it():
    nan = math.nan
    assert without_improvement([3.0, nan, nan], 0.0, rises=False) == 2
    assert without_improvement([nan, 3.0], 0.0, rises=False) == 0


# -------------------------------------------------------------------- gradient_watch


def test_norms_of_gradients_are_reported_every_so_many_steps(run, line):
    reported = []

    class Listener:
        def nnl_on_metric(self, event):
            if event.name.startswith("gradient"):
                reported.append((event.step, event.name, event.value))

    run(
        "gradient_watch", settings={"gradient_watch": {"every": 3}}, lr=0.0, epochs=2,
        listen=lambda trainer: Listener(), last_batch="drop",
    )  # fmt: skip
    names = ["gradient_norm/fit/affine/W", "gradient_norm/fit/affine/b", "gradient_norm"]
    assert [(step, name) for step, name, _ in reported] == [(s, n) for s in (0, 3) for n in names]
    weight, bias, total = (value for _, _, value in reported[:3])
    assert total == pytest.approx(math.hypot(weight, bias))


def test_the_reported_norm_is_that_of_the_gradient(run, line):
    found = {}

    class Listener:
        def nnl_on_metric(self, event):
            found.setdefault(event.name, event.value)

    run("gradient_watch", lr=0.0, epochs=1, listen=lambda trainer: Listener())
    # the mean of (0 x + 0 - y)^2 has the derivative -2 mean(y) by the bias
    ids = np.random.default_rng((0, 0)).permutation(10)[:5]
    y = line.arrays["y"][ids].astype(np.float64)
    assert found["gradient_norm/fit/affine/b"] == pytest.approx(abs(2 * y.mean()), rel=1e-5)


# -------------------------------------------------------------------- nan_watch


def zero_affine(x):
    return PF.affine(x, 1, w_init=ConstantInitializer(0))


def test_the_first_nan_of_values_is_named_with_node_and_line(run):
    def model(x):
        return F.log(zero_affine(x) - 1)

    line_number = model.__code__.co_firstlineno + 1
    with pytest.raises(NotFiniteError) as caught:
        run("nan_watch", model=Model(model, loss="squared_error"))
    place = rf"nnl::log (log, test_builtin_plugins.py:{line_number}) of shapes (5, 1)"
    assert str(caught.value) == (
        f"step 0 (epoch 1): the loss is nan; the first NaN is made by {place}"
    )


def test_the_first_infinity_of_a_gradient_is_named(run):
    def model(x):
        h = zero_affine(x)
        return h + F.sqrt(h * 0)  # at 0 the root's derivative is infinite

    with pytest.raises(NotFiniteError) as caught:
        run("nan_watch", model=Model(model, loss="squared_error"))
    assert "first infinity of a gradient is made by nnl::sqrt" in str(caught.value)


def test_parameters_are_as_they_were_before_the_step_that_is_not_finite(run):
    def model(x):
        h = zero_affine(x)
        return h + F.sqrt(h * 0)

    made = Model(model, loss="squared_error")
    with pytest.raises(NotFiniteError):
        run("nan_watch", model=made)
    assert all((p.d == 0).all() for p in made.parameters.values())


def test_a_parameter_that_holds_nan_is_named(run):
    def model(x):
        return PF.affine(x, 1, w_init=ConstantInitializer(math.nan))

    with pytest.raises(NotFiniteError, match=r"holds NaN already"):
        run("nan_watch", model=Model(model, loss="squared_error"))


def test_a_step_in_parts_is_watched_as_well(run):
    def model(x):
        return F.log(zero_affine(x) - 1)

    with pytest.raises(NotFiniteError, match=r"nnl::log .* of shapes \(3, 1\)"):
        run("nan_watch", model=Model(model, loss="squared_error"), accumulate=2)


def test_a_run_whose_numbers_are_finite_is_what_it_is_without_the_watch(run):
    assert run("nan_watch").history == run().history


# -------------------------------------------------------------------- learning_rate_finder


@pytest.fixture
def bowl():
    """Data and a model whose loss is the half of a parameter's square, whatever the data is."""

    def half_square(x):
        w = PF.affine(x * 0, 1, w_init=ConstantInitializer(0), b_init=ConstantInitializer(1))
        return {"loss": F.mean(w**2) / 2}

    return ArraySource({"x": np.zeros((40, 1), np.float32)}), Model(half_square)


def find(bowl, tmp_path, **settings):
    data, model = bowl
    tables = {"learning_rate_finder": settings}
    with Session(["learning_rate_finder"], settings=tables, discover=False, environment={}) as s:
        trainer = Trainer(
            model, data, S.Sgd(lr=0.3), epochs=3, batch_size=4, folder=tmp_path, session=s
        )
        return trainer, trainer.run()


def curve(tmp_path):
    with (tmp_path / "learning_rates.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in ("rate", "loss", "smoothed")}


def test_the_rate_rises_by_equal_factors_and_the_losses_are_those_of_gradient_descent(
    bowl, tmp_path
):
    find(bowl, tmp_path, start=1e-3, end=1.0, steps=25)
    found = curve(tmp_path)
    np.testing.assert_allclose(found["rate"], np.geomspace(1e-3, 1.0, 25), rtol=1e-9)
    w = np.cumprod(np.r_[1, 1 - np.geomspace(1e-3, 1.0, 25)])[:-1]  # w <- w - rate w
    np.testing.assert_allclose(found["loss"], w**2 / 2, rtol=1e-4, atol=1e-7)


def test_the_suggestion_is_where_the_loss_falls_fastest(bowl, tmp_path):
    _, result = find(bowl, tmp_path, start=1e-4, end=1.0, steps=60)
    rate = float(result.stopped.split("try ")[1].split(",")[0])
    losses = np.cumprod(np.r_[1, 1 - np.geomspace(1e-4, 1.0, 60)])[:-1] ** 2 / 2
    steepest = np.geomspace(1e-4, 1.0, 60)[np.argmax(losses[:-1] - losses[1:])]
    assert steepest / 2 < rate < steepest * 2


def test_a_sweep_ends_where_the_loss_grows_out_of_hand(bowl, tmp_path):
    find(bowl, tmp_path, start=1.5, end=1e6, steps=100)
    assert len(curve(tmp_path)["rate"]) < 60  # from a rate of 2 on, gradient descent diverges


def test_losses_that_are_the_same_at_all_rates_suggest_nothing(bowl, tmp_path):
    _, result = find(bowl, tmp_path, start=1e-12, end=1e-10, steps=20)
    assert "the loss fell at none of them" in result.stopped


def test_a_loss_that_is_no_number_from_the_beginning_is_no_matter_of_the_rate(bowl, tmp_path):
    data, _ = bowl
    broken = Model(lambda x: {"loss": F.log(F.mean(PF.affine(x, 1)) - 1)})
    with pytest.raises(NotFiniteError, match="before any update"):
        find((data, broken), tmp_path)


def test_a_sweep_that_is_stopped_before_its_first_step_says_so(bowl, tmp_path):
    data, model = bowl
    with Session(["learning_rate_finder"], discover=False, environment={}) as session:
        trainer = Trainer(model, data, S.Sgd(), epochs=1, folder=tmp_path, session=session)
        trainer.request_stop("enough")
        assert "tried learning rates at no step" in trainer.run().stopped


def test_nothing_is_learnt_by_a_sweep(bowl, tmp_path):
    trainer, result = find(bowl, tmp_path, steps=30)
    assert [p.d.tolist() for p in trainer.model.parameters.values()] == [[[0.0]], [1.0]]
    assert trainer.solver.learning_rate() == 0.3
    assert (trainer.epochs, trainer.steps, trainer.state.step, result.history) == (3, None, 0, [])


def test_no_plugin_hears_of_the_steps_of_a_sweep(bowl, tmp_path):
    data, model = bowl
    with Session(["learning_rate_finder"], discover=False, environment={}) as session:
        trainer = Trainer(model, data, S.Sgd(lr=0.3), epochs=3, batch_size=4, session=session)
        with record_hooks(session, "nnl_on_step_end", "nnl_on_metric") as recorder:
            trainer.run()
    assert recorder.calls == []


def test_a_range_that_does_not_rise_is_refused(bowl, tmp_path):
    with pytest.raises(ConfigurationError, match=r"end = 1.0 must be above start = 2.0"):
        find(bowl, tmp_path, start=2.0, end=1.0)


# -------------------------------------------------------------------- tensorboard


def test_without_tensorboard_the_plugin_names_the_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [name for name in sys.modules if name.startswith("tensorboard.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigurationError, match=r"install nnl-core\[tensorboard\]"):
        run("tensorboard")


def test_tensorboard_reads_what_was_reported(run, line, tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    result = run("tensorboard", evaluate={"test": line})
    (path,) = (tmp_path / "tensorboard").iterdir()
    found = {}
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            found[value.tag, event.step] = value.tensor.float_val[0]
    assert [step for name, step in found if name == "loss"] == [1, 2, 3, 4]
    for name, value in result.metrics.items():
        assert found[name, 4] == pytest.approx(value, rel=1e-6)


def test_a_run_that_goes_on_says_where_to_tensorboard(run, line, tmp_path, make_model):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    with Session(["tensorboard"], discover=False, environment={}) as session:
        trainer = Trainer(
            make_model(), line, S.Sgd(lr=0.1), epochs=1, batch_size=5, folder=tmp_path,
            session=session,
        )  # fmt: skip
        trainer.run()
        trainer.epochs = 2
        trainer.run()
    last = sorted((tmp_path / "tensorboard").iterdir())[-1]
    starts = [e.step for e in EventFileLoader(str(last)).Load() if e.HasField("session_log")]
    assert starts == [3]  # two steps were made before
