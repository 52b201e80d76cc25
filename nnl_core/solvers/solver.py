"""What all solvers share: parameters, states, gradients, and the steps of an update."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, ParamSpec

import numpy as np

from nnl_core.errors import SolverError
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import promote
from nnl_core.graph.structure import Structure
from nnl_core.graph.variable import Variable
from nnl_core.hooks.loading import did_you_mean
from nnl_core.solvers.gradients import GradientMethods
from nnl_core.solvers.group import AVERAGE, FlatGroup
from nnl_core.solvers.numbers import StepNumbers, checked
from nnl_core.solvers.parameter_groups import ParameterGroup, ParameterGroups
from nnl_core.solvers.states import SolverState, read_states, write_states

P = ParamSpec("P")

RATES = frozenset({"alpha", "eta", "learning_rate", "lr", "rate"})
"""What libraries call the learning rate."""


def _telling(initialize: Callable[P, None]) -> Callable[P, None]:
    """Let a constructor say what it has in place of an argument that it does not know."""
    known = inspect.signature(initialize).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return initialize

    @functools.wraps(initialize)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        for name in kwargs.keys() - known.keys():
            solver = type(args[0])
            rate = getattr(solver, "rate_name", "lr")
            hint = (
                f"; its learning rate is {rate!r}"
                if name in RATES and rate in known
                else did_you_mean(name, [*known][1:])
            )
            raise TypeError(f"{solver.__name__} has no argument {name!r}{hint}")
        initialize(*args, **kwargs)

    return call


class Solver(GradientMethods):
    """An update rule, and the parameters that it is applied to.

    A subclass names its states and writes the rule once, as graph on flat variables: `update` runs
    it as a program over all parameters of one dtype, and ``compile_step`` puts it into the program
    of the whole training step.

    Attributes
    ----------
    state_names
        arrays that the rule keeps for each parameter, zero at first
    accumulated
        how many parts of a step's gradients have been added up so far; see ``compile_step``
    per_parameter
        the rule uses norms or other reductions: it is applied to one parameter at a time
    rate_name
        what the constructor calls the learning rate
    fuses_weight_decay
        weight decay is part of the rule, not of the gradient
    """

    state_names: tuple[str, ...] = ()
    accumulated: int = 0
    per_parameter: ClassVar[bool] = False
    rate_name: ClassVar[str] = "lr"
    fuses_weight_decay: bool = False

    def __init__(self, learning_rate: float) -> None:
        self._rate = self._first_rate = _checked_rate(learning_rate)
        self._decay: float | None = None
        self._average_decay: float | None = None
        self._averages_in_place = False
        self._parameter_groups = ParameterGroups()
        self._parameters: dict[str, Variable] = {}
        self._groups: list[FlatGroup] = []
        self._kept: dict[str, SolverState] = {}  # of parameters that are in no group
        self._seen: tuple[int, int] = (-1, 0)
        self._changes = 0

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__init__ = _telling(cls.__init__)  # type: ignore[method-assign]  # same arguments

    # What a subclass defines --------------------------------------------------------------------

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Return the updated parameter and states, as graph.

        All are flat and of one dtype, ``float32`` or wider; ``scalars`` are the 0-d values of
        `scalars_at`.
        """
        raise SolverError(f"solver {self.name!r} defines no rule")

    def scalars_at(self, now: StepNumbers) -> dict[str, float]:
        """Return the numbers that change from step to step, for one update."""
        return {"rate": now.rate}

    def relative_rate(self, now: StepNumbers) -> float:
        """Return the rate relative to the one that the solver was made with."""
        return now.rate / self._first_rate if self._first_rate else 1.0

    # Parameters ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the rule."""
        return type(self).__name__

    @property
    def info(self) -> dict[str, object]:
        """The constructor's arguments, with the present learning rate."""
        arguments = inspect.signature(type(self)).parameters
        values = {name: getattr(self, name) for name in arguments if name != self.rate_name}
        return {self.rate_name: self._rate, **values}

    def set_parameters(
        self, params: Mapping[str, Variable], reset: bool = True, retain_state: bool = False
    ) -> None:
        """Say what to update.

        Parameters
        ----------
        reset
            forget all parameters and states set before; else add to them
        retain_state
            with ``reset=False``: keep the state of a name that is set again

        Parameters that need no gradient are left alone until they do. Raises `SolverError` for
        what is not floating, or shares its elements with another.
        """
        if not isinstance(params, Mapping):
            raise SolverError(
                f"parameters are a dictionary, such as get_parameters(), not a "
                f"{type(params).__name__}"
            )
        for name, parameter in params.items():
            if not isinstance(parameter, Variable):
                raise SolverError(
                    f"parameter {name!r} is a {type(parameter).__name__}, not a Variable"
                )
            if not is_floating(parameter.dtype):
                raise SolverError(
                    f"parameter {name!r} is {parameter.dtype}; solvers update floating parameters"
                )
        chosen = dict(params) if reset else {**self._parameters, **params}
        names: dict[int, str] = {}
        for name, parameter in chosen.items():
            other = names.setdefault(id(parameter.data), name)
            if other != name:
                raise SolverError(
                    f"parameters {other!r} and {name!r} share their elements; give one of them"
                )
        kept = self._all_states()
        if reset:
            kept = {}
        elif not retain_state:
            kept = {name: state for name, state in kept.items() if name not in params}
        self._replace(chosen, kept)

    def get_parameters(self) -> dict[str, Variable]:
        """Return the parameters by name."""
        return dict(self._parameters)

    def remove_parameters(self, keys: Iterable[str]) -> None:
        """Forget some parameters and their states."""
        gone = set(keys)
        unknown = gone - self._parameters.keys()
        if unknown:
            raise SolverError(f"solver {self.name!r} has no parameter {min(unknown)!r}")
        kept = self._all_states()
        self._replace(
            {name: p for name, p in self._parameters.items() if name not in gone},
            {name: state for name, state in kept.items() if name not in gone},
        )

    def clear_parameters(self) -> None:
        """Forget all parameters and states."""
        self._replace({}, {})

    def set_groups(self, groups: Iterable[ParameterGroup]) -> None:
        """Let some parameters learn at another rate, decay otherwise, or not be updated.

        Of several groups that a parameter belongs to, the first holds. The groups replace those
        set before, and stay when parameters are set again. The next update raises `SolverError`
        for a group to which no parameter belongs.
        """
        self._parameter_groups = ParameterGroups(groups)
        self._replace(self._parameters, self._all_states())

    def _replace(self, parameters: dict[str, Variable], kept: dict[str, SolverState]) -> None:
        self._parameters, self._kept = parameters, kept
        self._groups = []
        self._changes += 1

    # Groups -------------------------------------------------------------------------------------

    @property
    def flat_groups(self) -> list[FlatGroup]:
        """The parameters to update, in groups that lie in flat blocks.

        The groups are the same objects until a parameter is added, removed, frozen or unfrozen.
        """
        seen = (Structure.version, self._changes)
        if seen != self._seen:
            self._regroup()
            self._seen = (Structure.version, self._changes)
        return self._groups

    def _regroup(self) -> None:
        self._parameter_groups.check(self._parameters)
        counts = {name: group.t for group in self._groups for name in group.parameters}
        counts = {name: state.t for name, state in self._kept.items()} | counts
        wanted: dict[tuple[np.dtype, int, float, float], dict[str, Variable]] = {}
        for name, parameter in self._parameters.items():
            options = self._parameter_groups.of(name)
            if parameter.need_grad and not options.frozen:
                t = counts.get(name, 0)
                key = (parameter.dtype, t, options.rate_factor, options.decay_factor)
                wanted.setdefault(key, {})[name] = parameter
        if len(wanted) == len(self._groups) and all(
            group.storage.fits(parameters)
            for group, parameters in zip(self._groups, wanted.values(), strict=True)
        ):
            return
        kept = self._all_states()
        for name, state in kept.items():
            self._check_state(name, state)
        self._groups, self._kept = [], kept
        for (_, t, rate_factor, decay_factor), parameters in wanted.items():
            group = FlatGroup(self, parameters, t, rate_factor, decay_factor)
            for name in parameters:
                known = self._kept.pop(name, None)
                if known is not None:
                    group.set_state(name, known.pstate)
            self._groups.append(group)

    # Updating -----------------------------------------------------------------------------------

    def update(self) -> None:
        """Apply the rule once to every parameter that needs a gradient.

        Values that are not finite are used as they are: nothing is skipped. See
        `check_inf_or_nan_grad`. Raises `SolverError` where there is nothing to update.
        """
        self.prepare_step()
        for group in self._groups:
            group.run()
        self.finish_step()

    def prepare_step(self, gradients: bool = True) -> None:
        """Count the update, give the scalars their values, and bring the blocks up to date.

        ``gradients=False`` leaves the gradients' blocks alone, for a program that computes them.
        """
        if self._averages_in_place:
            raise SolverError(f"solver {self.name!r} updates nothing while averages are in place")
        groups = self.flat_groups
        if not groups:
            reason = (
                f"none of its {len(self._parameters)} parameters needs a gradient and is not frozen"
                if self._parameters
                else "it has no parameters; call set_parameters"
            )
            raise SolverError(f"solver {self.name!r} has nothing to update: {reason}")
        for group in groups:
            group.storage.collect_data()
            if gradients:
                group.storage.collect_gradients()
        for group in groups:
            group.t += 1
            group.write_scalars()

    def finish_step(self, updated: bool = True) -> None:
        """Tell the parameters that they were written; one that was skipped does not count."""
        if not updated:
            for group in self._groups:
                group.t -= 1
        self.accumulated = 0
        for group in self._groups:
            group.storage.publish_data()
        self._decay = None

    def learning_rate(self) -> float:
        """Return the learning rate."""
        return self._rate

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the updates to come."""
        self._rate = _checked_rate(learning_rate)

    # Gradients ----------------------------------------------------------------------------------

    def zero_grad(self) -> None:
        """Make all gradients zero."""
        for parameter in self._parameters.values():
            parameter.grad.zero()
        self.accumulated = 0

    def weight_decay_is_fused(self) -> bool:
        """Whether weight decay is part of the rule, not of the gradient."""
        return self.fuses_weight_decay

    def weight_decay(self, decay_rate: float) -> None:
        """Add ``decay_rate`` times the parameters to the gradients.

        A solver with fused weight decay instead uses the rate in the next update alone, in place
        of its own.
        """
        if self.fuses_weight_decay:
            self._decay = float(decay_rate)
            return
        for group in self.changed_gradients():
            gradient, data = group.gradient.read(), group.storage.collect_data().read()
            gradient += data * data.dtype.type(decay_rate * group.decay_factor)

    @property
    def own_decay(self) -> float:
        """Weight decay that the rule uses in the next update, if it has any."""
        return float(getattr(self, "wd", 0.0)) if self._decay is None else self._decay

    # Averages -----------------------------------------------------------------------------------

    @property
    def average_decay(self) -> float | None:
        """Decay of the averages that are kept, or ``None``."""
        return self._average_decay

    def keep_average(self, decay: float | None) -> None:
        """Keep ``average <- decay average + (1 - decay) parameter`` after each update.

        An average begins as what the parameter is now, and is one more of the parameter's states:
        got, set, saved and loaded with them. ``None``: no averages any more.
        """
        new = None if decay is None else checked(decay, "decay", below=1)
        kept = {}
        for name, state in self._all_states().items():
            arrays = {key: state.pstate[key] for key in self.state_names}
            if new is not None:
                now = _as_state(self._parameters[name])
                arrays[AVERAGE] = state.pstate.get(AVERAGE, now)
            kept[name] = SolverState(state.t, arrays)
        self._average_decay = new
        self._replace(self._parameters, kept)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Let the parameters be their averages inside a ``with`` block, to evaluate or save them.

        Afterwards they are, bit for bit, what they were. There is no update inside. Raises
        `SolverError` where no averages are kept.
        """
        if self._average_decay is None:
            raise SolverError(f"solver {self.name!r} keeps no averages; call keep_average")
        states = self.get_states()
        before = {name: parameter.d.copy() for name, parameter in self._parameters.items()}
        self._averages_in_place = True
        try:
            for name, parameter in self._parameters.items():
                parameter.d = states[name].pstate[AVERAGE]
            yield
        finally:
            for name, array in before.items():
                self._parameters[name].d = array
            self._averages_in_place = False

    # States -------------------------------------------------------------------------------------

    def get_states(self) -> dict[str, SolverState]:
        """Return copies of all states by parameter."""
        known = self._all_states()
        return {
            name: known.get(name) or self._new_state(parameter)
            for name, parameter in self._parameters.items()
        }

    @property
    def kept_names(self) -> tuple[str, ...]:
        """The states of each parameter: those of the rule, and its average where one is kept."""
        return self.state_names if self._average_decay is None else (*self.state_names, AVERAGE)

    def _new_state(self, parameter: Variable) -> SolverState:
        first = _as_state(parameter)
        arrays = {key: np.zeros_like(first) for key in self.state_names}
        if self._average_decay is not None:
            arrays[AVERAGE] = first
        return SolverState(0, arrays)

    def set_states(self, states: Mapping[str, SolverState]) -> None:
        """Put states in place of those of the named parameters: all of them, or none on an error.

        Raises `SolverError` for an unknown parameter, or where names or shapes do not fit.
        """
        for name, state in states.items():
            if name not in self._parameters:
                raise SolverError(
                    f"solver {self.name!r} has no parameter {name!r} to give a state to; call "
                    "set_parameters first"
                )
            self._check_state(name, state)
        self._replace(self._parameters, {**self._all_states(), **states})

    def save_states(self, path: str | os.PathLike[str]) -> None:
        """Save all states to a file, whole or not at all; the suffix names the format."""
        write_states(path, self.name, self.get_states())

    def load_states(self, path: str | os.PathLike[str]) -> None:
        """Load what `save_states` wrote, for the same parameters: all of it, or none on an error.

        Raises `FileError` where the file is damaged, `SolverError` where it is another solver's.
        """
        self.set_states(read_states(path, self.name))

    def _all_states(self) -> dict[str, SolverState]:
        states = dict(self._kept)
        for group in self._groups:
            for name in group.parameters:
                states[name] = SolverState(group.t, group.get_state(name))
        return states

    def _check_state(self, name: str, state: SolverState) -> None:
        if set(state.pstate) != set(self.kept_names):
            raise SolverError(
                f"solver {self.name!r}: the state of {name!r} has {sorted(state.pstate)} where it "
                f"needs {sorted(self.kept_names)}"
            )
        shape = self._parameters[name].shape
        for key, array in state.pstate.items():
            if np.shape(array) != shape:
                raise SolverError(
                    f"solver {self.name!r}: state {key!r} of {name!r} has shape {np.shape(array)} "
                    f"and the parameter {shape}; set the parameter again to start it anew"
                )

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.info.items())
        return f"{self.name}({arguments})"


def _as_state(parameter: Variable) -> Array:
    """Return a copy of a parameter's elements in the dtype of states."""
    return parameter.d.astype(promote(parameter.dtype, np.dtype(np.float32)))


def _checked_rate(value: float) -> float:
    return checked(value, "learning rate")
