"""What metrics a model is given, and what a run and an evaluation make of them."""

from __future__ import annotations

import functools
import sys
import types

import numpy as np
import pytest

from nnl_core import PF, F, S
from nnl_core.data import ArraySource
from nnl_core.errors import ModelError, TrainingError
from nnl_core.graph.spec import Spec
from nnl_core.hooks import MetricSpec, Plugin
from nnl_core.initializers import ConstantInitializer
from nnl_core.session import Session
from nnl_core.training import Evaluator, Metric, Model, Trainer
from nnl_core.training.metrics import (
    F1,
    Accuracy,
    ConfusionMatrix,
    TopNAccuracy,
    absolute_error,
    choices,
)


def same(x):
    return x


SCORES = np.array([[3, 2, 1], [1, 2, 3], [2, 3, 1], [1, 3, 2]], np.float32)
DATA = ArraySource({"x": SCORES, "y": np.array([0, 0, 1, 2])}, "four")


def evaluated(session, metrics, data=DATA):
    evaluator = Evaluator(Model(same, metrics=metrics, session=session), data, session=session)
    return evaluator.run(), evaluator.tables


def within(output, target, tolerance=1.0):
    distance = F.abs(output - F.reshape(target, output.shape))
    return F.cast(F.less_equal_scalar(distance, tolerance), np.float32)


class Largest(Metric):
    def measure(self, output, target):
        return F.max(output)

    def reset(self):
        self.state = np.array(-np.inf)

    def add(self, measured, count):
        self.state = np.maximum(self.state, measured)

    def merge(self, other):
        self.state = np.maximum(self.state, other.state)

    def value(self):
        return float(self.state)


# -------------------------------------------------------------------- choosing


def test_a_table_has_a_name_and_arguments(session):
    numbers, _ = evaluated(session, ["accuracy", {"name": "top_n_accuracy", "n": 2}])
    assert numbers == {"accuracy": 0.5, "top_n_accuracy": 0.75}


def test_a_table_says_what_to_report_a_metric_as(session):
    tables = [{"name": "top_n_accuracy", "n": n, "as": f"top_{n}"} for n in (1, 2, 3)]
    assert evaluated(session, tables)[0] == {"top_1": 0.5, "top_2": 0.75, "top_3": 1.0}


@pytest.mark.parametrize(
    "metric",
    [
        TopNAccuracy(2),
        {"name": TopNAccuracy, "n": 2},
        {"name": "nnl_core.training.metrics:TopNAccuracy", "n": 2},
        {"name": TopNAccuracy(2)},
    ],
    ids=["object", "class in a table", "import string", "object in a table"],
)
def test_from_python_a_metric_may_also_be_an_object(session, metric):
    metrics = [{**metric, "as": "m"}] if isinstance(metric, dict) else {"m": metric}
    assert evaluated(session, metrics)[0] == {"m": 0.75}


def test_an_object_that_was_chosen_is_never_filled(session):
    metric = ConfusionMatrix()
    evaluated(session, {"first": metric})
    assert metric.value().size == 0


def test_functions_take_arguments_too(session):
    data = ArraySource({"x": [[1.0], [2.0], [5.0]], "y": [[1.0], [4.0], [4.0]]})
    metrics = {"near": within, "nearer": functools.partial(within, tolerance=0.5)}
    assert evaluated(session, metrics, data)[0] == pytest.approx({"near": 2 / 3, "nearer": 1 / 3})
    table = {"name": within, "tolerance": 0.5}
    assert evaluated(session, [table], data)[0] == pytest.approx({"within": 1 / 3})


class Measures(Plugin):
    name = "measures"

    def nnl_metrics(self):
        yield MetricSpec("near", "measures_of_a_plugin:within", "how many are near")


