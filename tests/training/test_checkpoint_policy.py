"""When checkpoints are made, and which of them are kept."""

from __future__ import annotations

import shutil

import pytest

from nnl_core import S
from nnl_core.errors import FileError, TrainingError
from nnl_core.training import CheckpointPolicy, Checkpoints, Trainer
from nnl_core.training.checkpoint_policy import CheckpointWriter


@pytest.fixture
def run(session, line, make_model, tmp_path):
    """Train four epochs of three steps by a policy; return the steps of what is kept."""

    def run(listener=None, evaluated=None, epochs=4, lr=0.1, **policy):
        trainer = Trainer(
            make_model(),
            line,
            S.Sgd(lr),
            epochs=epochs,
            batch_size=4,
            evaluate={"validation": line},
            folder=tmp_path,
            checkpoints=CheckpointPolicy(**policy),
            session=session,
        )
        if evaluated is not None:
            values = iter(evaluated)
            trainer.evaluators[0].run = lambda: {"loss": next(values)}
        if listener is None:
            trainer.run()
        else:
            with session.listen(listener):
                trainer.run()
        return Checkpoints(tmp_path / "checkpoints").steps()

    return run


ALL = 99


@pytest.mark.parametrize(
    ("policy", "steps"),
    [
        ({}, [12]),
        ({"keep": 2}, [9, 12]),
        ({"keep": ALL}, [3, 6, 9, 12]),
        ({"keep": ALL, "every_epochs": 2}, [6, 12]),
        ({"keep": ALL, "every_epochs": None}, [12]),
        ({"keep": ALL, "every_epochs": None, "every_steps": 5}, [5, 10, 12]),
        ({"keep": ALL, "every_steps": 2, "every_epochs": 3}, [2, 4, 6, 8, 9, 10, 12]),
        ({"keep": 3, "every_steps": 1}, [10, 11, 12]),
    ],
)
def test_checkpoints_are_made_every_so_often_and_the_newest_kept(run, policy, steps):
    assert run(**policy) == steps


def test_the_last_epoch_s_metrics_are_in_its_checkpoint(run, tmp_path):
    run()
    history = Checkpoints(tmp_path / "checkpoints").load(12).history
    assert [metrics.keys() for metrics in history] == [{"train/loss", "validation/loss"}] * 4


@pytest.mark.parametrize(
    ("policy", "values", "steps"),
    [
        ({}, [3.0, 1.0, 2.0, 4.0], [6, 12]),
        ({"keep_best": 2}, [3.0, 1.0, 2.0, 4.0], [6, 9, 12]),
        ({"mode": "max"}, [3.0, 1.0, 2.0, 1.5], [3, 12]),
        ({}, [float("nan"), 5.0, float("nan"), 7.0], [6, 12]),
        ({}, [1.0, 1.0, 1.0, 1.0], [3, 12]),
    ],
)
def test_the_best_by_a_metric_of_a_partition_are_kept_with_the_last(run, policy, values, steps):
    assert run(best="validation/loss", evaluated=values, every_epochs=None, **policy) == steps


def test_a_metric_that_is_not_measured_is_refused_before_the_first_step(run, tmp_path):
    with pytest.raises(TrainingError, match="does not measure 'validation/los'; did you mean"):
        run(best="validation/los")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_asked_to_stop_leaves_a_checkpoint(run):
    class Stop:
        def nnl_on_step_end(self, event):
            if event.step == 4:
                event.trainer.request_stop("enough")

    assert run(Stop(), keep=ALL) == [3, 5]


def test_minutes_are_those_of_the_clock(session, line, make_model, tmp_path):
    now = [0.0]
    policy = CheckpointPolicy(every_minutes=1, every_epochs=None, keep=ALL)
    trainer = Trainer(
        make_model(), line, S.Sgd(), epochs=2, batch_size=4, folder=tmp_path, session=session
    )
    writer = CheckpointWriter(policy, trainer, lambda: now[0])

    class Clock:
        def nnl_on_step_end(self, event):
            now[0] += 25

    with session.listen(Clock()), session.listen(writer):
        trainer.run()
    # 75 seconds have passed after three steps; the last one is made in any case.
    assert writer.files.steps() == [3, 6]


def test_one_complete_checkpoint_is_there_whenever_an_old_one_is_deleted(run, monkeypatch):
    counts = []
    real = Checkpoints.remove

    def remove(self, steps):
        steps = list(steps)
        counts.append(len(set(self.steps()) - set(steps)))
        for step in set(self.steps()) - set(steps):
            self.load(step)
        real(self, steps)

    monkeypatch.setattr(Checkpoints, "remove", remove)
    run(every_steps=1)
    assert len(counts) >= 12
    assert min(counts) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every_steps": 0}, "every_steps=0 must be more than 0"),
        ({"keep": 0}, "keep=0 must be more than 0"),
        ({"every_minutes": float("nan")}, "every_minutes=nan must be more than 0"),
        ({"mode": "up"}, "mode='up' is neither 'min' nor 'max'"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(arguments, message):
    with pytest.raises(TrainingError, match=message):
        CheckpointPolicy(**arguments)


def test_checkpoints_need_a_folder(session, line, make_model):
    policy = CheckpointPolicy()
    trainer = Trainer(make_model(), line, S.Sgd(), epochs=1, checkpoints=policy, session=session)
    with pytest.raises(TrainingError, match="give the trainer one"):
        trainer.run()


def test_a_run_does_not_begin_among_the_checkpoints_of_another(run):
    run(epochs=2)
    with pytest.raises(TrainingError, match="checkpoints of another run, the newest of step 6"):
        run(epochs=1)


def test_a_run_that_goes_on_from_an_older_checkpoint_deletes_those_after_it(
    session, line, make_model, tmp_path
):
    def begin(folder):
        policy = CheckpointPolicy(keep=2)
        keywords = {"epochs": 2, "batch_size": 4, "folder": folder, "checkpoints": policy}
        return Trainer(make_model(), line, S.Sgd(), session=session, **keywords)

    begin(tmp_path).run()
    files = Checkpoints(tmp_path / "checkpoints")
    damaged = files.place(6) / "state.json"
    damaged.write_bytes(b"{}")
    again = begin(tmp_path)
    again.restore(files.newest(lambda message: None))
    again.run()
    assert files.steps() == [3, 6]
    assert files.load(6).state.step == 6


def test_a_run_whose_folder_is_deleted_ends_rather_than_go_on_without_its_records(
    session, line, make_model, tmp_path
):
    folder = tmp_path / "runs" / "one"
    trainer = Trainer(
        make_model(), line, S.Sgd(), epochs=2, folder=folder, checkpoints=CheckpointPolicy(),
        session=session,
    )  # fmt: skip

    class Deleting:
        def nnl_on_epoch_end(self, event):
            shutil.rmtree(folder)

    with session.listen(Deleting()), pytest.raises(FileError, match="cannot be written: No such"):
        trainer.run()
    assert not folder.exists()
