"""A whole training step as one program: forward, backward and update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import GraphError, SolverError
from nnl_core.graph.array import NdArray
from nnl_core.graph.autodiff import gradient_table, key_of, ones_like
from nnl_core.graph.backend import Backend, current_backend
from nnl_core.graph.lower import lower
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.node import Node
from nnl_core.graph.passes.memory import MemoryReport
from nnl_core.graph.program import BoundProgram, NodeProfile
from nnl_core.graph.spec import Spec
from nnl_core.graph.structure import Structure, topological
from nnl_core.graph.variable import Variable
from nnl_core.session import current_session
from nnl_core.solvers.clipping import Clipping
from nnl_core.solvers.group import FlatGroup
from nnl_core.solvers.loss_scale import DynamicLossScale
from nnl_core.solvers.solver import Solver

Computed = tuple[Variable, NdArray]


class CompiledStep:
    """Forward, backward and update of a loss, compiled together; made by `compile_step`.

    It follows changes of the graph, of the solver's parameters and of the backend: the next run
    compiles again. After a run ``loss.d``, ``outputs`` and the parameters' ``g`` (as they were
    before clipping and weight decay, and divided by the loss scale) hold that step's values;
    nothing else was stored.
    """

    def __init__(
        self,
        loss: Variable,
        solver: Solver,
        outputs: Sequence[Variable] = (),
        weight_decay: float = 0.0,
        clipping: Clipping = Clipping(),  # noqa: B008 - a tuple, never changed
        accumulate: int = 1,
        loss_scale: DynamicLossScale | None = None,
    ) -> None:
        clipping.check()
        if not (isinstance(accumulate, int) and accumulate >= 1):
            raise SolverError(f"accumulate={accumulate!r}: give a whole number of parts, from 1")
        self.loss = loss
        self.solver = solver
        self.outputs = tuple(outputs)
        self.weight_decay = weight_decay
        self.clipping = clipping
        self.accumulate = accumulate
        self.loss_scale = loss_scale
        self._seen: tuple[object, ...] | None = None
        self._groups: list[FlatGroup] = []
        self._programs: dict[str, BoundProgram] = {}
        # What the gradient of the loss begins with, and what gradients are divided by.
        self._seeded = accumulate > 1 or loss_scale is not None
        self._seed = Variable((), dtype=loss.dtype)
        self._divisor = Variable(())
        self._finite = NdArray(Spec((), np.dtype(bool)))

    def run(self, weight: float | None = None, update: bool | None = None) -> bool:
        """Do one step, or one part of it, in one program; return whether parameters were updated.

        Parameters
        ----------
        weight
            of this part in the step's gradient; default: one of ``accumulate`` equal parts
        update
            whether this part is the last; default: the ``accumulate``-th since the last update

        A step whose gradients are not finite updates nothing where there is a loss scale.
        """
        if update is None:
            update = self.solver.accumulated + 1 >= self.accumulate
        if not update:
            self.compute_gradients(weight)
            return False
        program = self._begin("step", weight)
        self._prepare()
        self._run(program)
        for group in self._groups:
            group.storage.publish_gradients()
        return self._finish()

    def compute_gradients(self, weight: float | None = None) -> None:
        """Do the first part of a step: forward and backward. The parameters' ``g`` are replaced.

        With ``accumulate`` they are added to those of the parts before. What comes between may
        change the gradients; `update` clips, decays and uses them then.
        """
        program = self._begin("gradients", weight)
        program.run()
        for group in self._groups:
            group.storage.publish_gradients()
        self.solver.accumulated = self.solver.accumulated + 1 if self._adds else 1

    def update(self) -> bool:
        """Do the second part of a step, after `compute_gradients`: clip, decay and update.

        Returns whether the parameters were updated, as `run`.
        """
        program = self._program("update")
        self._prepare()
        self._run(program)
        return self._finish()

    @property
    def memory(self) -> MemoryReport:
        """Bytes that the program of the whole step holds."""
        return self._program("step").memory

    def profile(self, repeats: int = 3) -> list[NodeProfile]:
        """Do ``repeats`` steps and return the cost of each instruction, medians of the times."""
        self.solver.accumulated = 0
        program = self._begin("step", None)
        self._prepare()
        rows = program.profile(repeats)
        for group in self._groups:
            group.storage.publish_gradients()
        self.solver.finish_step()
        return rows

    def __repr__(self) -> str:
        return f"<CompiledStep of {self.loss!r} and {self.solver!r}>"

    # Running ------------------------------------------------------------------------------------

    @property
    def _adds(self) -> bool:
        """Whether gradients are added to what the parameters' gradients hold."""
        return 0 < self.solver.accumulated < self.accumulate

    def _begin(self, kind: str, weight: float | None) -> BoundProgram:
        """Return the program that computes gradients, its scalars written."""
        if self._adds:
            for group in self._groups:
                group.storage.collect_gradients()
        program = self._program(f"{kind} of more" if self._adds else kind)
        if self._seeded:
            scale = 1.0 if self.loss_scale is None else self.loss_scale.scale
            share = 1 / self.accumulate if weight is None else weight
            with np.errstate(over="ignore"):  # an infinite seed is an overflow like any other
                self._seed.d = np.asarray(scale * share).astype(self._seed.dtype)
                self._divisor.d = np.asarray(scale).astype(self._divisor.dtype)
        elif weight is not None:
            raise SolverError("a step in one part has no weight; compile it with accumulate=...")
        return program

    def _prepare(self) -> None:
        if self.weight_decay and self.solver.weight_decay_is_fused():
            self.solver.weight_decay(self.weight_decay)
        self.solver.prepare_step(gradients=False)

    def _run(self, program: BoundProgram) -> None:
        try:
            program.run()
        except BaseException:
            self.solver.finish_step(updated=False)
            raise

    def _finish(self) -> bool:
        finite = self.loss_scale is None or bool(self._finite.read())
        self.solver.finish_step(updated=finite)
        if self.loss_scale is not None:
            self.loss_scale.update(finite)
        return finite

    # Compiling ----------------------------------------------------------------------------------

    def _program(self, kind: str) -> BoundProgram:
        backend = current_backend()
        groups = self.solver.flat_groups
        if not groups:
            self._prepare()  # raises, saying why there is nothing to update
        if self._seen != self._situation(backend, groups):
            self._groups = groups
            self._programs = {}
            for group in groups:
                group.storage.collect_data()
                group.storage.collect_gradients()
        if kind not in self._programs:
            self._programs[kind] = self._compile(kind, backend)
            self._seen = self._situation(backend, groups)
        return self._programs[kind]

    def _situation(self, backend: Backend, groups: list[FlatGroup]) -> tuple[object, ...]:
        return (Structure.version, current_session().graph_version, backend, *map(id, groups))

    def _compile(self, kind: str, backend: Backend) -> BoundProgram:
        order = topological((self.loss, *self.outputs))
        for node in order:
            node.refresh_specs()
        forward_nodes = set(order)
        computed: list[Computed] = []
        updates: list[Computed] = []
        with auto_forward(False):
            if kind == "update":
                flat = [self._stored_gradient(group) for group in self._groups]
            else:
                flat = self._flat_gradients()
                if kind.endswith("of more"):
                    flat = [
                        Variable.on(self._exact(group)) + gradient
                        for gradient, group in zip(flat, self._groups, strict=True)
                    ]
                computed = [(v, v.data) for v in (self.loss, *self.outputs)]
                for gradient, group in zip(flat, self._groups, strict=True):
                    exact = self._exact(group)
                    computed.append((gradient, exact))
                    if exact is not group.gradient:
                        computed.append((F.cast(gradient, group.gradient.dtype), group.gradient))
            if not kind.startswith("gradients"):
                data = [
                    _flat_data(group, () if kind == "update" else order) for group in self._groups
                ]
                changed = self._decayed(self.clipping.apply(flat, self._groups), data)
                for gradient, values, group in zip(changed, data, self._groups, strict=True):
                    updates += group.updates(gradient, values)
                if self.loss_scale is not None:
                    finite = _all_finite(flat)
                    computed.append((finite, self._finite))
                    updates = [
                        (F.where(finite, new, Variable.on(old)), old) for new, old in updates
                    ]

        def is_backward(node: Node) -> bool:
            return node not in forward_nodes

        return BoundProgram(lower(computed, is_backward=is_backward, updates=updates), backend)

    def _exact(self, group: FlatGroup) -> NdArray:
        """Return where gradients are kept: wider than a half-precision parameter where they add up.

        What a loss scale saved from becoming zero would be lost in half precision, as would small
        parts of a sum.
        """
        return group.exact_gradient if self._seeded else group.gradient

    def _stored_gradient(self, group: FlatGroup) -> Variable:
        """Return the stored gradients, exact where nobody changed what they were rounded to."""
        stored = group.storage.grad
        exact = self._exact(group)
        if exact is group.gradient:
            return stored
        known = Variable.on(exact)
        untouched = F.equal(F.cast(known, stored.dtype), stored)
        return F.where(untouched, known, F.cast(stored, known.dtype))

    def _flat_gradients(self) -> list[Variable]:
        """Return each group's gradients as one flat variable."""
        parameters = [p for group in self._groups for p in group.parameters.values()]
        wanted = {key_of(parameter) for parameter in parameters}
        start = ones_like(self.loss)
        if self._seeded:
            start = start * self._seed
        table = gradient_table((self.loss,), (start,), wanted)
        if not any(key_of(parameter) in table for parameter in parameters):
            raise GraphError("the loss depends on none of the solver's parameters")
        flat = []
        for group in self._groups:
            gradients = [
                table[key_of(p)] if key_of(p) in table else F.constant(0, p.shape)
                for p in group.parameters.values()
            ]
            packed = F.pack(*gradients)
            dtype = self._exact(group).dtype
            packed = packed if packed.dtype == dtype else F.cast(packed, dtype)
            flat.append(packed if self.loss_scale is None else packed / self._divisor)
        return flat

    def _decayed(self, flat: list[Variable], data: list[Variable]) -> list[Variable]:
        if self.weight_decay and not self.solver.weight_decay_is_fused():
            flat = [
                gradient + self.weight_decay * group.decay_factor * values
                for gradient, values, group in zip(flat, data, self._groups, strict=True)
            ]
        return flat


