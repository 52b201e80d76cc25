"""nnabla's process: ``python -m benchmarks.cpu.nnabla_worker``, its threads those of OpenMP."""

from __future__ import annotations

from typing import Any

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np

from benchmarks.cpu import models
from benchmarks.cpu.arrays import INFERENCE, RULES, Arrays
from benchmarks.cpu.serving import serve


def causal_attention(query: Any, key: Any, value: Any) -> Any:
    *_, length, channels = query.shape
    hidden = np.triu(np.full((1, 1, length, length), -1e9, np.float32), 1)
    scores = F.batch_matmul(query, key, transpose_b=True) * channels**-0.5
    weights = F.softmax(scores + nn.Variable.from_numpy_array(hidden), axis=3)
    return F.batch_matmul(weights, value)


ENGINE = models.Engine(
    F=F,
    PF=PF,
    scope=nn.parameter_scope,
    constant=lambda values: nn.Variable.from_numpy_array(np.asarray(values)),
    causal_attention=causal_attention,
)


class Training:
    """Losses, each with a solver of the parameters under its path, that learn in turn."""

    def __init__(self, case: str, given: Arrays, values: Arrays) -> None:
        inputs = {name: nn.Variable(array.shape) for name, array in given.items()}
        self.given = [(inputs[name], array) for name, array in given.items()]
        self.decay = RULES[case].decay
        if case == "dcgan":
            fake = models.generator(ENGINE, inputs["noise"])
            fake.persistent = True
            seen = fake.get_unlinked_variable(need_grad=False)
            seen.persistent = True
            losses = {
                "generator": judge(fake, 1),
                "discriminator": judge(inputs["real"], 1) + judge(seen, 0),
            }
        else:
            scores = getattr(models, case)(ENGINE, inputs["x"])
            losses = {"": F.mean(F.softmax_cross_entropy(scores, inputs["y"]))}
        load(values)
        self.learners = []
        for path, loss in losses.items():
            loss.persistent = True
            solver = getattr(S, RULES[case].solver)(**RULES[case].arguments)
            chosen = {n: p for n, p in nn.get_parameters().items() if n.startswith(path)}
            solver.set_parameters(chosen)
            self.learners.append((loss, solver))

    def step(self) -> None:
        for variable, array in self.given:
            variable.d = array
        for loss, solver in self.learners:
            loss.forward(clear_no_need_grad=True)
            solver.zero_grad()
            loss.backward(clear_buffer=True)
            if self.decay:
                solver.weight_decay(self.decay)
            solver.update()

    def result(self) -> list[float]:
        return [float(loss.d) for loss, _ in self.learners]


class Inference:
    def __init__(self, case: str, given: Arrays, values: Arrays) -> None:
        self.array = given["x"]
        self.x = nn.Variable(self.array.shape)
        with nn.no_grad():
            self.y = models.resnet50(ENGINE, self.x, training=False)
        load(values)

    def step(self) -> None:
        self.x.d = self.array
        self.y.forward(clear_buffer=True)

    def result(self) -> list[float]:
        found: list[float] = np.ravel(self.y.d).tolist()
        return found


def judge(images: Any, real: int) -> Any:
    scores = models.discriminator(ENGINE, images)
    return F.mean(F.sigmoid_cross_entropy(scores, F.constant(real, scores.shape)))


def load(values: Arrays) -> None:
    parameters = nn.get_parameters(grad_only=False)
    if parameters.keys() != values.keys():
        raise KeyError(f"other parameters: {', '.join(parameters.keys() ^ values.keys())}")
    for name, parameter in parameters.items():
        parameter.d = values[name]


def build(case: str, given: Arrays, values: Arrays) -> Training | Inference:
    return (Inference if case in INFERENCE else Training)(case, given, values)


if __name__ == "__main__":
    serve(build)
