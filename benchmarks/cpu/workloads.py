"""NNL's side of the benchmark: each workload as a user would write it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import nnl_core as nnl
from benchmarks.cpu import models
from benchmarks.cpu.arrays import INFERENCE, RULES, Array, Arrays, Rule, batch, first_values
from nnl_core import PF, F, S
from nnl_core.parameters import set_parameter

Scope = dict[str, Any]

ENGINE = models.Engine(
    F=F,
    PF=PF,
    scope=nnl.parameter_scope,
    constant=lambda values: nnl.Variable.from_numpy_array(np.asarray(values, np.int32)),
    causal_attention=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, causal=True),
)


class Workload(ABC):
    """A network with its batch, ready to train or to infer."""

    def __init__(self, scope: Scope, given: Sequence[tuple[nnl.Variable, Array]]) -> None:
        self.scope = scope
        self.given = given

    def step(self) -> None:
        """Do one training step, or one inference, on inputs that are written anew."""
        for variable, array in self.given:
            variable.d = array
        self.compute()

    @abstractmethod
    def compute(self) -> None:
        """Do the step on what the inputs hold."""

    @abstractmethod
    def loss(self) -> float | Array:
        """Return the loss of the last step, summed over networks, or what was inferred."""

    def parameters(self) -> Arrays:
        """Return copies of all parameters by name, in the order in which they were made."""
        found = _parameters(self.scope, "", grad_only=False)
        return {name: np.array(value.d) for name, value in found.items()}


class Training(Workload):
    """Losses, each with a solver of the parameters under its path, that learn in turn."""

    def __init__(
        self,
        scope: Scope,
        given: Sequence[tuple[nnl.Variable, Array]],
        losses: Mapping[str, nnl.Variable],
        rule: Rule,
        outputs: Sequence[nnl.Variable],
    ) -> None:
        super().__init__(scope, given)
        self.losses = list(losses.values())
        self.steps = []
        for path, loss in losses.items():
            solver = getattr(S, rule.solver)(**rule.arguments)
            solver.set_parameters(_parameters(scope, path))
            step = nnl.compile_step(loss, solver, weight_decay=rule.decay, outputs=outputs)
            self.steps.append(step)
            outputs = ()

    def compute(self) -> None:
        for step in self.steps:
            step.run()

    def loss(self) -> float:
        return sum(self.each_loss())

    def each_loss(self) -> list[float]:
        """Return the losses of the last step."""
        return [float(loss.d.item()) for loss in self.losses]


class Inference(Workload):
    """A network's forward pass alone."""

    def __init__(
        self, scope: Scope, given: Sequence[tuple[nnl.Variable, Array]], y: nnl.Variable
    ) -> None:
        super().__init__(scope, given)
        self.y = y

    def compute(self) -> None:
        self.y.forward(clear_buffer=True)

    def loss(self) -> Array:
        return np.array(self.y.d)


def build(
    case: str,
    parameters: Mapping[str, Array] | None = None,
    dtype: str = "f4",
    given: Mapping[str, Array] | None = None,
) -> Workload:
    """Return a workload of `arrays.CASES`, on the backend in use.

    ``parameters`` are first values, by default `arrays.first_values`, ``given`` is the batch, by
    default `arrays.batch`. ``dtype`` is that of all that is floating.
    """
    scope: Scope = {}
    if dtype != "f4":  # a layer takes parameters that exist as they are
        single = build(case).scope
        with nnl.parameter_scope("", scope):
            for name, parameter in _parameters(single, "", grad_only=False).items():
                wide = nnl.Parameter(parameter.shape, parameter.need_grad, dtype, name)
                set_parameter(name, wide)
    arrays = {
        name: array.astype(dtype) if array.dtype.kind == "f" else array
        for name, array in (given or batch(case)).items()
    }
    inputs = {name: nnl.Variable(a.shape, dtype=a.dtype) for name, a in arrays.items()}
    with nnl.parameter_scope("", scope):
        outputs: list[nnl.Variable] = []
        if case in INFERENCE:
            with nnl.no_grad():
                outputs = [models.resnet50(ENGINE, inputs["x"], training=False)]
        elif case == "dcgan":
            losses, outputs = _adversarial(inputs)
        else:
            network: Callable[[models.Engine, nnl.Variable], nnl.Variable] = getattr(models, case)
            scores = network(ENGINE, inputs["x"])
            losses = {"": F.mean(F.softmax_cross_entropy(scores, inputs["y"]))}
        named = nnl.get_parameters(grad_only=False)
        if parameters is None:
            parameters = first_values({name: value.shape for name, value in named.items()})
        for name, value in named.items():
            value.d = parameters[name]
    written = [(inputs[name], array) for name, array in arrays.items()]
    if case in INFERENCE:
        return Inference(scope, written, outputs[0])
    return Training(scope, written, losses, RULES[case], outputs)


def _adversarial(
    inputs: Mapping[str, nnl.Variable],
) -> tuple[dict[str, nnl.Variable], list[nnl.Variable]]:
    """Return the losses of generator and discriminator, and the images that both are told of.

    The discriminator learns from the images of the generator's step, which comes first.
    """
    fake = models.generator(ENGINE, inputs["noise"])
    convincing = _judge(fake, 1)
    seen = fake.get_unlinked_variable(need_grad=False)
    telling = _judge(inputs["real"], 1) + _judge(seen, 0)
    return {"generator": convincing, "discriminator": telling}, [fake]


def _judge(images: nnl.Variable, real: int) -> nnl.Variable:
    scores = models.discriminator(ENGINE, images)
    target = F.constant(real, scores.shape)
    loss: nnl.Variable = F.mean(F.sigmoid_cross_entropy(scores, target))
    return loss


def _parameters(scope: Scope, path: str, grad_only: bool = True) -> dict[str, nnl.Variable]:
    with nnl.parameter_scope(path, scope):
        return nnl.get_parameters(grad_only=grad_only)
