"""Parameters that a solver updates as one flat block, and the program that does it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nnl_core import functions as F
from nnl_core.flat_storage import FlatStorage
from nnl_core.graph.array import NdArray
from nnl_core.graph.backend import Backend, current_backend
from nnl_core.graph.lower import lower
from nnl_core.graph.modes import auto_forward, mixed_precision
from nnl_core.graph.node import pop_scope_name, push_scope_name
from nnl_core.graph.operator import Array
from nnl_core.graph.program import BoundProgram
from nnl_core.graph.spec import Spec, promote
from nnl_core.graph.variable import Variable
from nnl_core.session import current_session
from nnl_core.solvers.numbers import StepNumbers, one_minus

if TYPE_CHECKING:
    from nnl_core.solvers.solver import Solver

Update = tuple[Variable, NdArray]

AVERAGE = "average"
"""name of the state that is a parameter's moving average"""


class FlatGroup:
    """Parameters of one dtype and one `ParameterGroup` that have seen equally many updates.

    Attributes
    ----------
    parameters
        by name, in the order in which they lie in the blocks
    storage
        flat data and flat gradients
    states
        flat states of the rule, in the dtype that it computes in
    scalars
        0-d variables with the numbers that change from step to step
    t
        updates so far
    rate_factor, decay_factor
        times the solver's learning rate and weight decay
    """

    def __init__(
        self,
        solver: Solver,
        parameters: Mapping[str, Variable],
        t: int,
        rate_factor: float = 1.0,
        decay_factor: float = 1.0,
    ) -> None:
        self.solver = solver
        self.rate_factor = rate_factor
        self.decay_factor = decay_factor
        self.parameters = dict(parameters)
        self.storage = FlatStorage(parameters)
        self.t = t
        dtype = self.storage.data.dtype
        # A half-precision state would lose what makes it one: 1e-8 is 0 there.
        self.dtype = promote(dtype, np.dtype(np.float32))
        length = self.storage.data.size
        self.states = {
            name: NdArray(Spec((length,), self.dtype), np.zeros(length, self.dtype))
            for name in solver.kept_names
        }
        if AVERAGE in self.states:
            self.states[AVERAGE].read()[...] = self.data.read()
        self.scalars = {
            name: Variable((), dtype=self.dtype) for name in solver.scalars_at(self._numbers(1))
        }
        self._values: dict[str, float] = {}
        self._program: tuple[tuple[Backend, int], BoundProgram] | None = None

    @property
    def data(self) -> NdArray:
        """The flat block of all elements."""
        return self.storage.data.data

    @property
    def gradient(self) -> NdArray:
        """The flat block of all gradients."""
        return self.storage.grad.data

    @cached_property
    def exact_gradient(self) -> NdArray:
        """`gradient`, or, of half-precision parameters, a wider block in its place."""
        if self.dtype == self.gradient.dtype:
            return self.gradient
        now = self.gradient.read().astype(self.dtype)
        return NdArray(Spec.of(now), now)

    # States -------------------------------------------------------------------------------------

    def get_state(self, name: str) -> dict[str, Array]:
        """Return copies of one parameter's states, in the shape it had when the group was made."""
        start, stop = self.storage.segments[name]
        shape = self.storage.specs[name].shape
        return {
            key: block.read()[start:stop].reshape(shape).copy()
            for key, block in self.states.items()
        }

    def set_state(self, name: str, state: Mapping[str, Array]) -> None:
        """Copy one parameter's states in."""
        start, stop = self.storage.segments[name]
        for key, array in state.items():
            self.states[key].read()[start:stop] = array.ravel()
            self.states[key].touch()

    # Updating -----------------------------------------------------------------------------------

    def write_scalars(self) -> None:
        """Give the scalars their values for update ``t``."""
        for name, value in self.solver.scalars_at(self._numbers(self.t)).items():
            if self._values.get(name) != value:
                self._values[name] = value
                storage = self.scalars[name].data
                storage.read()[...] = value
                storage.touch()

    def _numbers(self, t: int) -> StepNumbers:
        rate = self.solver.learning_rate() * self.rate_factor
        return StepNumbers(t, self.dtype, rate, self.solver.own_decay * self.decay_factor)

    def updates(
        self, gradient: Variable | None = None, parameter: Variable | None = None
    ) -> list[Update]:
        """Return the rule as graph: new values, each with the storage that it overwrites.

        ``gradient`` and ``parameter`` are flat, as ``F.pack`` makes them from those of the
        parameters in order; default: the leaves of all gradients and of all data.
        """
        with auto_forward(False), mixed_precision(None):
            push_scope_name(self.solver.name)
            try:
                return self._updates(
                    self.storage.grad if gradient is None else gradient,
                    self.storage.data if parameter is None else parameter,
                )
            finally:
                pop_scope_name()

    def _updates(self, gradient: Variable, parameter: Variable) -> list[Update]:
        solver = self.solver
        parameter = _as(parameter, self.dtype)
        gradient = _as(gradient, self.dtype)
        states = {name: Variable.on(block) for name, block in self.states.items()}
        average = states.pop(AVERAGE, None)
        if solver.per_parameter:
            new, new_states = self._parameter_by_parameter(parameter, gradient, states)
        else:
            new, new_states = solver.rule(parameter, gradient, states, self.scalars)
        new = _as(new, self.storage.data.dtype)
        if average is not None and solver.average_decay is not None:
            kept, added = solver.average_decay, one_minus(solver.average_decay, self.dtype)
            new_states[AVERAGE] = kept * average + added * _as(new, self.dtype)
        return [
            (new, self.data),
            *((new_states[name], block) for name, block in self.states.items()),
        ]

    def _parameter_by_parameter(
        self, parameter: Variable, gradient: Variable, states: dict[str, Variable]
    ) -> tuple[Variable, dict[str, Variable]]:
        """Apply the rule to each parameter's part, so that norms in it are that parameter's."""
        news: list[Variable] = []
        new_states: dict[str, list[Variable]] = {name: [] for name in states}
        for start, stop in self.storage.segments.values():
            new, changed = self.solver.rule(
                F.slice(parameter, (start,), (stop,)),
                F.slice(gradient, (start,), (stop,)),
                {name: F.slice(state, (start,), (stop,)) for name, state in states.items()},
                self.scalars,
            )
            news.append(new)
            for name, state in changed.items():
                new_states[name].append(state)
        return F.pack(*news), {name: F.pack(*parts) for name, parts in new_states.items()}

    def run(self) -> None:
        """Update parameters and states from the stored gradients."""
        backend = current_backend()
        key = (backend, current_session().graph_version)
        if self._program is None or self._program[0] != key:
            self._program = (key, BoundProgram(lower((), updates=self.updates()), backend))
        self._program[1].run()


def _as(variable: Variable, dtype: np.dtype) -> Variable:
    return variable if variable.dtype == dtype else F.cast(variable, dtype)