def _flat_data(group: FlatGroup, nodes: Iterable[Node]) -> Variable:
    """Return the group's data as the nodes leave it: some layers assign to their parameters."""
    own = {id(parameter.data) for parameter in group.parameters.values()}
    if own.isdisjoint(id(effect.target.data) for node in nodes for effect in node.effects):
        return group.storage.data
    packed: Variable = F.pack(*group.parameters.values())
    return packed


def _all_finite(flat: Sequence[Variable]) -> Variable:
    """Return whether no element of several variables is infinite or NaN, 0-d."""
    wrong = [F.sum(F.where(F.logical_or(F.isnan(x), F.isinf(x)), 1.0, 0.0)) for x in flat]
    return F.equal_scalar(sum(wrong[1:], wrong[0]), 0.0)


def compile_step(
    loss: Variable,
    solver: Solver,
    *,
    weight_decay: float = 0.0,
    clip_grad_norm: float | None = None,
    clip_grad_norm_each: float | None = None,
    clip_grad_value: float | None = None,
    accumulate: int = 1,
    loss_scale: DynamicLossScale | None = None,
    outputs: Sequence[Variable] = (),
) -> CompiledStep:
    """Compile forward, backward and update of ``loss`` into one program.

    ``step = compile_step(loss, solver)`` once, then ``step.run()`` for each step, after which
    ``loss.d`` holds its loss.

    Parameters
    ----------
    loss
        what to make smaller; with several elements, their sum
    solver
        its parameters are updated, and their averages where it keeps some
    weight_decay
        added to the gradients times the parameters, or given to a solver that fuses it
    clip_grad_norm
        largest norm of all gradients together, before weight decay; larger ones are scaled down
    clip_grad_norm_each
        largest norm of each parameter's gradient, before the one above
    clip_grad_value
        largest size of each element of the gradients, before both norms
    accumulate
        number of runs that make a step: their gradients are averaged, and the last one updates.
        With a loss that is a mean, this is the step of all their batches together
    loss_scale
        keeps gradients of half precision within range; steps in which they overflow are skipped
    outputs
        further variables to compute in each step

    The gradients are those of this step alone: nothing accumulates over steps. Raises `GraphError`
    at the first run where the loss depends on no parameter of the solver.
    """
    return CompiledStep(
        loss,
        solver,
        outputs,
        weight_decay,
        Clipping(clip_grad_value, clip_grad_norm_each, clip_grad_norm),
        accumulate,
        loss_scale,
    )