def test_the_metrics_of_a_plugin_are_named_like_those_of_the_core(monkeypatch):
    module = types.ModuleType("measures_of_a_plugin")
    module.within = within
    monkeypatch.setitem(sys.modules, module.__name__, module)
    data = ArraySource({"x": [[1.0], [2.0]], "y": [[1.0], [4.0]]})
    with Session([Measures], discover=False, environment={}) as session:
        assert evaluated(session, ["near"], data)[0] == {"near": 0.5}


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([{"name": "top_n_accuracy", "m": 3}], "'top_n_accuracy' takes no 'm'; it takes n"),
        ([{"name": "accuracy", "n": 3}], "'accuracy' takes no 'n'; it takes nothing"),
        ([{"name": "top_5_accuracy", "n": 3}], "'top_5_accuracy' takes no 'n'"),
        ([{"name": within, "tolerence": 3}], "takes no 'tolerence'; did you mean 'tolerance'"),
        ([{"name": within, "output": 3}], "takes no 'output'; it takes tolerance"),
        ([{"name": "top_n_accuracy", "n": "three"}], "metric 'top_n_accuracy': "),
        ([{"name": "f1", "average": "mean"}], "metric 'f1': average = 'mean': choose one of macro"),
        ({"mine": 3}, "metric 'mine' is 3; choose a function or a Metric"),
        ({"mine": lambda output, target: 3}, "metric 'mine': it compares, and returns 3; return a"),
        (["psnr"], r"metric 'psnr': the output has shape \(2, 3\), its target \(2,\)"),
        (["ssim"], r"metric 'ssim': output has shape \(2, 3\); images are"),
    ],
)
def test_a_choice_that_does_not_work_is_named_when_the_model_is_built(session, metrics, message):
    fields = {"x": Spec((3,)), "y": Spec((), np.dtype(np.int32))}
    with pytest.raises(ModelError, match=message):
        Model(same, metrics=metrics, session=session).build(fields, 2, training=True)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["accuracy", "accuracy"], "two metrics are reported as 'accuracy'; name one with as"),
        ([{"n": 3}], r"metric {'n': 3}: it has no name"),
    ],
)
def test_metrics_have_names_of_their_own(metrics, message):
    with pytest.raises(ModelError, match=message):
        choices(metrics)


def test_directions_come_from_the_project_the_record_or_the_class(session):
    metrics = [
        "accuracy",
        "squared_error",
        {"name": "accuracy", "as": "turned", "higher_is_better": False},
        {"name": "size", "higher_is_better": False},
    ]

    def function(x):
        return {"output": x, "loss": x, "size": x}

    model = Model(function, metrics=metrics, session=session)
    data = {"x": Spec((1,)), "y": Spec((1,))}
    found = model.new_metrics(model.build(data, 2, training=True))
    assert {name: metric.higher_is_better for name, metric in found.items()} == {
        "loss": False,
        "accuracy": True,
        "squared_error": False,
        "turned": False,
        "size": False,
    }


class Stateless(Metric):
    def reset(self):
        self.largest = 0.0


def test_a_metric_keeps_what_it_knows_in_its_state(session):
    with pytest.raises(ModelError, match="metric 'mine': Stateless has no state; reset must set"):
        evaluated(session, {"mine": Stateless})


# -------------------------------------------------------------------- evaluating


def test_tables_stand_beside_the_numbers(session):
    metrics = ["accuracy", "confusion_matrix", {"name": "recall", "average": "each"}]
    numbers, tables = evaluated(session, metrics)
    assert numbers == {"accuracy": 0.5}
    assert tables["confusion_matrix"].tolist() == [[1, 0, 1], [0, 1, 0], [0, 1, 0]]
    assert tables["recall"].tolist() == [0.5, 1.0, 0.0]


def test_labels_that_the_loss_ignores_do_not_count(session):
    data = ArraySource({"x": SCORES, "y": np.array([0, -1, -1, 2])})
    metrics = ["accuracy", "top_5_accuracy", "confusion_matrix", "f1", "perplexity", "roc_auc"]
    found = evaluated(session, metrics, data)
    kept = ArraySource({"x": SCORES[[0, 3]], "y": np.array([0, 2])})
    expected = evaluated(session, metrics, kept)
    assert found[0] == pytest.approx(expected[0], rel=1e-6)
    np.testing.assert_array_equal(found[1]["confusion_matrix"], expected[1]["confusion_matrix"])


