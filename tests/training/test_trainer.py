from __future__ import annotations

import numpy as np
import pytest

from nnl_core import PF, F, S
from nnl_core.data import ArraySource
from nnl_core.errors import DataError, ModelError, TrainingError
from nnl_core.graph.program import clear_cache
from nnl_core.hooks import Plugin, hookimpl
from nnl_core.session import Session
from nnl_core.training import Model, Trainer


def numpy_descent(trainer, source, rate, epochs):
    """Gradient descent on the mean square error, in the trainer's order of samples."""
    x, y = (source.arrays[key].astype(np.float64)[:, 0] for key in "xy")
    w = b = 0.0
    losses = []
    for epoch in range(epochs):
        order = trainer.iterator.order(epoch)
        sums = 0.0
        for start in range(0, len(order), trainer.iterator.batch_size):
            ids = order[start : start + trainer.iterator.batch_size]
            error = w * x[ids] + b - y[ids]
            sums += float(np.sum(error**2))
            w, b = w - rate * 2 * np.mean(error * x[ids]), b - rate * 2 * np.mean(error)
        losses.append(sums / len(order))
    return w, b, losses


def weights(model):
    return {name: float(parameter.d.reshape(())) for name, parameter in model.parameters.items()}


@pytest.mark.parametrize("batch_size", [10, 5, 4, 64])
def test_training_does_what_gradient_descent_does(session, line, make_model, batch_size):
    model = make_model()
    trainer = Trainer(model, line, S.Sgd(lr=0.1), epochs=3, batch_size=batch_size, session=session)
    result = trainer.run()
    w, b, losses = numpy_descent(trainer, line, 0.1, 3)
    assert list(weights(model).values()) == pytest.approx([w, b], rel=1e-5)
    assert [metrics["train/loss"] for metrics in result.history] == pytest.approx(losses, rel=1e-5)
    assert (result.epochs, result.steps) == (3, 3 * trainer.steps_per_epoch)
    assert result.stopped is None


def test_a_short_last_batch_that_is_dropped_is_not_trained_on(session, line, make_model):
    keywords = {"epochs": 1, "batch_size": 4, "last_batch": "drop", "session": session}
    trainer = Trainer(make_model(), line, S.Sgd(), **keywords)
    assert trainer.run().steps == 2
    assert trainer.state.samples == 8


def random_weights(x, training):
    h = PF.affine(x, 5, name="in")
    return PF.affine(F.dropout(h, 0.5) if training else h, 1, name="out")


def trained(session, line, make_model, seed):
    model = make_model(random_weights)
    Trainer(model, line, S.Adam(), epochs=2, batch_size=4, seed=seed, session=session).run()
    return np.concatenate([parameter.d.ravel() for parameter in model.parameters.values()])


def test_a_seed_fixes_every_bit(session, line, make_model):
    first, second = (trained(session, line, make_model, 3) for _ in range(2))
    assert first.tobytes() == second.tobytes()
    assert first.tobytes() != trained(session, line, make_model, 4).tobytes()


def test_data_sets_are_evaluated_after_each_epoch(session, line, make_model):
    far = ArraySource({"x": [[0.0], [0.0]], "y": [[100.0], [300.0]]}, "far")
    trainer = Trainer(
        make_model(), line, S.Sgd(lr=0.0), epochs=2, evaluate={"test": far}, session=session
    )
    # The model says 0 for ever: (100**2 + 300**2) / 2.
    assert [metrics["test/loss"] for metrics in trainer.run().history] == [50_000.0, 50_000.0]


# -------------------------------------------------------------------- events


def recorder(*names):
    """An object with event hooks that note their names."""
    heard = []

    def hook(name):
        def method(self, event):
            heard.append(name)

        return method

    kind = type("Listener", (), {f"nnl_on_{name}": hook(name) for name in names})
    return kind(), heard


def test_events_come_in_the_order_of_the_work(session, line, make_model):
    listener, heard = recorder(
        "train_start",
        "epoch_start",
        "step_start",
        "gradients_ready",
        "update_start",
        "update_end",
        "metric",
        "step_end",
        "evaluation_start",
        "evaluation_end",
        "epoch_end",
        "train_end",
    )
    trainer = Trainer(
        make_model(), line, S.Sgd(), epochs=1, evaluate={"test": line}, session=session
    )
    with session.listen(listener):
        trainer.run()
    step = ["step_start", "gradients_ready", "update_start", "update_end", "metric", "step_end"]
    evaluation = ["evaluation_start", "evaluation_end"]
    epoch = ["epoch_start", *step, *evaluation, "metric", "metric", "epoch_end"]
    assert heard == ["train_start", *epoch, "train_end"]


