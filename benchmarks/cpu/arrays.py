"""What every engine is given alike: batches, and the first values of parameters."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]

TRAINING = ("tiny", "mlp", "lenet", "resnet20", "gpt", "dcgan", "lstm")
INFERENCE = ("resnet50-1", "resnet50-8")
CASES = (*TRAINING, *INFERENCE)


class Rule(NamedTuple):
    """How a workload learns: a solver of NNL's and nnabla's, its arguments, and weight decay."""

    solver: str
    arguments: dict[str, float]
    decay: float = 0.0


RULES = {
    "tiny": Rule("Sgd", {"lr": 0.1}),
    "mlp": Rule("Momentum", {"lr": 0.01, "momentum": 0.9}),
    "lenet": Rule("Momentum", {"lr": 0.01, "momentum": 0.9}),
    "resnet20": Rule("Momentum", {"lr": 0.01, "momentum": 0.9}, decay=1e-4),
    # Small steps: larger ones make much of the roundings of so deep a network.
    "resnet50": Rule("Momentum", {"lr": 0.001, "momentum": 0.9}, decay=1e-4),
    "gpt": Rule("Adam", {"alpha": 3e-4}),
    "dcgan": Rule("Adam", {"alpha": 2e-5, "beta1": 0.5}),  # ten times as much amplifies rounding
    "lstm": Rule("Sgd", {"lr": 0.1}),
}


def batch(case: str) -> Arrays:
    """Return the arrays of a batch by the names of the network's inputs; ``y`` are labels."""
    rng = np.random.default_rng(zlib.crc32(case.encode()))

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, dtype=np.float32)

    def labels(count: int, *shape: int) -> Array:
        return rng.integers(0, count, shape, dtype=np.int32)

    if case.startswith("resnet50-"):
        return {"x": normal(int(case.removeprefix("resnet50-")), 3, 224, 224)}
    match case:
        case "tiny":
            return {"x": normal(32, 2), "y": labels(2, 32, 1)}
        case "mlp":
            return {"x": normal(128, 784), "y": labels(10, 128, 1)}
        case "lenet":
            return {"x": normal(128, 1, 28, 28), "y": labels(10, 128, 1)}
        case "resnet20":
            return {"x": normal(64, 3, 32, 32), "y": labels(10, 64, 1)}
        case "resnet50":
            return {"x": normal(64, 3, 224, 224), "y": labels(1000, 64, 1)}
        case "gpt":
            text = labels(256, 8, 129)
            return {"x": text[:, :-1].copy(), "y": text[:, 1:, None].copy()}
        case "dcgan":
            return {"noise": normal(16, 100, 1, 1), "real": np.tanh(normal(16, 3, 64, 64))}
        case "lstm":
            text = labels(1000, 36, 20)
            return {"x": text[:-1].copy(), "y": text[1:, :, None].copy()}
    raise KeyError(case)


def first_values(shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Return arrays for parameters by name: weights by fan-in, statistics as after some training.

    Each is drawn by itself, from its name.
    """
    return {name: _first_value(name, shape) for name, shape in shapes.items()}


def _first_value(name: str, shape: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    kind = name.rpartition("/")[2]
    if kind in ("b", "beta", "bias", "mean"):
        spread, centre = 0.02, 0.0
    elif kind in ("gamma", "var"):
        spread, centre = 0.05, 1.0
    elif "embed/" in name or name.startswith("generator/"):
        spread, centre = 0.02, 0.0
    elif kind.startswith("weight"):  # of a recurrent layer: inputs and states are the last axis
        spread, centre = 1 / math.sqrt(shape[-1]), 0.0
    else:
        fan_in = shape[0] if len(shape) == 2 else math.prod(shape[1:])
        spread, centre = 1 / math.sqrt(fan_in), 0.0
    return (centre + spread * rng.standard_normal(shape)).astype(np.float32)
