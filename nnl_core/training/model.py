"""A model: a function that computes, its parameters, and what its output is measured with."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np

from nnl_core.errors import ModelError, NnlError, PluginError
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.spec import DEFAULT_DTYPE, Spec
from nnl_core.graph.variable import Variable
from nnl_core.hooks.loading import describe, did_you_mean, resolve
from nnl_core.parameters import Scope, get_parameters, load_parameters, parameter_scope
from nnl_core.session import Session, current_session
from nnl_core.training.metrics import (
    LOSSES,
    Choice,
    Comparison,
    Metric,
    MetricChoice,
    choices,
    mean_of,
)

if TYPE_CHECKING:
    from pathlib import Path

ModelFunction: TypeAlias = Callable[..., "Variable | Mapping[str, Variable]"]


class Network(NamedTuple):
    """A model's graph for one batch size.

    ``inputs`` are the fields that the graph reads, ``outputs`` what the function returned, and
    ``measured`` the loss (where there is a target) and what the metrics are computed from.
    """

    inputs: dict[str, Variable]
    outputs: dict[str, Variable]
    measured: dict[str, Variable]


class Model:
    """A function in NNL's operators, with parameters of its own.

    The function takes fields of the data by the names of its parameters, as variables of whole
    batches, and returns its output, or a dictionary of variables: ``output`` (or else the first)
    is what ``loss`` and ``metrics`` compare with the field ``target``; ``loss`` is minimised as it
    is where no ``loss`` is given. If the function has a parameter ``training``, it is told whether
    the graph is for training; a parameter with a default may do without a field.

    Parameters
    ----------
    loss
        name of a loss (`nnl_core.training.metrics.LOSSES`), ``"module:function"``, or a function of
        output and target
    metrics
        names of metrics, of outputs, or ``"module:function"``, or tables such as
        ``{"name": "top_n_accuracy", "n": 3, "as": "top_3"}``; or, by name, functions of output and
        target, and `Metric` objects or classes
    arguments
        further arguments of the function
    """

    def __init__(
        self,
        function: ModelFunction,
        *,
        loss: str | Comparison | None = None,
        metrics: Iterable[str | Mapping[str, object]] | Mapping[str, MetricChoice | Choice] = (),
        target: str = "y",
        arguments: Mapping[str, object] | None = None,
        session: Session | None = None,
    ) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.target = target
        self.scope: Scope = {}
        self._arguments = dict(arguments or {})
        self._loss = _loss(loss) if isinstance(loss, str) else loss
        self._metrics = choices(metrics)
        self._session = session
        self._signature = self._checked_signature()

    @property
    def parameters(self) -> dict[str, Variable]:
        """All parameters by name, once a network was built or a file loaded."""
        with parameter_scope("", self.scope):
            return get_parameters(grad_only=False)

    @property
    def loss(self) -> Comparison | None:
        """What compares output and target, sample by sample; ``None``: an output is the loss."""
        return self._loss

    def load(self, path: str | Path) -> None:
        """Load the parameters from a file."""
        with parameter_scope("", self.scope):
            load_parameters(path)

    def new_metrics(self, network: Network) -> dict[str, Metric]:
        """Return an accumulator for each number that a network measures."""
        return {name: self._metric(name, network.outputs) for name in network.measured}

    def build(
        self,
        fields: Mapping[str, Spec],
        batch_size: int,
        *,
        training: bool,
        mask: str | None = None,
    ) -> Network:
        """Make the graph for batches of these fields.

        ``mask`` names the one that is 1 for samples, and 0 for those that only fill a batch: they
        are left out of the loss and of metrics.

        Raises ModelError, naming the model, for whatever goes wrong in its function.
        """
        wanted = {*self._signature.parameters, self.target, mask}
        inputs = {name: _input(spec, batch_size) for name, spec in fields.items() if name in wanted}
        arguments = self._bind(inputs, fields, training)
        try:
            with auto_forward(False), parameter_scope("", self.scope):
                returned = self.function(**arguments)
        except Exception as error:
            raise self._wrong(error, inputs) from error
        outputs = self._outputs(returned)
        measured: dict[str, Variable] = {}
        try:
            with auto_forward(False), parameter_scope("", self.scope):
                measured = self._measure(outputs, inputs.get(self.target), inputs.get(mask or ""))
        except (PluginError, ModelError):  # a metric that does not exist
            raise
        except Exception as error:
            raise self._wrong(error, inputs) from error
        return Network(inputs, outputs, measured)

    # ---------------------------------------------------------------- calling the function

    def _checked_signature(self) -> inspect.Signature:
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            raise ModelError(f"model {self.name!r} is not a function") from None
        names = list(signature.parameters)
        for name in self._arguments:
            if name not in names:
                raise ModelError(
                    f"model {self.name!r} takes no argument {name!r}"
                    f"{did_you_mean(name, names) or '; it takes ' + ', '.join(names)}"
                )
        return signature

    def _bind(
        self, inputs: Mapping[str, Variable], fields: Iterable[str], training: bool
    ) -> dict[str, object]:
        bound: dict[str, object] = {}
        for name, parameter in self._signature.parameters.items():
            if name in self._arguments:
                bound[name] = self._arguments[name]
            elif name in inputs:
                bound[name] = inputs[name]
            elif name == "training":
                bound[name] = training
            elif parameter.default is parameter.empty and parameter.kind not in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
            ):
                raise ModelError(
                    f"model {self.name!r} takes {name!r}, but the data has no such field"
                    f"{did_you_mean(name, fields) or '; it has ' + ', '.join(fields)}"
                )
        return bound

    def _wrong(self, error: Exception, inputs: Mapping[str, Variable]) -> ModelError:
        shapes = ", ".join(f"{name} {variable.shape}" for name, variable in inputs.items())
        text = str(error) if isinstance(error, NnlError) else describe(error)
        place = ""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        traceback = error.__traceback__
        while traceback is not None:
            if code is not None and traceback.tb_frame.f_code is code:
                place = f", line {traceback.tb_lineno}"
            traceback = traceback.tb_next
        return ModelError(f"model {self.name!r}{place}: {text} (on a batch of {shapes})")

    def _outputs(self, returned: object) -> dict[str, Variable]:
        outputs = {"output": returned} if isinstance(returned, Variable) else returned
        if not isinstance(outputs, Mapping) or not outputs:
            raise ModelError(
                f"model {self.name!r} returned {_brief(returned)}; return a variable, or a "
                "dictionary of variables"
            )
        for name, variable in outputs.items():
            if not isinstance(variable, Variable):
                raise ModelError(
                    f"model {self.name!r}: {name!r} is {_brief(variable)}, not a variable"
                )
        return {str(name): cast(Variable, variable) for name, variable in outputs.items()}

    # ---------------------------------------------------------------- measuring its output

    def _measure(
        self, outputs: Mapping[str, Variable], target: Variable | None, counts: Variable | None
    ) -> dict[str, Variable]:
        output = outputs.get("output", next(iter(outputs.values())))
        measured: dict[str, Variable] = {}
        if self._loss is not None:
            if target is not None:
                loss = self._loss(output, target)
                if not isinstance(loss, Variable):
                    raise ModelError(
                        f"model {self.name!r}: its loss returned {_brief(loss)}; return a variable"
                    )
                measured["loss"] = mean_of(loss, counts)
        elif "loss" in outputs:
            measured["loss"] = mean_of(outputs["loss"], counts)
        for name, choice in self._metrics.items():
            if isinstance(choice.metric, str) and choice.metric in outputs:
                measured[name] = mean_of(outputs[choice.metric], counts)
            elif target is not None:
                metric = self._metric(name, outputs)
                measured[name] = _measured(metric, name, output, target, counts)
        return measured

    def _metric(self, name: str, outputs: Mapping[str, Variable]) -> Metric:
        """Return a new metric; means of outputs and of the loss are metrics, too."""
        choice = self._metrics.get(name, Choice("loss", higher_is_better=False))
        if choice.metric == "loss" or (isinstance(choice.metric, str) and choice.metric in outputs):
            choice = choice._replace(metric=Metric())
        return choice.make(name, self._session or current_session())


def _measured(
    metric: Metric, name: str, output: Variable, target: Variable, counts: Variable | None
) -> Variable:
    measure: Callable[..., Variable] = metric.measure
    options = {} if counts is None else {"counts": counts}
    try:
        if counts is not None and "counts" not in inspect.signature(measure).parameters:
            raise ModelError(
                "its measure takes no counts, and cannot leave out what fills a padded batch; "
                "keep or drop the last batch instead"
            )
        measured = measure(output, target, **options)
        if not isinstance(measured, Variable):
            raise ModelError(f"it measured {_brief(measured)}; return a variable")
    except Exception as error:
        text = str(error) if isinstance(error, NnlError) else describe(error)
        raise NnlError(f"metric {name!r}: {text}") from error
    return measured


def _loss(name: str) -> Comparison:
    if ":" in name:
        return cast(Comparison, resolve(name, f"loss {name!r}"))
    if name not in LOSSES:
        hint = did_you_mean(name, LOSSES) or f"; known: {', '.join(LOSSES)}"
        raise ModelError(f"unknown loss {name!r}{hint}; or write 'module:function'")
    return LOSSES[name]


def _brief(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return reprlib.repr(value)


def _input(spec: Spec, batch_size: int) -> Variable:
    """Return the variable of a field: floating fields are float32, all others int32."""
    dtype = DEFAULT_DTYPE if is_floating(spec.dtype) else np.dtype(np.int32)
    return Variable((batch_size, *spec.shape), dtype=dtype)
