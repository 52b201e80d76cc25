"""Quantized, binary and pruned layers: their parameters, and two steps as nnabla 1.39 does them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, I
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.parameters import get_parameters, parameter_scope

with np.load(Path(__file__).parent / "data" / "quantization.npz") as stored:
    RECORDED = {name: stored[name] for name in stored.files}
CALLS = json.loads(str(RECORDED["calls"]))
each_call = pytest.mark.parametrize(
    ("number", "call"),
    list(enumerate(CALLS)),
    ids=[f"{number}-{call['name']}" for number, call in enumerate(CALLS)],
)


@pytest.fixture(autouse=True)
def own_scope():
    with parameter_scope("", {}):
        yield


def under(prefix):
    """Recorded arrays by what follows a prefix of their names."""
    return {name[len(prefix) :]: a for name, a in RECORDED.items() if name.startswith(prefix)}


def build(call):
    x = nnl.Variable(call["shape"], need_grad=True)
    return x, getattr(PF, call["name"])(x, *call["arguments"], **call["keywords"])


def everything():
    return get_parameters(grad_only=False)


def agree(ours, recorded, what):
    np.testing.assert_allclose(ours, recorded, rtol=1e-4, atol=1e-5, err_msg=what)


@each_call
def test_parameters_have_the_names_and_shapes_of_nnabla(number, call):
    build(call)
    shapes = {name: array.shape for name, array in under(f"{number}/0/parameter/").items()}
    assert {name: p.shape for name, p in everything().items()} == shapes
    assert sorted(get_parameters()) == call["trained"]


@each_call
def test_outputs_gradients_and_stored_values_are_those_of_nnabla(number, call):
    x, y = build(call)
    for name, array in under(f"{number}/initial/").items():
        everything()[name].d = array
    for step in range(2):
        recorded = under(f"{number}/{step}/")
        x.d = recorded["x"]
        y.forward()
        for variable in (x, *everything().values()):
            variable.grad.zero()
        y.backward(recorded["weights"])
        agree(y.d, recorded["y"], "y")
        agree(x.g, recorded["gradient of x"], "gradient of x")
        for name, parameter in everything().items():
            agree(parameter.d, recorded[f"parameter/{name}"], name)
            if parameter.need_grad:
                agree(parameter.g, recorded[f"gradient/{name}"], f"gradient of {name}")
        for name in under(f"{number}/initial/"):
            everything()[name].d -= 0.1 * everything()[name].g


@each_call
def test_fixed_parameters_get_no_gradient(number, call):
    fixed = {**call["keywords"], "fix_parameters": True}
    y = build({**call, "keywords": fixed})[1]
    y.forward()
    y.backward(np.ones(y.shape))
    assert not any(np.any(parameter.g) for parameter in everything().values())


@each_call
def test_layers_of_two_names_have_parameters_of_their_own(number, call):
    for name in ("one", "other"):
        build({**call, "keywords": {**call["keywords"], "name": name}})
    own = {name.partition("/")[0] for name in everything()}
    assert own == {"one", "other"}


LAST = {"channel_last": True, "group": 2, "pad": (1, 0), "stride": (2, 1)}


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (PF.fixed_point_quantized_convolution, {"delta_w": 0.1, "n_w": 4}),
        (PF.min_max_quantized_convolution, {"ql_max_w": 15}),
        (PF.pruned_convolution, {"rate_w": 0.5}),
    ],
)
def test_channels_may_be_last(layer, options):
    rng = np.random.default_rng(0)
    first, w = rng.normal(size=(2, 4, 6, 5)), rng.normal(size=(4, 2, 3, 2))
    x, x_last = (nnl.Variable.from_numpy_array(a) for a in (first, np.moveaxis(first, 1, -1)))
    expected = layer(x, 4, (3, 2), w_init=w, **{**LAST, "channel_last": False}, **options).d
    y = layer(x_last, 4, (3, 2), w_init=np.moveaxis(w, 1, -1), name="last", **LAST, **options)
    np.testing.assert_allclose(np.moveaxis(y.d, -1, 1), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [PF.binary_connect_convolution, PF.binary_weight_convolution])
def test_binary_convolutions_have_groups(layer):
    x = nnl.Variable((2, 4, 6, 5))
    assert layer(x, 6, (3, 2), group=2).shape == (2, 6, 4, 4)
    assert {p.shape for name, p in everything().items() if "/W" in name} == {(6, 2, 3, 2)}


def test_stored_values_begin_where_they_are_told():
    x = nnl.Variable((2, 3))
    PF.binary_connect_affine(x, 2, wb_init=I.ConstantInitializer(0.5))
    PF.inq_affine(x, 2, i_init=I.ConstantInitializer(1))
    assert set(everything()["bicon_affine/Wb"].d.ravel()) == {0.5}
    assert set(everything()["inq_affine/I"].d.ravel()) == {1.0}


def test_ranges_may_differ_by_channel():
    x = nnl.Variable.from_numpy_array(np.array([[-1.0, -10.0], [3.0, 30.0]]))
    levels = {"ql_min": np.zeros((1, 2)), "ql_max": np.full((1, 2), 4.0)}
    y = PF.min_max_quantize(x, x_min_max=True, **levels)
    assert y.d.tolist() == [[-1.0, -10.0], [3.0, 30.0]]
    assert list(everything()) == ["min_max_quantize/qr_min", "min_max_quantize/qr_max"]
    assert everything()["min_max_quantize/qr_max"].d.tolist() == [[3.0, 30.0]]


def test_a_range_begins_where_it_is_told():
    x = nnl.Variable.from_numpy_array(np.array([-9.0, 9.0]))
    ends = {"qr_min_init": I.ConstantInitializer(-1.0), "qr_max_init": np.array([3.0])}
    assert PF.min_max_quantize(x, ql_max=4, **ends).d.tolist() == [-1.0, 3.0]


def test_what_cannot_be_is_named():
    x = nnl.Variable((2, 3))
    with pytest.raises(OperatorError, match=r"n = 1 bits"):
        PF.fixed_point_quantized_affine(x, 2, n_w=1)
    with pytest.raises(ShapeError, match=r"kernel 3 must hold"):
        PF.pruned_convolution(nnl.Variable((2, 4, 6, 5)), 2, 3)
