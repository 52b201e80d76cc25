"""A whole training step as one program: forward, backward and update."""

from __future__ import annotations

from collections.abc import Sequence

from nnl_core import functions as F
from nnl_core.errors import GraphError
from nnl_core.graph.array import NdArray
from nnl_core.graph.autodiff import gradient_table, key_of, ones_like
from nnl_core.graph.backend import Backend, current_backend
from nnl_core.graph.lower import lower
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.node import Node, Structure, topological
from nnl_core.graph.passes.memory import MemoryReport
from nnl_core.graph.program import BoundProgram, NodeProfile
from nnl_core.graph.variable import Variable
from nnl_core.session import current_session
from nnl_core.solvers.group import FlatGroup
from nnl_core.solvers.solver import Solver

Computed = tuple[Variable, NdArray]


class CompiledStep:
    """Forward, backward and update of a loss, compiled together; made by `compile_step`.

    It follows changes of the graph, of the solver's parameters and of the backend: the next run
    compiles again. After a run ``loss.d``, ``outputs`` and the parameters' ``g`` (as they were
    before clipping and weight decay) hold that step's values; nothing else was stored.
    """

    def __init__(
        self,
        loss: Variable,
        solver: Solver,
        weight_decay: float,
        clip_grad_norm: float | None,
        outputs: Sequence[Variable],
    ) -> None:
        self.loss = loss
        self.solver = solver
        self.outputs = tuple(outputs)
        self.weight_decay = weight_decay
        self.clip_grad_norm = clip_grad_norm
        self._seen: tuple[object, ...] | None = None
        self._groups: list[FlatGroup] = []
        self._programs: dict[str, BoundProgram] = {}

    def run(self) -> None:
        """Do one step in one program."""
        program = self._program("step")
        self._prepare()
        program.run()
        for group in self._groups:
            group.storage.publish_gradients()
        self.solver.finish_step()

    def compute_gradients(self) -> None:
        """Do the first part of a step: forward and backward. The parameters' ``g`` are replaced.

        What comes between may change the gradients; `update` clips, decays and uses them then.
        """
        self._program("gradients").run()
        for group in self._groups:
            group.storage.publish_gradients()

    def update(self) -> None:
        """Do the second part of a step, after `compute_gradients`: clip, decay and update."""
        program = self._program("update")
        self._prepare()
        program.run()
        self.solver.finish_step()

    @property
    def memory(self) -> MemoryReport:
        """Bytes that the program of the whole step holds."""
        return self._program("step").memory

    def profile(self, repeats: int = 3) -> list[NodeProfile]:
        """Do ``repeats`` steps and return the cost of each instruction, medians of the times."""
        program = self._program("step")
        self._prepare()
        rows = program.profile(repeats)
        for group in self._groups:
            group.storage.publish_gradients()
        self.solver.finish_step()
        return rows

    def __repr__(self) -> str:
        return f"<CompiledStep of {self.loss!r} and {self.solver!r}>"

    def _prepare(self) -> None:
        if self.weight_decay and self.solver.weight_decay_is_fused():
            self.solver.weight_decay(self.weight_decay)
        self.solver.prepare_step(gradients=False)

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
                flat = [group.storage.grad for group in self._groups]
            else:
                flat = self._flat_gradients()
                computed = [(v, v.data) for v in (self.loss, *self.outputs)]
                computed += [
                    (gradient, group.gradient)
                    for gradient, group in zip(flat, self._groups, strict=True)
                ]
            if kind != "gradients":
                changed = self._clipped_and_decayed(flat)
                for gradient, group in zip(changed, self._groups, strict=True):
                    updates += group.updates(gradient)

        def is_backward(node: Node) -> bool:
            return node not in forward_nodes

        return BoundProgram(lower(computed, is_backward=is_backward, updates=updates), backend)

    def _flat_gradients(self) -> list[Variable]:
        """Return each group's gradients as one flat variable."""
        parameters = [p for group in self._groups for p in group.parameters.values()]
        wanted = {key_of(parameter) for parameter in parameters}
        table = gradient_table((self.loss,), (ones_like(self.loss),), wanted)
        if not any(key_of(parameter) in table for parameter in parameters):
            raise GraphError("the loss depends on none of the solver's parameters")
        flat = []
        for group in self._groups:
            gradients = [
                table[key_of(p)] if key_of(p) in table else F.constant(0, p.shape)
                for p in group.parameters.values()
            ]
            packed = F.pack(*gradients)
            dtype = group.gradient.dtype
            flat.append(packed if packed.dtype == dtype else F.cast(packed, dtype))
        return flat

    def _clipped_and_decayed(self, flat: list[Variable]) -> list[Variable]:
        if self.clip_grad_norm is not None:
            norm = F.sqrt(sum(F.sum(gradient * gradient) for gradient in flat))
            scale = self.clip_grad_norm / F.maximum_scalar(norm, self.clip_grad_norm)
            flat = [gradient * scale for gradient in flat]
        if self.weight_decay and not self.solver.weight_decay_is_fused():
            flat = [
                gradient + self.weight_decay * group.storage.data
                for gradient, group in zip(flat, self._groups, strict=True)
            ]
        return flat


def compile_step(
    loss: Variable,
    solver: Solver,
    *,
    weight_decay: float = 0.0,
    clip_grad_norm: float | None = None,
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
        its parameters are updated
    weight_decay
        added to the gradients times the parameters, or given to a solver that fuses it
    clip_grad_norm
        largest norm of all gradients together, before weight decay; larger ones are scaled down
    outputs
        further variables to compute in each step

    The gradients are those of this step alone: nothing accumulates over steps. Raises `GraphError`
    at the first run where the loss depends on no parameter of the solver.
    """
    return CompiledStep(loss, solver, weight_decay, clip_grad_norm, outputs)
