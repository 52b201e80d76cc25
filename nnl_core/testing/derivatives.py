"""First and second derivatives of an operator against central differences in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from nnl_core.errors import NotDifferentiableError
from nnl_core.graph.autodiff import gradient_table, key_of
from nnl_core.graph.backend import backend_scope
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.execute import forward_all
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.operator import Array, Operator
from nnl_core.graph.structure import topological
from nnl_core.graph.variable import Variable
from nnl_core.testing.arrays import Values, cast_floating, floating_dtypes

STEP = 1e-4
PROJECTIONS = 2

Fail = Callable[[str, str], None]


def check_derivatives(
    operator: Operator,
    inputs: Values,
    attributes: Mapping[str, object],
    generator: np.random.Generator,
    fail: Fail,
    tolerance: float,
) -> None:
    """Call ``fail(check, numbers)`` where the gradient rule, or its own gradient, is wrong.

    ``inputs`` hold float64 where they are floating. Inputs for which the rule returns ``None`` are
    left alone; a surrogate is only asked for shapes and dtypes; a chain that ends in
    `NotDifferentiableError` is accepted.
    """
    for dtype in reversed(floating_dtypes()):
        graph = _GradientGraph(operator, cast_floating(inputs, dtype), attributes, generator)
        for used in graph.output_choices():
            gradients = graph.differentiate(used, fail)
            if gradients is None:
                return
            is_surrogate = operator.is_surrogate(dict(attributes))
            if dtype == np.float64 and not is_surrogate and gradients:
                for _ in range(PROJECTIONS):
                    graph.draw(generator)
                    graph.check_first(gradients, generator, fail, tolerance)
                    graph.check_second(gradients, generator, fail, tolerance)


class _GradientGraph:
    """One call of an operator on variables, and the gradients of a projection of its outputs."""

    def __init__(
        self,
        operator: Operator,
        inputs: Values,
        attributes: Mapping[str, object],
        generator: np.random.Generator,
    ) -> None:
        self.operator, self.attributes = operator, attributes
        self.values = list(inputs)
        self.variables = [
            None
            if array is None
            else Variable.from_numpy_array(array, need_grad=is_floating(array.dtype))
            for array in inputs
        ]
        with auto_forward(False):
            result = operator(*self.variables, **attributes)
        self.outputs: tuple[Variable, ...] = result if isinstance(result, tuple) else (result,)
        self.weights: list[Variable | None] = [
            Variable(y.shape, need_grad=True, dtype=y.dtype) if is_floating(y.dtype) else None
            for y in self.outputs
        ]
        self.used: tuple[int, ...] = ()
        self.finite = [np.isfinite(y) for y in self.evaluate(self.values)]
        self.is_finite = all(one.all() for one in self.finite) and all(
            np.isfinite(one).all() for one in self.values if one is not None
        )
        self.draw(generator)

    def draw(self, generator: np.random.Generator) -> None:
        """Choose another projection, of what is finite."""
        for weight, finite in zip(self.weights, self.finite, strict=True):
            if weight is not None:
                drawn = generator.normal(size=weight.shape) * finite
                weight.d = drawn.astype(weight.dtype)

    def output_choices(self) -> list[tuple[int, ...]]:
        """All floating outputs together, and each alone: a rule must cope with unused ones."""
        floating = tuple(i for i, weight in enumerate(self.weights) if weight is not None)
        if not floating:
            return []
        return [floating, *((i,) for i in floating if len(self.outputs) > 1)]

    def differentiate(self, used: tuple[int, ...], fail: Fail) -> dict[int, Variable] | None:
        """Return gradient variables by input position; ``None`` where the operator has no rule."""
        self.used = used
        wanted = {
            position: variable
            for position, variable in enumerate(self.variables)
            if variable is not None and is_floating(variable.dtype)
        }
        if not wanted:
            return {}
        seeds = [self.weights[i] for i in used]
        try:
            with auto_forward(False):
                table = gradient_table(
                    [self.outputs[i] for i in used],
                    [seed for seed in seeds if seed is not None],
                    {key_of(variable) for variable in wanted.values()},
                )
        except NotDifferentiableError:
            return None
        except Exception as error:
            fail("vjp", f"the rule raises {type(error).__name__}: {error}")
            return None
        gradients = {}
        for position, variable in wanted.items():
            gradient = table.get(key_of(variable))
            if gradient is None:
                continue
            if gradient.spec != variable.spec:
                fail(
                    "vjp",
                    f"the gradient of input {self.name(position)} is "
                    f"{gradient.dtype}{gradient.shape}, the input {variable.dtype}"
                    f"{variable.shape}",
                )
            gradients[position] = gradient
        return gradients

    def check_first(
        self,
        gradients: Mapping[int, Variable],
        generator: np.random.Generator,
        fail: Fail,
        tolerance: float,
    ) -> None:
        """Compare directional derivatives with central differences of the reference."""
        values = self.run(list(gradients.values()), fail, "vjp")
        for (position, _), gradient in zip(gradients.items(), values, strict=True):
            source = self.values[position]
            assert source is not None
            direction = generator.uniform(-1, 1, size=source.shape) * np.isfinite(source)

            def along(step: float, at: int = position, d: Array = direction) -> tuple[float, float]:
                return self.project(at, step * d)

            numeric, noise = central_difference(along)
            if not self.is_finite:  # then 0 * NaN is NaN where the result is left out
                gradient = np.where(np.isfinite(gradient), gradient, 0)
            terms = np.where(direction == 0, 0, gradient) * direction
            _compare("vjp", self.name(position), terms, numeric, noise, 1e-6 * tolerance, fail)

    def check_second(
        self,
        gradients: Mapping[int, Variable],
        generator: np.random.Generator,
        fail: Fail,
        tolerance: float,
    ) -> None:
        """Compare the gradient of a directional gradient with central differences of it."""
        if not self.is_finite:
            return
        parts, total = _directional(list(gradients.values()), generator)
        names = [self.name(p) for p in gradients]
        names += [f"gradient of output {self.output_name(i)!r}" for i in self.used]
        sources = [self.variables[p] for p in gradients]
        sources += [self.weights[i] for i in self.used]
        try:
            with auto_forward(False):
                table = gradient_table(
                    [total],
                    [Variable.from_numpy_array(np.ones(total.shape))],
                    {key_of(source) for source in sources if source is not None},
                )
        except NotDifferentiableError:
            return
        except Exception as error:
            fail("second vjp", f"a rule on the way raises {type(error).__name__}: {error}")
            return
        surrogate = any(
            node.operator.is_surrogate(node.attributes) for node in topological([total])
        )
        for name, source in zip(names, sources, strict=True):
            assert source is not None
            second = table.get(key_of(source))
            if second is not None and second.spec != source.spec:
                fail("second vjp", f"for {name}: {second.spec} in place of {source.spec}")
            if surrogate:
                continue
            value = (
                np.zeros(source.shape)
                if second is None
                else self.run([second], fail, "second vjp")[0]
            )
            direction = generator.uniform(-1, 1, size=source.shape)
            start = np.array(source.d)

            def along(
                step: float, v: Variable = source, x: Array = start, d: Array = direction
            ) -> tuple[float, float]:
                v.d = x + step * d
                terms = self.run(parts, fail, "second vjp")
                v.d = x
                return sum(float(t.sum()) for t in terms), sum(float(abs(t).sum()) for t in terms)

            numeric, noise = central_difference(along)
            _compare("second vjp", name, value * direction, numeric, noise, 1e-5 * tolerance, fail)

    def evaluate(self, inputs: Values) -> tuple[Array, ...]:
        """Run the reference."""
        with np.errstate(all="ignore"):
            return self.operator.evaluate(inputs, dict(self.attributes))

    def project(self, position: int, change: Array) -> tuple[float, float]:
        """Return the weighted sum of the outputs with one input changed, and that of magnitudes."""
        inputs = [None if a is None else a.copy() for a in self.values]
        moved = inputs[position]
        assert moved is not None
        inputs[position] = moved + change
        results = self.evaluate(inputs)
        total = magnitude = 0.0
        for index in self.used:
            weight = self.weights[index]
            assert weight is not None
            terms = np.where(weight.d == 0, 0, results[index]) * weight.d
            total += float(terms.sum())
            magnitude += float(np.abs(terms).sum())
        return total, magnitude

    def run(self, variables: list[Variable], fail: Fail, check: str) -> list[Array]:
        """Compute variables on the reference backend."""
        try:
            with backend_scope("numpy"):
                forward_all(variables)
                return [np.array(variable.d) for variable in variables]
        except Exception as error:
            fail(check, f"running the gradient raises {type(error).__name__}: {error}")
            return [np.zeros(variable.shape) for variable in variables]

    def output_name(self, index: int) -> str:
        """Return an output's name for an error."""
        names = self.operator.outputs
        return names[index] if index < len(names) else f"{names[0]}[{index}]"

    def name(self, position: int) -> str:
        """Return an input's name for an error."""
        return repr(self.operator.input_name(position))


