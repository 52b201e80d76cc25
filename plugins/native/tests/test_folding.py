"""Batch normalisation by running statistics is folded into what comes before it."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, Variable
from nnl_core.data import ArraySource
from nnl_core.graph.backend import current_backend
from nnl_core.graph.execute import ForwardPlan
from nnl_core.session import current_session
from nnl_core.training import Model, Predictor


@pytest.fixture(autouse=True)
def scope():
    with nnl.parameter_scope("", {}):
        yield


def normalized(x, **options):
    return PF.batch_normalization(x, batch_stat=False, **options)


def fill(seed=0):
    """Give parameters values of which no two do the same."""
    generator = np.random.default_rng(seed)
    for name, parameter in nnl.get_parameters(grad_only=False).items():
        if name.endswith(("gamma", "var")):
            parameter.d = generator.uniform(0.5, 1.5, parameter.shape)
        else:
            parameter.d = generator.normal(0, 0.5, parameter.shape)


def plan_of(y, keep="asked"):
    return ForwardPlan([y], current_backend(), keep, optimize=True)


def operators_of_a_run(y, keep="asked"):
    """Return the names of what a run computes when it is prepared."""
    program = plan_of(y, keep).program
    instructions = program.graph.instructions[program.prologue.length :]
    return {m.label for i in instructions for m in i.members or (i,)}


NETWORKS = {
    "convolution": ((2, 3, 9, 8), lambda x: PF.convolution(x, 4, (3, 3))),
    "without a bias": ((2, 3, 9, 8), lambda x: PF.convolution(x, 4, (3, 3), with_bias=False)),
    "one map": ((2, 3, 9, 8), lambda x: PF.convolution(x, 1, (3, 3))),
    "groups": ((2, 4, 9, 8), lambda x: PF.convolution(x, 8, (3, 3), group=2)),
    "depthwise": ((2, 4, 9, 8), lambda x: PF.depthwise_convolution(x, (3, 3))),
    "stride and dilation": (
        (2, 4, 9, 8),
        lambda x: PF.convolution(x, 8, (3, 3), pad=(1, 1), stride=(2, 1), dilation=(1, 2)),
    ),
    "one axis": ((2, 4, 9), lambda x: PF.convolution(x, 8, (3,))),
    "three axes": ((1, 2, 4, 5, 4), lambda x: PF.convolution(x, 4, (2, 2, 2))),
    "transposed": ((2, 4, 5, 6), lambda x: PF.deconvolution(x, 8, (3, 3), with_bias=False)),
    "affine": ((6, 5), lambda x: PF.affine(x, 8)),
    "affine without a bias": ((6, 5), lambda x: PF.affine(x, 8, with_bias=False)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_folded_normalisation_gives_what_it_gives_on_its_own(name):
    shape, layer = NETWORKS[name]
    x = Variable.from_numpy_array(np.random.default_rng(1).normal(size=shape).astype(np.float32))
    y = F.relu(normalized(layer(x)))
    fill()
    y.forward(clear_buffer=True)
    found = y.d.copy()
    assert "normalize" not in operators_of_a_run(y)
    with nnl.backend_scope("numpy"):
        y.forward(clear_buffer=True)
    np.testing.assert_allclose(found, y.d, rtol=1e-5, atol=1e-5)
    assert y.d.any()


def affine(*given):
    x = Variable.from_numpy_array(np.array([[1.0, 2.0], [3.0, 5.0]], np.float32))
    w = nnl.Parameter((2, 1)).apply(d=[[2], [3]])
    statistics = [nnl.Parameter((1, 1), need_grad=False).apply(d=value) for value in given]
    return F.batch_normalization(F.affine(x, w), *statistics, batch_stat=False, eps=0.0)


def test_the_formula_holds():
    """Of 8 and 21, with mean 3, variance 4, gamma 10 and beta 1."""
    y = affine(1, 10, 3, 4)
    y.forward(clear_buffer=True)
    np.testing.assert_allclose(y.d, [[(8 - 3) / 2 * 10 + 1], [(21 - 3) / 2 * 10 + 1]])


@pytest.mark.parametrize("position", range(4), ids=["beta", "gamma", "mean", "variance"])
def test_a_statistic_that_changed_is_seen(position):
    y = affine(1, 10, 3, 4)
    y.forward(clear_buffer=True)
    changed = [1, 10, 3, 4]
    changed[position] += 5
    normalize = y.parent
    variables = {"beta": 4, "gamma": 3, "mean": 1, "variance": 2}
    name = ("beta", "gamma", "mean", "variance")[position]
    normalize.inputs[variables[name]].d = changed[position]
    y.forward(clear_buffer=True)
    beta, gamma, mean, variance = changed
    wanted = (np.array([[8], [21]]) - mean) / np.sqrt(variance) * gamma + beta
    np.testing.assert_allclose(y.d, wanted, rtol=1e-6)


def test_both_branches_of_a_residual_block_are_folded():
    x = Variable.from_numpy_array(np.random.default_rng(1).normal(size=(2, 3, 6, 6)))
    x = F.cast(x, np.float32)
    y = F.relu(
        normalized(PF.convolution(x, 4, (3, 3), name="a"), name="a")
        + normalized(PF.convolution(x, 4, (3, 3), name="b"), name="b")
    )
    assert "normalize" not in operators_of_a_run(y)


def convolved():
    x = Variable.from_numpy_array(np.ones((2, 3, 6, 6), np.float32))
    return PF.convolution(x, 4, (3, 3))


def test_what_something_else_reads_is_not_folded():
    h = convolved()
    assert "normalize" in operators_of_a_run(normalized(h) + F.relu(h))


def test_what_is_asked_for_is_not_folded():
    assert "normalize" in operators_of_a_run(normalized(convolved()), keep="all")


def test_statistics_of_the_batch_are_not_folded():
    assert "normalize" in operators_of_a_run(PF.batch_normalization(convolved()))


def test_normalisation_along_other_axes_is_not_folded():
    assert "normalize" in operators_of_a_run(normalized(convolved(), axes=(2,)))


def test_a_weight_that_is_computed_from_the_input_is_not_folded():
    x = Variable.from_numpy_array(np.ones((4, 4), np.float32))
    assert "normalize" in operators_of_a_run(normalized(F.affine(x, x * 2)))


def test_double_precision_is_folded_in_double_precision():
    x = Variable.from_numpy_array(np.random.default_rng(1).normal(size=(6, 5)))
    w = nnl.Parameter((5, 3), dtype=np.float64)
    w.d = np.random.default_rng(2).normal(size=(5, 3))
    values = np.random.default_rng(3).uniform(0.5, 1, size=(4, 1, 3))
    beta, gamma, mean, variance = (
        nnl.Parameter((1, 3), need_grad=False, dtype=np.float64).apply(d=value) for value in values
    )
    y = F.batch_normalization(F.affine(x, w), beta, gamma, mean, variance, batch_stat=False)
    y.forward(clear_buffer=True)
    wanted = (x.d @ w.d - values[2]) / np.sqrt(values[3] + 1e-5) * values[1] + values[0]
    np.testing.assert_allclose(y.d, wanted, rtol=1e-12)


def test_a_predictor_runs_what_is_folded():
    def network(x):
        return normalized(PF.convolution(x, 4, (3, 3)))

    class Graphs:
        def __init__(self):
            self.found = []

        def nnl_on_graph_compiled(self, event):
            self.found.append(event.program.graph)

    data = ArraySource({"x": np.zeros((5, 3, 6, 7), np.float32)})
    heard = Graphs()
    with current_session().listen(heard):
        found = Predictor(Model(network)).run(data)
    (graph,) = heard.found
    assert found["output"].shape == (5, 4, 4, 5)
    weights = {
        graph.specs[i.outputs[0]].shape for i in graph.instructions if i.label == "normalize"
    }
    assert weights == {(4, 3, 3, 3), (1, 4, 1, 1)}
