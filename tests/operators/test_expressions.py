"""Every elementwise expression of the core, as C in one translation unit, against its reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from nnl_core.graph.operator import Array, Operator, Sample
from nnl_core.graph.spec import Spec
from nnl_core.testing import operators
from nnl_core.testing.expressions import ExpressionCase, c_compiler, compile_expressions

COMPILER = c_compiler()
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")

ELEMENTWISE = [operator for operator in operators("nnl") if operator.is_elementwise]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1000.0], np.float32)
MOST_INPUTS = 3  # of which every combination of special values is tried


def samples_of(operator: Operator) -> Iterator[Sample]:
    """The operator's own samples, and one of special values in place of each floating input."""
    plain = [
        sample
        for sample in operator.iterate_samples(np.random.default_rng(0))
        if len(sample.inputs) == len(operator.parameters.inputs)
        and all(array is not None for array in sample.inputs)
    ]
    yield from plain
    floating = [s for s in plain if all(a.dtype.kind == "f" for a in s.inputs)]
    count = len(operator.parameters.inputs)
    if floating and count <= MOST_INPUTS:
        yield Sample(*np.meshgrid(*[SPECIAL] * count), **floating[0].attributes)


def in_float32(sample: Sample) -> list[Array]:
    return [a.astype(np.float32) if a.dtype.kind == "f" else a for a in sample.inputs]


@pytest.fixture(scope="module")
def compiled() -> dict[str, list[tuple[Sample, Callable[..., Array]]]]:
    """All expressions with all their attributes, compiled at once."""
    cases, owners = [], []
    for operator in ELEMENTWISE:
        for sample in samples_of(operator):
            attributes = operator.bind_attributes(sample.attributes)
            specs = [Spec.of(array) for array in in_float32(sample)]
            (spec,) = operator.infer_specs(specs, attributes)
            cases.append(ExpressionCase(operator, attributes, spec))
            owners.append((operator.name, sample))
    assert COMPILER is not None
    result: dict[str, list[tuple[Sample, Callable[..., Array]]]] = {}
    for (name, sample), function in zip(owners, compile_expressions(cases, COMPILER), strict=True):
        result.setdefault(name, []).append((sample, function))
    return result


@pytest.mark.parametrize("operator", ELEMENTWISE, ids=str)
def test_the_expression_computes_what_the_reference_does(operator, compiled):
    for sample, function in compiled[operator.name]:
        inputs = in_float32(sample)
        attributes = operator.bind_attributes(sample.attributes)
        with np.errstate(all="ignore"):
            expected = np.asarray(operator.reference(*inputs, **attributes))
        result = function(*inputs)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(
                result.astype(expected.dtype),
                expected,
                rtol=1e-5,
                atol=1e-6,
                equal_nan=True,
                err_msg=f"{sample!r}",
            )