def at(**functions):
    """An object that calls functions at events, by name."""
    methods = {
        f"nnl_on_{name}": lambda self, event, function=function: function(event)
        for name, function in functions.items()
    }
    return type("Listener", (), methods)()


@pytest.mark.parametrize("name", ["gradients_ready", "update_start"])
def test_gradients_may_be_changed_before_they_are_applied(session, line, make_model, name):
    model = make_model()
    trainer = Trainer(model, line, S.Sgd(lr=0.1), epochs=1, session=session)

    def clear(event):
        for gradient in event.gradients.by_name.values():
            gradient[...] = 0

    with session.listen(at(**{name: clear})):
        trainer.run()
    assert set(weights(model).values()) == {0.0}


def test_gradients_lie_in_the_buffers_to_reduce(session, line, make_model):
    model = make_model()
    trainer = Trainer(model, line, S.Sgd(lr=0.1), epochs=1, session=session)

    def clear(event):
        for buffer in event.gradients.buffers:
            buffer[...] = 0

    with session.listen(at(update_start=clear)):
        trainer.run()
    assert set(weights(model).values()) == {0.0}


def test_listening_between_gradients_and_update_changes_no_bit(session, line, make_model):
    def run(listener):
        model = make_model(random_weights)
        keywords = {"epochs": 2, "batch_size": 4, "weight_decay": 0.1, "clip_grad_norm": 0.5}
        trainer = Trainer(model, line, S.Adam(), session=session, **keywords)
        with session.listen(listener):
            trainer.run()
        return [parameter.d.tobytes() for parameter in model.parameters.values()]

    whole, split = (recorder(name)[0] for name in ("step_end", "update_start"))
    assert run(whole) == run(split)


@pytest.mark.parametrize(("event", "programs"), [("step_end", 1), ("update_start", 2)])
def test_a_step_is_one_program_unless_a_plugin_comes_between(
    session, line, make_model, event, programs
):
    compiled = []
    trainer = Trainer(make_model(), line, S.Sgd(), epochs=2, batch_size=5, session=session)
    listener = at(graph_compiled=compiled.append)
    clear_cache()
    with session.listen(listener), session.listen(recorder(event)[0]):
        trainer.run()
    assert len(compiled) == programs


def test_gradients_are_known_by_parameter_and_come_with_their_samples(session, line, make_model):
    model = make_model()
    trainer = Trainer(model, line, S.Sgd(lr=0.1), epochs=1, batch_size=4, session=session)
    seen = []

    def note(event):
        gradients = {name: float(g.sum()) for name, g in event.gradients.by_name.items()}
        seen.append((list(event.sample_ids), gradients))

    with session.listen(at(gradients_ready=note)):
        trainer.run()
    ids, gradients = seen[0]
    assert ids == trainer.iterator.order(0)[:4].tolist()
    x, y = (line.arrays[key][ids].astype(np.float64) for key in "xy")
    # The first prediction is 0: the error is -y.
    expected = {"fit/affine/W": np.mean(-2 * y * x), "fit/affine/b": np.mean(-2 * y)}
    assert gradients == pytest.approx(expected, rel=1e-5)


class Doubling(Plugin):
    name = "doubling"

    def nnl_reduce_gradients(self, gradients):
        for buffer in gradients.buffers:
            buffer *= 2
        return True


def test_a_plugin_that_reduces_gradients_is_asked_before_the_update(line, make_model):
    model = make_model()
    with Session([Doubling], discover=False, environment={}) as session:
        trainer = Trainer(model, line, S.Sgd(lr=0.1), epochs=2, session=session)
        trainer.run()
    w, b, _ = numpy_descent(trainer, line, 0.2, 2)
    assert list(weights(model).values()) == pytest.approx([w, b], rel=1e-5)


class Wrapping(Plugin):
    name = "wrapping"

    @hookimpl(wrapper=True)
    def nnl_run_training(self, trainer):
        trainer.epochs = 1
        result = yield
        return result._replace(stopped="wrapped")


def test_a_plugin_can_wrap_the_whole_run(line, make_model):
    with Session([Wrapping], discover=False, environment={}) as session:
        result = Trainer(make_model(), line, S.Sgd(), epochs=5, session=session).run()
    assert (result.epochs, result.stopped) == (1, "wrapped")


