"""The training loop. It knows events, not features: what else happens in a run, plugins do."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

import numpy as np

from nnl_core import __version__, random
from nnl_core.data import Batch, DataIterator, DataSource
from nnl_core.data.iterator import LastBatch, WorkerKind
from nnl_core.errors import ModelError, PluginError, TrainingError
from nnl_core.graph.backend import current_backend
from nnl_core.hooks import (
    CheckpointLoad,
    CheckpointSave,
    EpochEnd,
    EpochStart,
    ExceptionRaised,
    GradientSet,
    GradientsReady,
    MetricReported,
    SafePoint,
    StepEnd,
    StepStart,
    TrainEnd,
    TrainStart,
    UpdateEnd,
    UpdateStart,
)
from nnl_core.hooks.loading import describe
from nnl_core.session import Session, current_session
from nnl_core.solvers.step import CompiledStep, compile_step
from nnl_core.training.checkpoint import Checkpoint
from nnl_core.training.checkpoint_policy import CheckpointPolicy, CheckpointWriter
from nnl_core.training.evaluator import Evaluator
from nnl_core.training.feeding import Feeder, feed, part_sizes, parts_of
from nnl_core.training.metrics import QUICK, Table, values_of
from nnl_core.training.model import Model, Network
from nnl_core.training.outcomes import Outcome, Outcomes, lateness
from nnl_core.training.state import TrainResult, TrainState
from nnl_core.training.tracking import MetricHistory

if TYPE_CHECKING:
    from nnl_core.graph.program import NodeProfile
    from nnl_core.schedules import Schedule, WatchingSchedule
    from nnl_core.solvers import DynamicLossScale, Solver

MASK = "counts"  # the field that tells samples from those that pad a batch


class StepOptions(TypedDict):
    """What `compile_step` is told of how to update."""

    weight_decay: float
    clip_grad_norm: float | None
    clip_grad_norm_each: float | None
    clip_grad_value: float | None
    accumulate: int
    loss_scale: DynamicLossScale | None


class Trainer:
    """Trains a model on a data source.

    Making one seeds the engine and builds the model, so that whatever does not fit is said at once.

    Parameters
    ----------
    epochs, steps
        how many passes over the data, and after how many steps the run is over if that is earlier
    solver
        gets the model's parameters, those that need a gradient; where it keeps averages of them,
        these are what is evaluated
    schedule
        sets the solver's learning rate before each step, and hears of the metric it watches
    seed
        of initial values, the order of the samples, and random functions
    last_batch
        whether a last batch that is shorter than the rest is used (one more program is compiled),
        dropped, or padded with samples that are left out of loss and metrics
    workers, worker_kind, prefetch
        who takes batches in the background, as of `DataIterator`
    evaluate
        data sources to evaluate after each epoch, by the name of their metrics
    evaluate_every, evaluate_every_steps
        every how many epochs that happens (and after the last one), and whether also after every
        so many steps
    higher_is_better
        directions of metrics by name, such as ``{"validation/size": False}``, for `tracker`; those
        that it does not name have that of their record or class
    accumulate
        number of parts that each batch is computed in, to save memory: their gradients make one
        update, that of the whole batch where its loss is a mean over samples
    weight_decay, clip_grad_norm, clip_grad_norm_each, clip_grad_value, loss_scale
        as those of `nnl_core.compile_step`; steps that the loss scale skips are reported as
        ``skipped_steps``, the number of them so far
    folder
        where plugins put files of this run
    checkpoints
        when the run is written into ``folder``, to go on from there later; default: never

    Raises `ModelError` where the model does not fit the data or has no loss, `DataError` where
    there is no batch to train on.
    """

    def __init__(
        self,
        model: Model,
        data: DataSource,
        solver: Solver,
        *,
        epochs: int,
        steps: int | None = None,
        schedule: Schedule | None = None,
        batch_size: int = 64,
        seed: int = 0,
        last_batch: LastBatch = "keep",
        workers: int = 0,
        worker_kind: WorkerKind = "process",
        prefetch: int | None = None,
        evaluate: Mapping[str, DataSource] | None = None,
        evaluate_every: int = 1,
        evaluate_every_steps: int | None = None,
        higher_is_better: Mapping[str, bool] | None = None,
        accumulate: int = 1,
        weight_decay: float = 0.0,
        clip_grad_norm: float | None = None,
        clip_grad_norm_each: float | None = None,
        clip_grad_value: float | None = None,
        loss_scale: DynamicLossScale | None = None,
        folder: Path | None = None,
        checkpoints: CheckpointPolicy | None = None,
        session: Session | None = None,
    ) -> None:
        self.model = model
        self.solver = solver
        self.schedule = schedule
        self.epochs = epochs
        self.steps = steps
        self.seed = seed
        self.folder = folder
        self.checkpoints = checkpoints
        self.session = session or current_session()
        self.state = TrainState()
        self.iterator = DataIterator(
            data,
            batch_size,
            seed=seed,
            last_batch=last_batch,
            mask=MASK if last_batch == "pad" else None,
            workers=workers,
            worker_kind=worker_kind,
            prefetch=prefetch,
        )
        self.evaluators = [
            Evaluator(model, source, name=name, session=self.session)
            for name, source in (evaluate or {}).items()
        ]
        self.history: list[dict[str, float]] = []
        self.accumulate = accumulate
        self.loss_scale = loss_scale
        self._options: StepOptions = {
            "weight_decay": weight_decay,
            "clip_grad_norm": clip_grad_norm,
            "clip_grad_norm_each": clip_grad_norm_each,
            "clip_grad_value": clip_grad_value,
            "accumulate": accumulate,
            "loss_scale": loss_scale,
        }
        self._stop: str | None = None
        self._outcomes = Outcomes()
        self._feeder = Feeder(self.iterator, accumulate)
        self._steps: dict[int, tuple[Network, CompiledStep]] = {}
        random.seed(seed)
        # All of them now, so that random nodes get the same numbers however far a run goes.
        sizes = dict.fromkeys(
            part for size in self.iterator.sizes for part in part_sizes(size, accumulate)
        )
        networks = [self._step(size)[0] for size in sizes]
        self._fields = frozenset(name for network in networks for name in network.inputs)
        for evaluator in self.evaluators:
            evaluator.prepare()
        self._metrics = model.new_metrics(networks[0])
        for every in (evaluate_every, evaluate_every_steps):
            if every is not None and every < 1:
                raise TrainingError(f"evaluating every {every} epochs or steps: say 1 or more")
        self.evaluate_every, self.evaluate_every_steps = evaluate_every, evaluate_every_steps
        directions = {name: metric.higher_is_better for name, metric in self._metrics.items()}
        self.tracker = MetricHistory(directions | dict(higher_is_better or {}))

    # ---------------------------------------------------------------- for plugins

    def request_stop(self, reason: str) -> None:
        """End the run after the step that is being made; ``reason`` becomes part of the result."""
        self._stop = self._stop or reason

    @property
    def stop_reason(self) -> str | None:
        """Why the run is about to end early, or ``None``."""
        return self._stop

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches of an epoch."""
        return len(self.iterator)

    @property
    def has_steps_left(self) -> bool:
        """Whether the run makes more steps, unless it is stopped."""
        return self.state.epoch < self.epochs and not self._is_over

    def parts(self, batch: Batch) -> list[tuple[Batch, Network]]:
        """Return the parts that a batch is computed in, each with the network it runs through."""
        return [(part, self._step(len(part))[0]) for part in parts_of(batch, self.accumulate)]

    def running_metrics(self) -> dict[str, float]:
        """Return loss and metrics of the epoch so far: numbers that are found in no time."""
        self._outcomes.settle(self._metrics)
        quick = {name: m for name, m in self._metrics.items() if m.state.size <= QUICK}
        return values_of(quick)[0]

    def report(self, name: str, value: float) -> None:
        """Tell all who listen of a number that is worth keeping, after the steps made so far."""
        self._settle()
        if self.session.events.metric is not None:
            self.session.events.metric(MetricReported(name, float(value), self.state.step))

    def checkpoint(self) -> Checkpoint:
        """Return a copy of all that changes in a run; plugins add what is theirs.

        What is restored from it goes on as this run does, bit for bit, if it is made between two
        steps: see the event ``nnl_on_safe_point``.
        """
        self._settle()
        parameters = self.model.parameters
        made = Checkpoint(
            state=replace(self.state),
            parameters={name: p.d.copy() for name, p in parameters.items()},
            frozen=[name for name, p in parameters.items() if not p.need_grad],
            solver=self.solver.get_states(),
            solver_name=self.solver.name,
            learning_rate=self.solver.learning_rate(),
            random=random.get_state(),
            history=[dict(metrics) for metrics in self.history],
            tracker=self.tracker.get_state(),
            metrics={name: np.array(metric.state) for name, metric in self._metrics.items()},
            loss_scale={} if self.loss_scale is None else self.loss_scale.get_state(),
            made_with=self._made_with(),
        )
        if self.session.events.checkpoint_save is not None:
            self.session.events.checkpoint_save(CheckpointSave(made, self))
        return made

    def _made_with(self) -> dict[str, Any]:
        return {
            "settings": dict(self.session.settings),
            "backend": current_backend().name,
            "plugins": self._active_plugins(),
            "versions": {
                "nnl-core": __version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }

    def _active_plugins(self) -> dict[str, str]:
        entries = self.session.manager.entries
        return {entry.name: entry.version for entry in entries if entry.state == "active"}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint of a run with the same model, data and settings.

        Raises TrainingError where its parameters are not the model's, or where it holds the state
        of a plugin that is not active.
        """
        known = self.model.parameters
        if checkpoint.solver_name != self.solver.name:
            raise TrainingError(
                f"the checkpoint holds states of solver {checkpoint.solver_name!r}, not of "
                f"{self.solver.name!r}"
            )
        active, before = self._active_plugins(), checkpoint.made_with.get("plugins", {})
        for name in checkpoint.plugins:
            if name in before and name not in active:
                raise TrainingError(
                    f"the checkpoint holds the state of plugin {name!r} {before[name]}, which is "
                    f"not active; name it in the project, or with -p {name}"
                )
        for name in known.keys() ^ checkpoint.parameters.keys():
            raise TrainingError(f"the checkpoint and the model do not both have {name!r}")
        for name, array in checkpoint.parameters.items():
            if array.shape != known[name].shape:
                raise TrainingError(
                    f"parameter {name!r} has shape {array.shape} in the checkpoint, "
                    f"{known[name].shape} in the model"
                )
            if array.dtype != known[name].dtype:
                raise TrainingError(
                    f"parameter {name!r} is {array.dtype} in the checkpoint, {known[name].dtype} "
                    "in the model"
                )
        self.solver.set_states(checkpoint.solver)
        for name, array in checkpoint.parameters.items():
            known[name].d = array
            if known[name].need_grad != (name not in checkpoint.frozen):
                known[name].need_grad = name not in checkpoint.frozen
        self.solver.set_learning_rate(checkpoint.learning_rate)
        random.set_state(checkpoint.random)
        self.state = replace(checkpoint.state)
        self._outcomes.clear()
        self.history = [dict(metrics) for metrics in checkpoint.history]
        for name, state in checkpoint.metrics.items():
            if name in self._metrics:
                self._metrics[name].state = state.copy()
        if checkpoint.tracker:
            self.tracker.set_state(checkpoint.tracker)
        if self.loss_scale is not None and checkpoint.loss_scale:
            self.loss_scale.set_state(checkpoint.loss_scale)
        self._tell_schedule()
        if self.session.events.checkpoint_load is not None:
            self.session.events.checkpoint_load(CheckpointLoad(checkpoint, self))

    def profile(self, repeats: int = 5) -> list[NodeProfile]:
        """Make steps on the first batch, and return the cost of each node of their program."""
        batch = next(self.iterator.epoch(self.state.epoch))
        part = parts_of(batch, self.accumulate)[0]
        network, program = self._step(len(part))
        feed(network, part)
        return program.profile(repeats)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Let the parameters be their averages inside a block, where the solver keeps some."""
        if self.solver.average_decay is None:
            yield
        else:
            with self.solver.averaged():
                yield

    # ---------------------------------------------------------------- running

    def run(self) -> TrainResult:
        """Train, as plugins have it or else by `run_loop`.

        Whatever is raised on the way, plugins hear of it before it goes on.
        """
        with ExitStack() as listening:
            listening.callback(self.iterator.close)
            if self.checkpoints is not None:
                writer = CheckpointWriter(self.checkpoints, self)
                listening.enter_context(self.session.listen(writer))
            return self._run()

    def _run(self) -> TrainResult:
        events = self.session.events
        try:
            if events.train_start is not None:
                events.train_start(TrainStart(self))
            result = self.session.manager.run_training(self)
            if not isinstance(result, TrainResult):
                raise PluginError(f"nnl_run_training returned {result!r}, not a TrainResult")
            if events.train_end is not None:
                events.train_end(TrainEnd(self, result))
        except BaseException as error:
            if events.exception is not None:
                try:
                    events.exception(ExceptionRaised(self, error))
                except Exception as second:
                    error.add_note(f"nnl_on_exception failed, too: {describe(second)}")
            raise
        return result

    def run_loop(self) -> TrainResult:
        """Train in this process, from where `state` stands."""
        events = self.session.events
        started = time.perf_counter()
        while self._is_to_go_on():
            epoch = self.state.epoch
            if events.epoch_start is not None:
                events.epoch_start(EpochStart(self, epoch))
            self._run_steps(epoch)
            numbers, found = values_of(self._metrics)
            metrics = {f"train/{name}": value for name, value in numbers.items()}
            tables = {f"train/{name}": table for name, table in found.items()}
            # An epoch that was stopped after its last step is not over: it is to be evaluated.
            is_whole = self.state.batch == len(self.iterator)
            is_done = (is_whole or self._is_over) and self._stop is None
            if is_whole and is_done:
                self.state.epoch, self.state.batch = epoch + 1, 0
            is_complete = is_done and self._is_evaluated(self.state.epoch)
            if is_complete:
                evaluated = self._evaluate()
                metrics, tables = metrics | evaluated[0], tables | evaluated[1]
            if len(self.history) > epoch:  # the first part of an epoch that went on
                self.history.pop()
            self.history.append(metrics)
            if is_done:  # a part of an epoch is no match for whole ones
                self.tracker.record(metrics, tables, epoch=epoch + 1, step=self.state.step)
            watched: str | None = getattr(self.schedule, "metric", None)
            if watched is not None and watched not in metrics and is_complete:
                raise TrainingError(
                    f"the schedule watches the metric {watched!r}; there are {', '.join(metrics)}"
                )
            self._tell_schedule()
            if events.metric is not None:
                for name, value in metrics.items():
                    events.metric(MetricReported(name, value, self.state.step))
            if events.epoch_end is not None:
                events.epoch_end(EpochEnd(self, epoch, metrics))
            if is_done and events.safe_point is not None:
                events.safe_point(SafePoint(self, True))
        stopped, self._stop = self._stop, None
        return TrainResult(
            epochs=self.state.epoch,
            steps=self.state.step,
            seconds=time.perf_counter() - started,
            stopped=stopped,
            history=self.history,
            best=self.tracker.summary(),
            tables=self.tracker.tables,
        )

    def _is_to_go_on(self) -> bool:
        """Whether there is something left to do."""
        # Without metrics of its last epoch, a run with all its steps is still to be evaluated.
        is_measured = self.state.batch == 0 or len(self.history) > self.state.epoch
        is_over = self._is_over and is_measured
        return self.state.epoch < self.epochs and not is_over and self._stop is None

    def _run_steps(self, epoch: int) -> None:
        """Make the steps of an epoch that are left."""
        events, state = self.session.events, self.state
        step_start, step_end, update_end = events.step_start, events.step_end, events.update_end
        safe_point, schedule = events.safe_point, self.schedule
        run, behind = self._run_step(), lateness()
        if state.batch == 0:
            self._outcomes.clear()
            for accumulator in self._metrics.values():
                accumulator.reset()
        if self._is_over:  # an epoch that was stopped after the last step is only to be measured
            return
        # Listeners to the start of a step may write to its batch: then it is not copied before.
        names = None if step_start is not None else self._fields
        for batch, placed in self._feeder.batches(epoch, state.batch, names):
            step = state.step
            if schedule is not None:
                self.solver.set_learning_rate(schedule.get_learning_rate(step))
            if step_start is not None:
                step_start(StepStart(self, step, batch))
            updated, outcome = False, Outcome(step, epoch, batch)
            parts = parts_of(batch, self.accumulate)
            self.solver.accumulated = 0
            for number, (part, buffers) in enumerate(zip(parts, placed, strict=True), 1):
                network, program = self._step(len(part))
                feed(network, part, buffers)
                weight = None if self.accumulate == 1 else part.count / max(batch.count, 1)
                if number < len(parts):
                    program.compute_gradients(weight)
                else:
                    updated = run(program, batch, weight)
                outcome.add(network, weight, part.count)
            self._outcomes.append(outcome)
            if updated and update_end is not None:
                update_end(UpdateEnd(self, step, self.model.parameters))
            self._outcomes.settle(self._metrics, behind)
            state.step += 1
            state.batch += 1
            state.samples += batch.count
            self._report_losses()
            if not updated and self.loss_scale is not None:
                self.report("skipped_steps", self.loss_scale.skipped)
            if step_end is not None:
                step_end(StepEnd(self, step, batch, program.loss if len(parts) == 1 else outcome))
            self._evaluate_between(epoch)
            if safe_point is not None:
                safe_point(SafePoint(self, False))
            if self._stop is not None or self._is_over:
                break
        self._settle()

    def _settle(self) -> None:
        """Take account of all steps made so far, of which a device may not have told."""
        self._outcomes.settle(self._metrics)
        self._report_losses()

    def _report_losses(self) -> None:
        metric = self.session.events.metric
        for step, loss in self._outcomes.new_losses():
            if metric is not None:
                metric(MetricReported("loss", loss, step + 1))

    @property
    def _is_over(self) -> bool:
        """Whether all steps were made, where their number is given."""
        return self.steps is not None and self.state.step >= self.steps

    def _is_evaluated(self, epochs: int) -> bool:
        """Whether it is time to evaluate after so many epochs."""
        return epochs >= self.epochs or self._is_over or epochs % self.evaluate_every == 0

    def _evaluate(self) -> tuple[dict[str, float], dict[str, Table]]:
        """Evaluate all data sources; return numbers and tables by names such as ``test/loss``."""
        numbers: dict[str, float] = {}
        tables: dict[str, Table] = {}
        with self.averaged():
            for evaluator in self.evaluators:
                found = evaluator.run()
                numbers |= {f"{evaluator.name}/{name}": value for name, value in found.items()}
                tables |= {f"{evaluator.name}/{name}": t for name, t in evaluator.tables.items()}
        return numbers, tables

    def _evaluate_between(self, epoch: int) -> None:
        """Evaluate after a step, where it is time; the last one of an epoch is `run_loop`'s."""
        every, state = self.evaluate_every_steps, self.state
        if every is None or state.step % every or state.batch == len(self.iterator):
            return
        self._settle()
        numbers, tables = self._evaluate()
        self.tracker.record(numbers, tables, epoch=epoch + 1, step=state.step)
        for name, value in numbers.items():
            self.report(name, value)

    def _tell_schedule(self) -> None:
        """Tell the schedule the metric that it watches, of all epochs that are over."""
        name: str | None = getattr(self.schedule, "metric", None)
        if name is not None:
            over = self.history[: self.state.epoch]
            values = [metrics[name] for metrics in over if name in metrics]
            cast("WatchingSchedule", self.schedule).observe(values)

    def _run_step(self) -> Callable[[CompiledStep, Batch, float | None], bool]:
        """Return what runs one step: one program, or two where a plugin comes between them."""
        events = self.session.events
        if events.gradients_ready or events.reduce_gradients or events.update_start:
            return self._run_in_two
        return lambda program, batch, weight: program.run(weight, update=True)

    def _run_in_two(self, program: CompiledStep, batch: Batch, weight: float | None) -> bool:
        events, step = self.session.events, self.state.step
        program.compute_gradients(weight)
        storages = [group.storage for group in self.solver.flat_groups]
        buffers = [storage.grad.data.read() for storage in storages]
        by_name = {name: part for storage in storages for name, part in storage.gradient_parts()}
        gradients = GradientSet(buffers, by_name)
        if events.gradients_ready is not None:
            ids = batch.ids.tolist()
            events.gradients_ready(GradientsReady(self, step, gradients, ids))
        if events.reduce_gradients is not None:
            events.reduce_gradients(gradients)
        if events.update_start is not None:
            events.update_start(UpdateStart(self, step, gradients))
        for storage in storages:
            storage.grad.data.touch()  # what plugins wrote is to be used where the update runs
        return program.update()

    def _step(self, batch_size: int) -> tuple[Network, CompiledStep]:
        """Return the network and the compiled step for batches of a size."""
        if batch_size not in self._steps:
            iterator = self.iterator
            network = self.model.build(
                iterator.fields, batch_size, training=True, mask=iterator.mask
            )
            measured = dict(network.measured)
            loss = measured.pop("loss", None)
            if loss is None:
                raise ModelError(
                    f"model {self.model.name!r} has no loss to minimise: name one, or return one "
                    f"called 'loss', and see that the data has the field {self.model.target!r}"
                )
            if not self._steps:
                trainable = {n: p for n, p in self.model.parameters.items() if p.need_grad}
                if not trainable:
                    raise ModelError(f"model {self.model.name!r} has no parameters to train")
                self.solver.set_parameters(trainable)
            step = compile_step(
                loss,
                self.solver,
                outputs=list(measured.values()),
                **self._options,
            )
            self._steps[batch_size] = network, step
        return self._steps[batch_size]