def _directional(
    gradients: list[Variable], generator: np.random.Generator
) -> tuple[list[Variable], Variable]:
    """Return the gradients times fixed random directions, and the sum of it all."""
    from nnl_core import functions

    with auto_forward(False):
        parts = [
            functions.mul(g, Variable.from_numpy_array(generator.uniform(-1, 1, size=g.shape)))
            for g in gradients
        ]
        sums = [functions.sum_to(part, shape=()) for part in parts]
        total = sums[0]
        for one in sums[1:]:
            total = functions.add(total, one)
    return parts, total


def central_difference(function: Callable[[float], tuple[float, float]]) -> tuple[float, float]:
    """Return the derivative at 0 by the fourth-order stencil, and how far rounding may put it off.

    ``function`` returns its value and the magnitude of the terms that it sums.
    """
    (left2, _), (left, _), (right, size), (right2, _) = (
        function(step * STEP) for step in (-2, -1, 1, 2)
    )
    numeric = (8 * (right - left) - (right2 - left2)) / (12 * STEP)
    return numeric, 16 * np.finfo(np.float64).eps * size / STEP


def _compare(
    check: str,
    name: str,
    terms: Array,
    numeric: float,
    noise: float,
    tolerance: float,
    fail: Fail,
) -> None:
    analytic = float(terms.sum())
    allowed = tolerance * max(float(np.abs(terms).sum()), abs(numeric), 1e-3) + noise
    if math.isnan(analytic) and math.isnan(numeric):
        return
    if not abs(analytic - numeric) <= allowed:
        fail(
            check,
            f"for {name} along a random direction: {analytic:.8g} by the rule, {numeric:.8g} by "
            f"central differences (allowed difference {allowed:.1e})",
        )