def test_a_plugin_can_report_numbers_of_its_own(session, line, make_model):
    trainer = Trainer(make_model(), line, S.Sgd(), epochs=1, batch_size=5, session=session)
    heard = []

    class Listener:
        def nnl_on_step_end(self, event):
            trainer.report("norm", 2.5)

        def nnl_on_metric(self, event):
            if event.name == "norm":
                heard.append((event.value, event.step))

    with session.listen(Listener()):
        trainer.run()
    assert heard == [(2.5, 1), (2.5, 2)]


def test_a_batch_may_be_changed_before_its_step(session, line, make_model):
    model = make_model()
    trainer = Trainer(model, line, S.Sgd(lr=0.1), epochs=1, session=session)

    def shift(event):
        event.batch["y"][...] = 0

    with session.listen(at(step_start=shift)):
        assert trainer.run().metrics == {"train/loss": 0.0}
    assert line.arrays["y"].any()


# -------------------------------------------------------------------- ending early


@pytest.mark.parametrize(("event", "steps"), [("step_end", 1), ("epoch_end", 3)])
def test_a_run_stops_after_the_step_in_which_it_is_asked_to(
    session, line, make_model, event, steps
):
    trainer = Trainer(make_model(), line, S.Sgd(), epochs=5, batch_size=4, session=session)
    with session.listen(at(**{event: lambda e: e.trainer.request_stop("enough")})):
        result = trainer.run()
    assert (result.steps, result.stopped) == (steps, "enough")


def test_a_run_goes_on_from_where_it_stopped(session, line, make_model):
    def run(stops):
        model = make_model()
        trainer = Trainer(model, line, S.Adam(), epochs=2, batch_size=4, session=session)
        if stops:
            with session.listen(at(step_end=lambda e: trainer.request_stop("pause"))):
                trainer.run()
        result = trainer.run()
        assert (result.epochs, result.steps) == (2, 6)
        return weights(model)

    assert run(stops=True) == run(stops=False)


def test_a_run_that_stopped_after_its_last_step_is_measured_and_makes_no_other(
    session, line, make_model
):
    def begin():
        keywords = {"epochs": 2, "steps": 2, "batch_size": 4, "evaluate": {"test": line}}
        return Trainer(make_model(), line, S.Sgd(), session=session, **keywords)

    made = []

    class StopAtLast:
        def nnl_on_step_end(self, event):
            if event.trainer.state.step == 2:
                event.trainer.request_stop("pause")

        def nnl_on_safe_point(self, event):
            made.append(event.trainer.checkpoint())

    with session.listen(StopAtLast()):
        assert "test/loss" not in begin().run().metrics
    trainer = begin()
    trainer.restore(made[-1])
    assert trainer.run().steps == 2
    whole = begin()
    assert trainer.history == whole.run().history
    assert bits(trainer) == bits(whole)


def test_an_exception_of_a_listener_ends_the_run_and_is_announced(session, line, make_model):
    trainer = Trainer(make_model(), line, S.Sgd(), epochs=5, session=session)
    listener, heard = recorder("exception", "train_end")

    def fail(event):
        raise ValueError("no")

    with session.listen(listener), session.listen(at(step_end=fail)):
        with pytest.raises(ValueError, match="no") as caught:
            trainer.run()
    assert caught.value.__notes__ == ["in listener Listener, hook nnl_on_step_end"]
    assert heard == ["exception"]


def test_an_exception_survives_a_listener_that_fails_because_of_it(session, line, make_model):
    trainer = Trainer(make_model(), line, S.Sgd(), epochs=1, session=session)

    def fail(event):
        raise KeyError("first")

    def fail_again(event):
        raise OSError("second")

    with session.listen(at(step_end=fail, exception=fail_again)):
        with pytest.raises(KeyError, match="first") as caught:
            trainer.run()
    assert any("second" in note for note in caught.value.__notes__)


def test_a_loss_that_is_not_finite_is_an_error_that_says_when(session, line, make_model):
    trainer = Trainer(make_model(), line, S.Sgd(lr=1e30), epochs=3, session=session)
    with pytest.raises(TrainingError, match=r"the loss is (inf|nan) at step 1 \(epoch 2\)"):
        trainer.run()


def test_a_first_loss_that_is_not_finite_is_not_blamed_on_the_learning_rate(session, line):
    model = Model(lambda x: F.log(PF.affine(x, 1) * 0 - 1), loss="squared_error", session=session)
    trainer = Trainer(model, line, S.Sgd(), epochs=1, session=session)
    with pytest.raises(TrainingError, match="before any update; look for a logarithm"):
        trainer.run()