# -------------------------------------------------------------------- training


KINDS = ("accuracy", "loss")


def classifier(x):
    return PF.affine(x, 3, w_init=ConstantInitializer(0))


def trainer_of(session, metrics=("accuracy", "confusion_matrix"), **options):
    model = Model(classifier, loss="softmax_cross_entropy", metrics=metrics, session=session)
    options = {"epochs": 4, "batch_size": 2, "evaluate": {"test": DATA, "train2": DATA}, **options}
    return Trainer(model, DATA, S.Sgd(lr=0.1), session=session, **options)


def test_all_data_sets_are_evaluated_after_each_epoch(session):
    result = trainer_of(session).run()
    names = {f"{part}/{name}" for part in ("test", "train", "train2") for name in KINDS}
    assert [set(metrics) for metrics in result.history] == 4 * [names]
    assert result.tables.keys() == {
        "train/confusion_matrix",
        "test/confusion_matrix",
        "train2/confusion_matrix",
    }
    assert result.tables["test/confusion_matrix"].sum() == 4


def test_the_tracker_knows_the_best_of_each(session):
    trainer = trainer_of(session)
    result = trainer.run()
    losses = [metrics["test/loss"] for metrics in result.history]
    best = trainer.tracker.best("test/loss")
    assert (best.value, best.epoch) == (min(losses), losses.index(min(losses)) + 1)
    assert best.step == 2 * best.epoch
    assert result.best == trainer.tracker.summary()


def test_a_run_that_goes_on_knows_the_same_as_one_that_did_not_stop(session):
    class Stopper:
        def nnl_on_step_end(self, event):
            if event.step == 4:
                event.trainer.request_stop("enough")

    options = {"batch_size": 1, "evaluate_every_steps": 3}
    whole, stopped, going_on = (trainer_of(session, **options) for _ in range(3))
    whole.run()
    with session.listen(Stopper()):
        assert stopped.run().steps == 5
    going_on.restore(stopped.checkpoint())
    going_on.run()
    names = whole.tracker.names
    assert going_on.tracker.names == names
    assert [going_on.tracker.points(n) for n in names] == [whole.tracker.points(n) for n in names]


def test_directions_can_be_given_to_the_trainer(session):
    trainer = trainer_of(session, higher_is_better={"test/loss": True})
    result = trainer.run()
    assert result.best["test/loss"].value == max(m["test/loss"] for m in result.history)


def test_an_evaluation_every_few_epochs_includes_the_last(session):
    result = trainer_of(session, epochs=5, evaluate_every=2).run()
    assert ["test/loss" in metrics for metrics in result.history] == [0, 1, 0, 1, 1]


def test_an_evaluation_every_few_steps_is_tracked_and_reported(session):
    reported = []

    class Listener:
        def nnl_on_metric(self, event):
            if event.name == "test/loss":
                reported.append(event.step)

    trainer = trainer_of(session, epochs=2, batch_size=1, evaluate_every_steps=3)
    with session.listen(Listener()):
        trainer.run()
    steps = [point.step for point in trainer.tracker.points("test/loss")]
    assert steps == reported == [3, 4, 6, 8]  # epochs end after steps 4 and 8
    assert len(trainer.history) == 2


def test_evaluating_between_steps_changes_no_training(session):
    plain = trainer_of(session, evaluate={}).run()
    between = trainer_of(session, evaluate_every_steps=1).run()
    for one, other in zip(plain.history, between.history, strict=True):
        assert one["train/loss"] == other["train/loss"]


@pytest.mark.parametrize("option", ["evaluate_every", "evaluate_every_steps"])
def test_never_is_no_interval(session, option):
    with pytest.raises(TrainingError, match="evaluating every 0 epochs or steps: say 1 or more"):
        trainer_of(session, **{option: 0})


