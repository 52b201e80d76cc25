"""Models that the project file writes as a list of layers."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from nnl_core import PF
from nnl_core.errors import ConfigurationError, ModelError
from nnl_core.graph.spec import Spec
from nnl_core.hooks import LayerSpec, Plugin
from nnl_core.initializers import ConstantInitializer
from nnl_core.module import Module
from nnl_core.session import Session
from nnl_core.settings import LayerSettings
from nnl_core.training import Model
from nnl_core.training.layers import LayeredModel


def build(session, *layers, shape=(3,), training=False):
    settings = [LayerSettings.model_validate(layer) for layer in layers]
    model = Model(
        LayeredModel(settings, session, input="x", where="nnl.toml: model.layers"),
        session=session,
    )
    return model, model.build({"x": Spec(shape, np.dtype(np.float32))}, 4, training=training)


def names_of(network):
    """The operators of a network, from its output to its input."""
    found, variable = [], network.outputs["output"]
    while variable.parent is not None:
        found.append(variable.parent.operator.name.removeprefix("nnl::"))
        variable = variable.parent.inputs[0]
    return found


def test_layers_come_one_after_another(session):
    _, network = build(session, {"layer": "affine", "n_outmaps": 5}, "relu", "softmax")
    assert names_of(network) == ["softmax", "relu", "affine"]
    assert network.outputs["output"].shape == (4, 5)


def test_it_computes_what_a_function_with_these_layers_does(session):
    model, network = build(session, {"layer": "affine", "n_outmaps": 5}, "tanh")
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    network.inputs["x"].d = x
    w, b = (model.parameters[f"affine/affine/{name}"].d for name in "Wb")
    network.outputs["output"].forward()
    np.testing.assert_allclose(network.outputs["output"].d, np.tanh(x @ w + b), rtol=1e-5)


def test_layers_of_one_kind_have_parameters_of_their_own(session):
    affine = {"layer": "affine", "n_outmaps": 3}
    model, _ = build(session, affine, affine, {**affine, "name": "last"})
    scopes = {name.split("/")[0] for name in model.parameters}
    assert scopes == {"affine", "affine_2", "last"}


def test_lists_are_shapes_and_kernels(session):
    layers = ({"layer": "convolution", "outmaps": 2, "kernel": [3, 3], "pad": [1, 1]},)
    _, network = build(session, *layers, shape=(1, 8, 8))
    assert network.outputs["output"].shape == (4, 2, 8, 8)


def test_dropout_is_left_out_where_it_is_not_training(session):
    layers = ({"layer": "dropout", "p": 0.5}, "relu")
    assert names_of(build(session, *layers, training=True)[1]) == ["relu", "dropout"]
    assert names_of(build(session, *layers, training=False)[1]) == ["relu"]


def test_batch_normalization_uses_the_batch_in_training_only(session):
    means = {}
    for training in (True, False):
        _, network = build(session, "batch_normalization", training=training)
        network.inputs["x"].d = np.random.default_rng(0).normal(5, 1, size=(4, 3))
        network.outputs["output"].forward()
        means[training] = abs(network.outputs["output"].d.mean())
    assert means[True] < 1e-3 < 1 < means[False]  # whose running mean is still 0


def test_initial_values_are_named_by_initializers(session):
    constant = {"name": "Constant", "value": 0.25}
    layer = {"layer": "affine", "n_outmaps": 2, "w_init": constant, "b_init": "Normal"}
    model, _ = build(session, layer)
    assert (model.parameters["affine/affine/W"].d == 0.25).all()
    assert (model.parameters["affine/affine/b"].d != 0).all()


def test_initial_values_of_several_parameters_are_a_table(session):
    layer = {
        "layer": "batch_normalization",
        "param_init": {"gamma": {"name": "Constant", "value": 3}},
    }
    model, _ = build(session, layer)
    assert (model.parameters["batch_normalization/bn/gamma"].d == 3).all()


# -------------------------------------------------------------------- those of plugins


def double(x, times=2.0):
    return x * times


class Scaled(Module):
    def __init__(self, start):
        self._start = start

    def call(self, x):
        return PF.affine(x, 1, b_init=ConstantInitializer(self._start))


class LayersPlugin(Plugin):
    name = "odd"

    def nnl_layers(self):
        return [
            LayerSpec("odd.double", "odd_layers:double", ""),
            LayerSpec("odd.Scaled", "odd_layers:Scaled", ""),
        ]


@pytest.fixture
def odd(monkeypatch):
    module = types.ModuleType("odd_layers")
    module.double, module.Scaled = double, Scaled
    monkeypatch.setitem(sys.modules, "odd_layers", module)
    with Session([LayersPlugin], discover=False, environment={}) as session:
        yield session


def test_a_layer_of_a_plugin_is_named_with_it(odd):
    _, network = build(odd, {"layer": "odd.double", "times": 3.0})
    network.inputs["x"].d = np.ones((4, 3))
    network.outputs["output"].forward()
    assert (network.outputs["output"].d == 3).all()


def test_a_layer_may_be_a_module(odd):
    _, network = build(odd, {"layer": "odd.Scaled", "start": 2.0})
    network.inputs["x"].d = np.zeros((4, 3))
    network.outputs["output"].forward()
    assert (network.outputs["output"].d == 2).all()


# -------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("afine", "model.layers.0.layer = 'afine': there is no such layer; did you mean 'affine'"),
        ("odd.double", "model.layers.0.layer = 'odd.double': there is no such layer"),
        (
            {"layer": "affine", "n_outmap": 3},
            "model.layers.0.n_outmap: affine takes no 'n_outmap'; did you mean 'n_outmaps'?",
        ),
        ("affine", "model.layers.0: affine: missing a required argument: 'n_outmaps'"),
        (
            {"layer": "affine", "n_outmaps": 3, "w_init": "Norml"},
            "model.layers.0.w_init: unknown initializer 'Norml'; did you mean 'Normal'",
        ),
        (
            {"layer": "affine", "n_outmaps": 3, "w_init": {"name": "Normal", "sigm": 1}},
            "model.layers.0.w_init: ",
        ),
    ],
)
def test_a_layer_that_there_is_not_is_refused_before_anything_is_built(session, layer, message):
    with pytest.raises(ConfigurationError) as caught:
        build(session, layer)
    assert f"nnl.toml: {message}" in str(caught.value)


def test_two_layers_of_one_name_are_refused(session):
    layer = {"layer": "affine", "n_outmaps": 3, "name": "a"}
    with pytest.raises(ConfigurationError, match=r"layers\.1\.name = 'a': another layer"):
        build(session, layer, layer)


def test_a_layer_that_fails_is_named_with_its_place(session):
    with pytest.raises(ModelError, match=r"layer 1, convolution: "):
        build(session, "relu", {"layer": "convolution", "outmaps": 2, "kernel": [3, 3]})


def test_a_layer_with_several_results_is_refused(session):
    with pytest.raises(ModelError, match=r"layer 0, split: it gives \w+, not one variable"):
        build(session, {"layer": "split", "axis": 1})
