"""Models as objects."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, Layer, Module, Parameter, S, Sequential
from nnl_core.errors import ParameterError


class Affine(Module):
    def __init__(self, size):
        self.size = size

    def call(self, x):
        return PF.affine(x, self.size)


class Net(Module):
    def __init__(self):
        self.first = Affine(5)
        self.rest = Sequential(F.tanh, Affine(2))
        self.scale = Parameter(())
        self.scale.d = 2

    def call(self, x):
        return self.rest(self.first(x)) * self.scale


@pytest.fixture
def x():
    variable = nnl.Variable((3, 4))
    variable.d = np.random.default_rng(0).normal(size=(3, 4))
    return variable


NAMES = ["@first/affine/W", "@first/affine/b", "@rest/@1/affine/W", "@rest/@1/affine/b", "scale"]


def test_parameters_are_named_by_attributes_and_kept_out_of_the_global_scope(x):
    nnl.clear_parameters()
    net = Net()
    net(x)
    assert sorted(net.get_parameters()) == NAMES
    assert not any("first" in name for name in nnl.get_parameters())


def test_calling_again_uses_the_same_parameters(x):
    net = Net()
    assert np.array_equal(net(x).d, net(x).d)
    assert len(net.get_parameters()) == len(NAMES)


def test_the_output_is_that_of_the_layers(x):
    net = Net()
    y = net(x)
    p = {name: variable.d for name, variable in net.get_parameters().items()}
    hidden = np.tanh(x.d @ p["@first/affine/W"] + p["@first/affine/b"])
    expected = 2 * (hidden @ p["@rest/@1/affine/W"] + p["@rest/@1/affine/b"])
    np.testing.assert_allclose(y.d, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_saved_parameters_make_another_module_the_same(x, suffix, tmp_path):
    net, other = Net(), Net()
    y = net(x)
    net.save_parameters(tmp_path / f"net.{suffix}")
    other.load_parameters(tmp_path / f"net.{suffix}")
    assert np.array_equal(other(x).d, y.d)


def test_parameters_of_another_model_are_refused_whole(x, tmp_path):
    class Other(Module):
        def __init__(self):
            self.second = Affine(2)

        def call(self, x):
            return self.second(x)

    other = Other()
    other(x)
    other.save_parameters(tmp_path / "other.npz")
    net = Net()
    with pytest.raises(ParameterError, match=r"'second'.*first, rest"):
        net.load_parameters(tmp_path / "other.npz")
    assert list(net.get_parameters()) == ["scale"]


def test_a_module_used_twice_has_its_parameters_once(x):
    class Twice(Module):
        def __init__(self):
            self.a = Affine(4)
            self.b = self.a

        def call(self, x):
            return self.b(self.a(x))

    net = Twice()
    net(x)
    assert list(net.get_parameters()) == ["@a/affine/W", "@a/affine/b"]


def test_without_recursion_only_own_parameters_are_given(x):
    net = Net()
    net(x)
    assert list(net.get_parameters(recursive=False)) == ["scale"]


def test_setting_training_reaches_all_submodules():
    net = Net()
    assert net.training
    net.training = False
    assert not net.rest.training
    assert not net.rest[1].training


def test_a_module_is_trained_by_a_solver(x):
    net = Net()
    loss = F.mean(F.squared_error(net(x), nnl.Variable((3, 2))))
    solver = S.Adam(0.05)
    solver.set_parameters(net.get_parameters(grad_only=True))
    loss.forward()
    first = float(loss.d)
    for _ in range(50):
        loss.forward()
        net.zero_grad()
        loss.backward()
        solver.update()
    assert float(loss.d) < first / 10


def test_set_parameter_takes_the_names_of_get_parameters(x):
    net = Net()
    net(x)
    other = Parameter((4, 5))
    net.set_parameter("@first/affine/W", other)
    assert net.get_parameters()["@first/affine/W"] is other
    with pytest.raises(ParameterError, match="module 'none'"):
        net.set_parameter("@none/W", other)


def test_replacing_an_attribute_forgets_the_old_module_or_parameter(x):
    net = Net()
    net(x)
    net.first = None
    net.scale = 3.0
    assert sorted(net.get_parameters()) == ["@rest/@1/affine/W", "@rest/@1/affine/b"]
    assert net.scale == 3.0
    del net.rest
    assert net.get_parameters() == {}
    with pytest.raises(AttributeError, match="rest"):
        _ = net.rest


@pytest.mark.parametrize("wrap", [list, tuple, lambda items: dict(enumerate(items))])
def test_modules_in_a_container_are_an_error_that_says_what_to_do(wrap):
    net = Net()
    with pytest.raises(ParameterError, match=r"Net\.layers.*Sequential"):
        net.layers = wrap([Affine(1), Affine(2)])


def test_a_module_without_call_is_an_error():
    with pytest.raises(ParameterError, match="Module defines no call"):
        Module()(1)


def test_nodes_are_named_after_the_modules_they_are_in(x):
    names = []
    Net()(x).visit(lambda node: names.append(node.name))
    assert "Net/first/affine/affine" in names


def test_a_layer_makes_a_module_of_a_parametric_function(x):
    net = Sequential(Layer(PF.affine, 3, with_bias=False), F.tanh, Layer(PF.affine, 2))
    y = net(x)
    assert list(net.get_parameters()) == ["@0/affine/W", "@2/affine/W", "@2/affine/b"]
    assert y.shape == (3, 2)


def test_a_layer_uses_batch_statistics_in_training_alone(x):
    seen = []

    def normalise(inputs, batch_stat=True):
        seen.append(batch_stat)
        return inputs

    net = Sequential(Layer(normalise), Layer(normalise, batch_stat=True))
    net(x)
    net.training = False
    net(x)
    assert seen == [True, True, False, True]


def test_a_sequential_has_a_length_items_and_named_layers():
    layers = Sequential(F.relu, last=Affine(2))
    assert len(layers) == 2
    assert layers[0] is F.relu
    assert layers.last is layers[1]
    with pytest.raises(ParameterError, match=r"'0'.*cannot be called"):
        Sequential(3)
