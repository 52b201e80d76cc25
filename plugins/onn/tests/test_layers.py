"""Operational layers: the neuron, its parameters, sets of operators, and training."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, S, Session, Variable
from nnl_core.errors import OperatorError, ShapeError, UnknownComponentError
from nnl_core.hooks import Plugin
from nnl_onn import (
    Operational,
    OperatorSet,
    TransposedOperational,
    library,
    operational,
    transposed_operational,
)
from nnl_onn.hooks import ActivationSpec
from nnl_onn.nodal import find_nodal
from nnl_onn.operator_sets import find_activation, operator_sets
from nnl_onn.plugin import OnnPlugin
from nnl_onn.pools import find_pool

FOUR = [
    OperatorSet("sine", "median", "tanh"),
    OperatorSet("mul", "sum", "relu"),
    OperatorSet("exp", "max", "lincut"),
    OperatorSet("sine", "median", "relu"),
]


def data(*shape, seed=0):
    values = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    return Variable.from_numpy_array(values, need_grad=True)


def value(y):
    y.forward()
    return np.array(y.d)


def parameters(layer="operational"):
    found = nnl.get_parameters()
    return found[f"{layer}/W"], found[f"{layer}/b"]


# The neuron --------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", FOUR)
def test_a_neuron_is_activation_of_sums_of_pools_less_its_bias(one):
    x = data(2, 3, 5, 4)
    y = value(operational(x, 2, (3, 2), one))
    w, b = (p.d.astype(float) for p in parameters())
    windows = np.lib.stride_tricks.sliding_window_view(x.d.astype(float), (3, 2), axis=(2, 3))
    windows = windows.reshape(2, 1, 3, 3, 3, 6)
    connections = find_nodal(one.nodal)(windows, w.reshape(1, 2, 3, 1, 1, 6))
    summed = find_pool(one.pool)(connections).sum(axis=2) - b[:, np.newaxis, np.newaxis]
    right = {
        "tanh": np.tanh, "relu": lambda z: np.maximum(z, 0),
        "lincut": lambda z: np.clip(z / 10, -1, 1),
    }[one.activation](summed)  # fmt: skip
    np.testing.assert_allclose(y, right, rtol=1e-5, atol=1e-5)


def test_parameters_begin_uniform_within_one_over_the_number_of_taps():
    nnl.seed(1)
    operational(data(1, 8, 9, 9), 64, (3, 3))
    for parameter in parameters():
        assert 0.09 < np.abs(parameter.d).max() <= 1 / 9
        assert abs(parameter.d.mean()) < 0.02


def test_parameters_are_made_once_and_may_be_left_out():
    x = data(1, 2, 5)
    with nnl.parameter_scope("first"):
        one = value(operational(x, 3, (3,), FOUR[0], with_bias=False))
        two = value(operational(x, 3, (3,), FOUR[0], with_bias=False))
    np.testing.assert_array_equal(one, two)
    assert list(nnl.get_parameters()) == ["first/operational/W"]


def test_fixed_parameters_get_no_gradient():
    x = Variable((1, 2, 5))
    assert operational(x, 3, (3,), FOUR[0]).need_grad
    assert not operational(x, 3, (3,), FOUR[0], fix_parameters=True).need_grad


def test_initial_values_are_taken():
    value(operational(data(1, 2, 5), 3, (2,), w_init=np.full((3, 2, 2), 7.0), b_init=np.ones(3)))
    w, b = parameters()
    assert (w.d == 7).all() and (b.d == 1).all()


def test_it_is_found_in_pf():
    assert PF.operational is operational
    assert PF.transposed_operational is transposed_operational


# Sets of operators -------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("layer", [operational, transposed_operational])
def test_each_neuron_computes_what_it_would_in_a_layer_of_its_kind(layer, group):
    x = data(2, 4, 5, 6)
    sets = [FOUR[k] for k in (0, 1, 2, 0, 3, 1, 0, 2)]
    options = {"stride": (2, 1), "group": group}
    y = layer(x, 8, (3, 2), sets, **options)
    together = value(y)
    y.backward()
    gradient = np.array(x.g)
    for at, one in enumerate(sets):
        alone = value(layer(x, 8, (3, 2), one, **options))
        np.testing.assert_allclose(together[:, at], alone[:, at], rtol=1e-5, atol=1e-5)
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0


def test_neurons_of_a_kind_are_computed_together():
    sets = [FOUR[0], OperatorSet("exp", "max"), FOUR[0], OperatorSet("exp", "max"), FOUR[3]]
    names = []
    operational(data(1, 2, 6), 5, (3,), sets).visit(lambda node: names.append(node.operator.name))
    assert names.count("onn::operate") == 2


def test_the_order_of_equal_neurons_changes_no_value_with_a_limit():
    x = data(3, 2, 6, 6)
    value(operational(x, 4, (3, 3), FOUR, limit=0.5))
    w, b = (np.array(p.d) for p in parameters())
    order = [2, 0, 3, 1]
    right = value(operational(x, 4, (3, 3), FOUR, limit=0.5))
    nnl.clear_parameters()
    sets = [FOUR[k] for k in order]
    found = value(operational(x, 4, (3, 3), sets, limit=0.5, w_init=w[order], b_init=b[order]))
    np.testing.assert_allclose(found, right[:, order], rtol=1e-6)


def test_a_limit_scales_a_sample_down_and_counts_as_a_constant():
    x = Variable.from_numpy_array(np.array([[[8.0, 2.0]], [[1.0, -0.5]]]), need_grad=True)
    identity = OperatorSet("mul", "sum", "identity")
    one = np.ones((1, 1, 1))
    y = operational(x, 1, (1,), identity, limit=4.0, w_init=one, b_init=np.zeros(1))
    np.testing.assert_allclose(value(y), [[[4.0, 1.0]], [[1.0, -0.5]]], rtol=1e-6)
    y.backward()
    np.testing.assert_allclose(x.g, [[[0.5, 0.5]], [[1.0, 1.0]]], rtol=1e-6)


def test_tables_say_what_sets_do():
    table = {"nodal": "sine", "pool": "max"}
    assert operator_sets(table, 2) == [OperatorSet("sine", "max", "tanh")] * 2
    assert operator_sets([table, FOUR[1]], 2) == [OperatorSet("sine", "max"), FOUR[1]]


def test_indices_count_nodal_operators_first_and_pools_last():
    lists = {"nodal": ["mul", "sine"], "pool": ["sum", "max"], "activation": ["tanh", "lincut"]}
    known = library(**lists)
    assert known[1] == OperatorSet("sine", "sum", "tanh")
    assert known[2] == OperatorSet("mul", "sum", "lincut")
    assert known[4] == OperatorSet("mul", "max", "tanh")
    assert operator_sets({"indices": 5, **lists}, 2) == [known[5]] * 2
    assert operator_sets({"indices": (7, 0), **lists}, 2) == [known[7], known[0]]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([FOUR[0]], "1 operator sets do not fit 2 output maps"),
        ("sine", "'sine' is no OperatorSet"),
        ({"nodal": "mul", "pol": "sum"}, "may hold nodal, pool, activation"),
        ({"indices": 0, "nodal": ["mul"]}, "need the lists nodal, pool and activation"),
        (
            {"indices": 1, "nodal": ["mul"], "pool": ["sum"], "activation": ["tanh"]},
            "operator set 1 is not one of 0 to 0",
        ),
    ],
)
def test_operators_that_make_no_sense_are_named(given, text):
    with pytest.raises(OperatorError, match=text):
        operator_sets(given, 2)


@pytest.mark.parametrize("wrong", [{"nodal": "sinee"}, {"pool": "sun"}, {"activation": "tahn"}])
def test_a_misspelt_operator_is_told_when_a_set_is_made(wrong):
    with pytest.raises(UnknownComponentError, match="did you mean"):
        OperatorSet(**wrong)


def test_a_kernel_needs_as_many_axes_as_the_input():
    with pytest.raises(ShapeError, match=r"operational: .*kernel of 1 axes"):
        operational(Variable((1, 2, 5, 5)), 3, (3,))


# Activations -------------------------------------------------------------------------------------


def test_lincut_is_a_cut_line():
    x = Variable.from_numpy_array(np.array([-20.0, -5.0, 0.0, 10.0, 11.0]))
    np.testing.assert_allclose(value(find_activation("lincut")(x)), [-1, -0.5, 0, 1, 1])


def test_functions_of_one_variable_are_activations():
    assert find_activation("softsign") is F.softsign


def scaled(x):
    return x * 3


def test_a_plugin_adds_an_activation():
    class Scaled(Plugin):
        name = "scaled"
        requires = ("onn",)

        def nnl_onn_activations(self):
            return [ActivationSpec("scaled.by_three", f"{__name__}:scaled", "")]

    with Session([OnnPlugin, Scaled], discover=False):
        assert find_activation("scaled.by_three") is scaled


# Modules and training ----------------------------------------------------------------------------


def test_modules_own_their_parameters():
    model = nnl.Sequential(
        Operational(4, (3, 3), FOUR, pad="same"),
        TransposedOperational(1, (2, 2), OperatorSet("sine"), stride=2),
    )
    assert model(data(2, 1, 4, 5)).shape == (2, 1, 8, 10)
    shapes = {name: p.shape for name, p in model.get_parameters().items()}
    assert shapes == {
        "@0/operational/W": (4, 1, 3, 3),
        "@0/operational/b": (4,),
        "@1/transposed_operational/W": (4, 1, 2, 2),
        "@1/transposed_operational/b": (1,),
    }


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_network_learns_what_a_known_network_computes(axes):
    nnl.seed(3)
    rng = np.random.default_rng(3)
    x = Variable.from_numpy_array(rng.uniform(-1, 1, (4, 1, *(6,) * axes)).astype(np.float32))
    sets = [OperatorSet("harmonic", "max"), OperatorSet("exp", "median", "relu")]
    with nnl.parameter_scope("known"):
        hidden = operational(x, 2, (3,) * axes, sets, pad="same", fix_parameters=True,
                             w_init=rng.normal(size=(2, 1, *(3,) * axes)))  # fmt: skip
        target = F.mean(hidden, axis=1, keepdims=True)
    learned = F.mean(operational(x, 2, (3,) * axes, sets, pad="same"), axis=1, keepdims=True)
    loss = F.mean(F.squared_error(learned, target))
    solver = S.Adam(0.03)
    solver.set_parameters(nnl.get_parameters())
    step = nnl.compile_step(loss, solver)
    step.run()
    first = float(loss.d)
    for _ in range(60):
        step.run()
    assert float(loss.d) < 0.2 * first


def trained(backend):
    """The losses of some steps, and the parameters after them."""
    nnl.clear_parameters()
    nnl.seed(5)
    with nnl.backend_scope(backend):
        x = data(3, 2, 7, 6, seed=5)
        hidden = operational(x, 4, (3, 3), FOUR, pad="same", border="reflect", name="first")
        y = transposed_operational(hidden, 2, (2, 2), OperatorSet("sine", "max"), stride=2)
        y = operational(y, 2, (3, 3), OperatorSet("log", "median"), group=2, dilation=2, limit=1.0)
        loss = F.mean(F.squared_error(y, 0.3))
        solver = S.Momentum(0.05)
        solver.set_parameters(nnl.get_parameters())
        step = nnl.compile_step(loss, solver)
        losses = []
        for _ in range(4):
            step.run()
            losses.append(float(loss.d))
        return losses, {name: np.array(p.d) for name, p in nnl.get_parameters().items()}


def test_every_backend_trains_alike(backend):
    losses, parameters = trained(backend)
    right, others = trained("numpy")
    np.testing.assert_allclose(losses, right, rtol=1e-4)
    assert losses[-1] < losses[0]
    for name, parameter in parameters.items():
        np.testing.assert_allclose(parameter, others[name], atol=1e-4, err_msg=name)


@pytest.mark.parametrize("layer", [operational, transposed_operational])
@pytest.mark.parametrize("nodal", ["sine", "w * x + x * x * w * w"])
def test_data_may_come_in_batches_of_another_length(layer, nodal):
    x = data(4, 2, 5)
    y = layer(x, 3, (3,), OperatorSet(nodal), stride=2)
    whole = value(y)
    x.reset_shape((2, 2, 5), True)
    x.d = data(4, 2, 5).d[2:]
    np.testing.assert_allclose(value(y), whole[2:], rtol=1e-6)
