"""What holds for every operator there is, on every backend that works here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import Variable
from nnl_core.errors import NotDifferentiableError
from nnl_core.graph import operator as operator_module
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.execute import forward_all
from nnl_core.graph.operator import Operator, Sample, defop
from nnl_core.testing import OperatorCheckError, check_operator, operators

OPERATORS = operators("nnl")
each_operator = pytest.mark.parametrize("operator", OPERATORS, ids=str)

NOT_DIFFERENTIABLE = {"binary_error", "inq", "quantization_range", "top_n_error"}
"""Operators from floating numbers to floating numbers that have no gradient: counts and states."""


def samples(operator: Operator) -> Iterator[Sample]:
    return operator.iterate_samples(np.random.default_rng(0))


def floating(variables: object) -> list[Variable]:
    found = variables if isinstance(variables, (tuple, list)) else [variables]
    return [v for v in found if v is not None and is_floating(v.dtype)]


def calls(operator: Operator) -> Iterator[tuple[list[Variable], list[Variable]]]:
    """Yield floating leaves and outputs of each sample that has both."""
    for sample in samples(operator):
        inputs = [
            None
            if array is None
            else Variable.from_numpy_array(array, need_grad=is_floating(array.dtype))
            for array in sample.inputs
        ]
        outputs = floating(operator(*inputs, **sample.attributes))
        leaves = floating(inputs)
        if leaves and outputs:
            yield leaves, outputs


def ones(variables: list[Variable]) -> list[Variable]:
    return [Variable.from_numpy_array(np.ones(v.shape, v.dtype), need_grad=True) for v in variables]


@each_operator
def test_operator_keeps_its_promises(operator: Operator, backend: str) -> None:
    check_operator(operator, backend)


@each_operator
def test_each_operator_has_samples(operator: Operator) -> None:
    assert operator.has_samples and next(samples(operator), None) is not None


@each_operator
def test_each_operator_says_what_it_means(operator: Operator) -> None:
    assert (operator.__doc__ or "").strip()


@each_operator
def test_each_operator_is_differentiable_twice_or_names_itself(operator: Operator) -> None:
    """The second gradient is that of all first ones, in the inputs and in what came from above."""
    for leaves, outputs in islice(calls(operator), 3):
        seeds = ones(outputs)
        if operator.__name__ in NOT_DIFFERENTIABLE:
            with pytest.raises(NotDifferentiableError, match=operator.name):
                nnl.grad(outputs, leaves, seeds)
            continue
        first = nnl.grad(outputs, leaves, seeds, allow_unused=True)
        both = [*leaves, *seeds]
        second = nnl.grad(first, both, ones(first), allow_unused=True)
        assert [g.shape for g in first] == [x.shape for x in leaves]
        assert [g.shape for g in second] == [x.shape for x in both]
        assert [g.dtype for g in second] == [x.dtype for x in both]
        forward_all([*first, *second])


def test_what_is_not_differentiable_is_there() -> None:
    assert {f"nnl::{name}" for name in NOT_DIFFERENTIABLE} <= {op.name for op in OPERATORS}


# A stranger's namespace --------------------------------------------------------------------------


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Operator:
    """Define an operator of a namespace that nobody else uses."""
    monkeypatch.setattr(operator_module, "_registry", dict(operator_module._registry))

    @defop("stranger::twice", save=("x",))
    def twice(x: np.ndarray) -> np.ndarray:
        return x + x

    twice.infer(lambda x: x)
    return twice


def test_a_stranger_s_operator_without_samples_fails_the_check(stranger: Operator) -> None:
    with pytest.raises(OperatorCheckError, match="stranger::twice: it has no samples"):
        for operator in operators("stranger"):
            check_operator(operator)


def test_a_stranger_s_samples_that_are_none_fail_the_check(stranger: Operator) -> None:
    stranger.samples(lambda rng: iter(()))
    with pytest.raises(OperatorCheckError, match="stranger::twice: its samples rule yields none"):
        check_operator("stranger::twice")


def test_a_stranger_s_operator_without_a_gradient_names_itself(stranger: Operator) -> None:
    x = Variable.from_numpy_array(np.ones(2), need_grad=True)
    with pytest.raises(NotDifferentiableError, match="stranger::twice"):
        nnl.grad(stranger(x), x)


def test_a_stranger_s_gradient_that_has_none_is_named_at_the_second_derivative(
    stranger: Operator,
) -> None:
    """Zeros in its place would be wrong in silence."""

    @defop("stranger::slope")
    def slope(g: np.ndarray, x: np.ndarray) -> np.ndarray:
        return 2 * g

    slope.infer(lambda g, x: x)
    stranger.vjp(lambda g, y, x: (slope(g, x),))
    x = Variable.from_numpy_array(np.ones(2), need_grad=True)
    (first,) = nnl.grad(stranger(x), x)
    np.testing.assert_array_equal(first.d, [2, 2])
    with pytest.raises(NotDifferentiableError, match="stranger::slope"):
        nnl.grad(first, x)
