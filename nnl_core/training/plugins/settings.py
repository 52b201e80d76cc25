"""Settings of the built-in plugins: their tables ``[plugin.NAME]`` in the project file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nnl_core.settings import Finite, Table


class EarlyStoppingSettings(Table):
    """``patience`` is how many measurements may pass without ``metric`` getting better.

    Better is by more than ``min_delta``, in the metric's own direction unless ``mode`` says which.
    """

    metric: str = "validation/loss"
    patience: PositiveInt = 5
    min_delta: Annotated[Finite, Field(ge=0)] = 0.0
    mode: Literal["min", "max"] | None = None


class GradientWatchSettings(Table):
    """Norms are reported every so many steps."""

    every: PositiveInt = 10


class LearningRateFinderSettings(Table):
    """The rate rises from ``start`` to ``end`` in ``steps`` steps, by the same factor at each.

    The loss is averaged over steps with the factor ``smoothing``; the sweep ends early where it
    is ``diverged`` times its smallest value.
    """

    start: PositiveFloat = 1e-6
    end: PositiveFloat = 10.0
    steps: Annotated[int, Field(ge=10)] = 100
    smoothing: Annotated[Finite, Field(ge=0, lt=1)] = 0.9
    diverged: Annotated[Finite, Field(gt=1)] = 4.0

    @model_validator(mode="after")
    def _upwards(self) -> LearningRateFinderSettings:
        if self.end <= self.start:
            raise ValueError(f"end = {self.end} must be above start = {self.start}")
        return self