def test_a_schedule_may_watch_what_is_not_measured_after_each_epoch(session):
    from nnl_core.schedules import PlateauScheduler

    schedule = PlateauScheduler(0.1, metric="test/loss")
    trainer_of(session, schedule=schedule, evaluate_every=2).run()
    schedule = PlateauScheduler(0.1, metric="tset/loss")
    with pytest.raises(TrainingError, match="the schedule watches the metric 'tset/loss'"):
        trainer_of(session, schedule=schedule, evaluate_every=2).run()


def test_while_an_epoch_runs_no_metric_is_computed_that_takes_time(session):
    seen = []

    class Listener:
        def nnl_on_step_end(self, event):
            seen.append(set(event.trainer.running_metrics()))

    rows = 6000
    data = ArraySource({"x": np.tile(SCORES, (rows, 1)), "y": np.tile([0, 0, 1, 2], rows)})
    model = Model(
        classifier, loss="softmax_cross_entropy", metrics=["roc_auc", "f1"], session=session
    )
    trainer = Trainer(model, data, S.Sgd(lr=0.1), epochs=1, batch_size=rows, session=session)
    with session.listen(Listener()):
        metrics = trainer.run().metrics
    assert seen[-1] == {"loss", "f1"}
    assert 0 <= metrics["train/roc_auc"] <= 1


def test_a_metric_of_one_s_own_is_part_of_a_run(session):
    trainer = trainer_of(session, {"largest": Largest, "f1": F1(), "accuracy": Accuracy})
    assert trainer.run().metrics.keys() >= {"train/largest", "test/f1", "train2/accuracy"}


PARTS = [pytest.param(1, id="whole"), pytest.param(2, id="in parts")]


@pytest.mark.parametrize("accumulate", PARTS)
def test_samples_that_pad_a_batch_are_left_out_of_loss_gradients_and_metrics(session, accumulate):
    data = ArraySource({"x": np.tile(SCORES, (2, 1))[:7], "y": [0, 0, 1, 2, 1, 2, 0]})
    metrics = ["accuracy", "f1", "perplexity", "roc_auc", {"name": "recall", "average": "each"}]
    results = {}
    for last_batch in ("keep", "pad"):
        model = Model(classifier, loss="softmax_cross_entropy", metrics=metrics, session=session)
        trainer = Trainer(
            model,
            data,
            S.Sgd(lr=0.5),
            epochs=3,
            batch_size=4,
            last_batch=last_batch,
            accumulate=accumulate,
            session=session,
        )
        results[last_batch] = trainer.run(), trainer.state.samples, model.parameters
    (kept, samples, weights), (padded, all_samples, others) = results["keep"], results["pad"]
    assert samples == all_samples == 21
    for one, other in zip(kept.history, padded.history, strict=True):
        assert one == pytest.approx(other, rel=1e-5)
    np.testing.assert_allclose(kept.tables["train/recall"], padded.tables["train/recall"])
    for name, weight in weights.items():
        np.testing.assert_allclose(weight.d, others[name].d, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("loss", "metrics", "message"),
    [
        (
            lambda output, target: F.mean(output),
            {},
            r"a padded batch needs one value for each of its 3 samples.*not values of shape \(\)",
        ),
        (
            "softmax_cross_entropy",
            {"largest": Largest},
            "metric 'largest': its measure takes no counts, and cannot leave out .*; keep or drop",
        ),
    ],
    ids=["loss", "metric"],
)
def test_what_cannot_leave_out_padding_is_refused(session, loss, metrics, message):
    model = Model(classifier, loss=loss, metrics=metrics, session=session)
    with pytest.raises(ModelError, match=message):
        Trainer(model, DATA, S.Sgd(), epochs=1, batch_size=3, last_batch="pad", session=session)


def test_a_mean_of_parts_of_batches_is_that_of_the_samples(session):
    def distance(output, target):
        return absolute_error(output, F.one_hot(F.reshape(target, (-1, 1)), (3,)))

    metrics = {"distance": distance}
    whole = trainer_of(session, metrics, batch_size=4).run().history[0]
    parts = trainer_of(session, metrics, batch_size=4, accumulate=3).run().history[0]
    assert parts["train/distance"] == pytest.approx(whole["train/distance"])
