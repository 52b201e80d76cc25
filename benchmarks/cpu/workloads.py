"""NNL's side of the benchmark: each workload as a user would write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

import nnl_core as nnl
from benchmarks.cpu import models
from benchmarks.cpu.arrays import RULES, TRAINING, Array, Arrays, batch, first_values
from nnl_core import PF, F, S

Scope = dict[str, Any]

ENGINE = models.Engine(
    F=F,
    PF=PF,
    scope=nnl.parameter_scope,
    constant=lambda values: nnl.Variable.from_numpy_array(np.asarray(values, np.int32)),
    causal_attention=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, causal=True),
)


class Workload(Protocol):
    """A network with its batch, ready to train or to infer."""

    def step(self) -> None:
        """Do one training step, or one inference."""

    def loss(self) -> float | Array:
        """Return the loss of the last step, or the output of the last inference."""

    def parameters(self) -> Arrays:
        """Return copies of all parameters by name, in the order in which they were made."""


class Training:
    """Losses, each with a solver of its own parameters; a step makes one step of each in turn."""

    def __init__(
        self,
        scope: Scope,
        given: Mapping[str, tuple[nnl.Variable, Array]],
        losses: Sequence[tuple[nnl.Variable, str]],
        rule: tuple[str, dict[str, float], float],
        outputs: Sequence[nnl.Variable] = (),
    ) -> None:
        self.scope = scope
        self.given = given
        self.losses = [loss for loss, _ in losses]
        self.steps = []
        name, arguments, decay = rule
        for number, (loss, path) in enumerate(losses):
            solver = getattr(S, name)(**arguments)
            solver.set_parameters(_parameters(scope, path))
            kept = outputs if number == 0 else ()
            step = nnl.compile_step(loss, solver, weight_decay=decay, outputs=kept)
            self.steps.append(step)

    def step(self) -> None:
        for variable, array in self.given.values():
            variable.d = array
        for step in self.steps:
            step.run()

    def loss(self) -> float:
        return float(sum(loss.d.item() for loss in self.losses))

    def parameters(self) -> Arrays:
        return _values(self.scope)


class Inference:
    """A network's forward pass alone."""

    def __init__(self, scope: Scope, x: nnl.Variable, array: Array, y: nnl.Variable) -> None:
        self.scope = scope
        self.x, self.array, self.y = x, array, y

    def step(self) -> None:
        self.x.d = self.array
        self.y.forward(clear_buffer=True)

    def loss(self) -> Array:
        return np.array(self.y.d)

    def parameters(self) -> Arrays:
        return _values(self.scope)


def build(case: str, parameters: Mapping[str, Array] | None = None, dtype: str = "f4") -> Workload:
    """Return a workload of `arrays.CASES`, on the backend in use, from the given first values.

    By default they are `arrays.first_values`. ``dtype`` is that of all that is floating.
    """
    scope: Scope = {}
    arrays = {
        name: array.astype(dtype) if array.dtype.kind == "f" else array
        for name, array in batch(case).items()
    }
    inputs = {name: nnl.Variable(a.shape, dtype=a.dtype) for name, a in arrays.items()}
    given = {name: (inputs[name], array) for name, array in arrays.items()}
    with nnl.parameter_scope("", scope):
        if case not in TRAINING:
            x = inputs["x"]
            with nnl.no_grad():
                y = models.resnet50(ENGINE, x)
            _initialise(scope, parameters, dtype)
            return Inference(scope, x, arrays["x"], y)
        if case == "dcgan":
            return _adversarial(scope, inputs, given, parameters, dtype)
        network: Callable[[models.Engine, nnl.Variable], nnl.Variable] = getattr(models, case)
        scores = network(ENGINE, inputs["x"])
        loss = F.mean(F.softmax_cross_entropy(scores, inputs["y"]))
        _initialise(scope, parameters, dtype)
        return Training(scope, given, [(loss, "")], RULES[case])


def _adversarial(
    scope: Scope,
    inputs: Mapping[str, nnl.Variable],
    given: Mapping[str, tuple[nnl.Variable, Array]],
    parameters: Mapping[str, Array] | None,
    dtype: str,
) -> Training:
    """Return the two networks of the DCGAN: the discriminator sees the images of the step before it."""
    fake = models.generator(ENGINE, inputs["noise"])
    convincing = _judge(fake, 1)
    seen = fake.get_unlinked_variable(need_grad=False)
    telling = _judge(inputs["real"], 1) + _judge(seen, 0)
    _initialise(scope, parameters, dtype)
    losses = [(convincing, "generator"), (telling, "discriminator")]
    return Training(scope, given, losses, RULES["dcgan"], outputs=[fake])


def _judge(images: nnl.Variable, real: int) -> nnl.Variable:
    scores = models.discriminator(ENGINE, images)
    target = F.constant(real, scores.shape)
    loss: nnl.Variable = F.mean(F.sigmoid_cross_entropy(scores, target))
    return loss


def _initialise(scope: Scope, values: Mapping[str, Array] | None, dtype: str) -> None:
    parameters = _parameters(scope, "", grad_only=False)
    if values is None:
        values = first_values({name: value.shape for name, value in parameters.items()})
    for name, parameter in parameters.items():
        parameter.data.cast(np.dtype(dtype))
        parameter.d = values[name]


def _parameters(scope: Scope, path: str, grad_only: bool = True) -> dict[str, nnl.Variable]:
    with nnl.parameter_scope(path, scope):
        return nnl.get_parameters(grad_only=grad_only)


def _values(scope: Scope) -> Arrays:
    return {name: np.array(p.d) for name, p in _parameters(scope, "", grad_only=False).items()}
