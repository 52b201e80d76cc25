from __future__ import annotations

import numpy as np
import pytest

from nnl_core import F
from nnl_core.data import ArraySource
from nnl_core.errors import DataError
from nnl_core.hooks import GraphCompiled, Plugin
from nnl_core.session import Session
from nnl_core.training import Evaluator, Metric, Model, Predictor


def double(x):
    return F.mul_scalar(x, 2.0)


DATA = ArraySource(
    {"x": np.arange(7, dtype=np.float32)[:, None], "y": np.zeros((7, 1), np.float32)}, "seven"
)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 100])
def test_metrics_are_means_over_samples_for_any_batch_size(session, batch_size):
    model = Model(double, loss="squared_error", metrics=["absolute_error"], session=session)
    metrics = Evaluator(model, DATA, batch_size=batch_size, session=session).run()
    # Twice 0 to 6, squared: 4 * 91.
    assert metrics == pytest.approx({"loss": 4 * 91 / 7, "absolute_error": 6.0})


def test_no_more_programs_are_compiled_than_there_are_batch_sizes(session):
    compiled = []

    class Listener:
        def nnl_on_graph_compiled(self, event: GraphCompiled) -> None:
            compiled.append(event)

    evaluator = Evaluator(Model(double, loss="huber_loss"), DATA, batch_size=3, session=session)
    with session.listen(Listener()):
        evaluator.run()
        evaluator.run()
    assert len(compiled) <= 2


def test_a_model_without_anything_to_measure_is_an_error(session):
    with pytest.raises(DataError, match="seven: there is nothing to measure"):
        Evaluator(Model(double, session=session), DATA, session=session).run()


class Largest(Metric):
    """The largest output of all samples: no mean."""

    def measure(self, output, target):
        return F.max(output)

    def reset(self):
        self.state = np.array(-np.inf)

    def add(self, measured, count):
        self.state = np.maximum(self.state, measured)

    def value(self):
        return float(self.state)


def test_a_metric_may_be_more_than_a_mean(session):
    model = Model(double, metrics={"largest": Largest}, session=session)
    assert Evaluator(model, DATA, batch_size=2, session=session).run() == {"largest": 12.0}


@pytest.mark.parametrize("cut", [1, 4, 6])
def test_evaluations_of_two_processes_can_be_merged(session, cut):
    metrics = ["absolute_error", "snr"]
    model = Model(double, loss="squared_error", metrics=metrics, session=session)
    arrays = DATA.arrays | {"y": 3 * DATA.arrays["x"] + 1}
    parts = [
        Evaluator(model, ArraySource({k: v[rows] for k, v in arrays.items()}), session=session)
        for rows in (slice(None), slice(cut), slice(cut, None))
    ]
    whole, first, second = (part.measure() for part in parts)
    for name, metric in first.items():
        metric.merge(second[name])
        assert metric.value() == pytest.approx(whole[name].value())


class Fixed(Plugin):
    name = "fixed"

    def nnl_run_evaluation(self, evaluator):
        return {"loss": 42.0}


def test_a_plugin_can_evaluate_instead():
    with Session([Fixed], discover=False, environment={}) as session:
        assert Evaluator(Model(double), DATA, session=session).run() == {"loss": 42.0}


def test_predictions_have_one_row_for_each_sample(session):
    found = Predictor(Model(double, session=session), batch_size=3).run(DATA)
    assert found["output"].tolist() == [[2.0 * number] for number in range(7)]


def test_predictions_are_all_outputs_but_the_loss_or_those_asked_for(session):
    model = Model(lambda x: {"a": x, "b": double(x), "loss": F.mean(x)}, session=session)
    assert Predictor(model).run(DATA).keys() == {"a", "b"}
    assert Predictor(model, outputs=["b"]).run(DATA).keys() == {"b"}


@pytest.mark.parametrize(("name", "message"), [("c", "no output 'c'; it has"), ("loss", "one row")])
def test_what_cannot_be_predicted_is_refused(session, name, message):
    model = Model(lambda x: {"a": x, "loss": F.mean(x)}, session=session)
    with pytest.raises(DataError, match=message):
        Predictor(model, outputs=[name]).run(DATA)