def test_data_that_is_not_finite_is_named(session, make_model):
    data = ArraySource({"x": [[np.nan]], "y": [[1.0]]})
    trainer = Trainer(make_model(), data, S.Sgd(), epochs=1, session=session)
    with pytest.raises(TrainingError, match="field 'x' of the batch is not finite"):
        trainer.run()


# -------------------------------------------------------------------- checkpoints


def random_and_uneven(session, line, make_model):
    """Make a trainer whose steps draw random numbers, with a short last batch."""
    keywords = {"epochs": 4, "batch_size": 4, "seed": 1, "evaluate": {"test": line}}
    return Trainer(make_model(random_weights), line, S.Adam(), session=session, **keywords)


def bits(trainer):
    return [parameter.d.tobytes() for parameter in trainer.model.parameters.values()]


def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(session, line, make_model):
    whole = random_and_uneven(session, line, make_model)
    whole.run()
    first = random_and_uneven(session, line, make_model)
    with session.listen(at(epoch_end=lambda event: first.request_stop("pause"))):
        first.run()
    checkpoint = first.checkpoint()
    first.run()  # what happens afterwards does not reach into the checkpoint
    second = random_and_uneven(session, line, make_model)
    second.restore(checkpoint)
    result = second.run()
    assert bits(second) == bits(whole)
    assert result.history == whole.history
    assert (result.epochs, result.steps) == (4, 12)


def test_plugins_keep_their_state_in_a_checkpoint(session, line, make_model):
    trainer = random_and_uneven(session, line, make_model)
    found = []

    def save(event):
        event.checkpoint.plugins["mine"] = {"count": 3}

    def load(event):
        found.append(event.checkpoint.plugins["mine"])

    with session.listen(at(checkpoint_save=save, checkpoint_load=load)):
        trainer.restore(trainer.checkpoint())
    assert found == [{"count": 3}]


def test_a_checkpoint_of_another_model_is_refused_and_changes_nothing(session, line, make_model):
    checkpoint = random_and_uneven(session, line, make_model).checkpoint()
    other = Trainer(make_model(), line, S.Adam(), epochs=1, session=session)
    before = bits(other)
    with pytest.raises(TrainingError, match="do not both have"):
        other.restore(checkpoint)
    assert bits(other) == before


# -------------------------------------------------------------------- what does not fit


def test_an_empty_data_set_is_refused(session, make_model):
    data = ArraySource({"x": np.zeros((0, 1)), "y": np.zeros((0, 1))}, "nothing")
    with pytest.raises(DataError, match="nothing: the data set is empty"):
        Trainer(make_model(), data, S.Sgd(), epochs=1, session=session)


def no_parameters(x):
    return x


def no_loss(x):
    return {"output": PF.affine(x, 1)}


@pytest.mark.parametrize(
    ("function", "keywords", "message"),
    [
        (no_parameters, {}, "model 'no_parameters' has no parameters to train"),
        (no_loss, {"loss": None}, "model 'no_loss' has no loss to minimise"),
        (no_loss, {"target": "z"}, "the data has the field 'z'"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused(
    session, line, make_model, function, keywords, message
):
    with pytest.raises(ModelError, match=message):
        Trainer(make_model(function, **keywords), line, S.Sgd(), epochs=1, session=session)


# ---------------------------------------------------------------- a number of steps


def make_steps(make_model, line, steps, **keywords):
    epochs = -(-steps // 2)  # of two batches
    return Trainer(
        make_model(), line, S.Sgd(lr=0.1), epochs=epochs, steps=steps, batch_size=5, **keywords
    )


def test_a_run_of_so_many_steps_ends_in_the_middle_of_an_epoch(make_model, line):
    result = make_steps(make_model, line, 3).run()
    assert (result.steps, result.epochs, result.stopped) == (3, 1, None)


def test_the_last_step_of_a_run_is_followed_by_an_evaluation(make_model, line):
    result = make_steps(make_model, line, 3, evaluate={"test": line}).run()
    assert "test/loss" in result.metrics


def test_a_run_of_as_many_steps_as_epochs_have_is_the_same(make_model, line):
    by_steps = make_steps(make_model, line, 4).run()
    by_epochs = Trainer(make_model(), line, S.Sgd(lr=0.1), epochs=2, batch_size=5).run()
    assert by_steps.history == by_epochs.history


def test_steps_that_end_with_an_epoch_are_not_followed_by_another(make_model, line):
    trainer = Trainer(make_model(), line, S.Sgd(lr=0.1), epochs=9, steps=4, batch_size=5)
    assert trainer.run().steps == 4
