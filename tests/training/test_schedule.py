"""The learning rate over a run."""

from __future__ import annotations

import pytest

from nnl_core import S
from nnl_core.errors import ConfigurationError
from nnl_core.schedules import CosineScheduler, StepScheduler
from nnl_core.settings import ProjectSettings
from nnl_core.training import Trainer
from nnl_core.training.project import Workbench


class Rates:
    """Notes the learning rate of each step."""

    def __init__(self):
        self.seen = []

    def nnl_on_step_end(self, event):
        self.seen.append(event.trainer.solver.learning_rate())


def test_each_step_has_the_rate_of_its_number(session, line, make_model):
    rates = Rates()
    schedule = StepScheduler(0.5, 0.1, [2, 3])
    trainer = Trainer(
        make_model(), line, S.Sgd(0.9), epochs=2, batch_size=5, schedule=schedule, session=session
    )
    with session.listen(rates):
        trainer.run()
    assert rates.seen == pytest.approx([0.5, 0.5, 0.05, 0.005])


def project(**schedule):
    return ProjectSettings.model_validate(
        {
            "model": {"function": "m:f"},
            "solver": {"name": "Sgd", "lr": 0.5, "schedule": schedule},
        }
    )


def schedule_of(session, tmp_path, **schedule):
    return Workbench(project(**schedule), tmp_path, session).schedule(0.5, 40)


def test_a_project_s_schedule_spans_the_run(session, tmp_path):
    made = schedule_of(session, tmp_path, name="cosine")
    expected = CosineScheduler(0.5, 40)
    for step in (0, 13, 39):
        assert made.get_learning_rate(step) == expected.get_learning_rate(step)


def test_warm_up_steps_are_taken_from_the_run(session, tmp_path):
    made = schedule_of(session, tmp_path, name="cosine", warmup=10)
    assert made.get_learning_rate(4) == pytest.approx(0.25)
    assert made.get_learning_rate(10) == pytest.approx(0.5)
    assert made.get_learning_rate(40) == pytest.approx(0, abs=1e-12)


def test_arguments_are_the_schedule_s(session, tmp_path):
    made = schedule_of(session, tmp_path, name="step", gamma=0.1, iter_steps=[5])
    assert made.get_learning_rate(5) == pytest.approx(0.05)


def test_a_wrong_argument_is_named(session, tmp_path):
    with pytest.raises(ConfigurationError, match=r"solver\.schedule\.gama.*gamma"):
        schedule_of(session, tmp_path, name="step", gama=0.1, iter_steps=[5])
    with pytest.raises(ConfigurationError, match="iter_steps"):
        schedule_of(session, tmp_path, name="step", gamma=0.1)


def test_no_schedule_leaves_the_rate_alone(session, tmp_path):
    settings = ProjectSettings.model_validate({"model": {"function": "m:f"}})
    assert Workbench(settings, tmp_path, session).schedule(0.5, 40) is None
