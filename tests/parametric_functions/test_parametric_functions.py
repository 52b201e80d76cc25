"""Parametric functions: the parameters they make, and that they use them."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, I
from nnl_core.errors import ShapeError
from nnl_core.parameters import get_parameters, parameter_scope


@pytest.fixture(autouse=True)
def own_scope():
    with parameter_scope("", {}):
        yield


def variable(*shape, dtype=np.float32):
    result = nnl.Variable(shape, dtype=dtype)
    rng = np.random.default_rng(len(shape))
    result.d = rng.normal(size=shape) if dtype == np.float32 else rng.integers(0, 3, shape)
    return result


def attention(x, **options):
    return PF.multi_head_attention(x, x, x, num_heads=2, **options)[0]


IMAGE = (2, 4, 6, 5)
LAYERS = [
    (
        "affine",
        lambda x, **o: PF.affine(x, 3, **o),
        (2, 4, 5),
        {"affine/W": (20, 3), "affine/b": (3,)},
    ),
    (
        "affine to several axes",
        lambda x, **o: PF.affine(x, (3, 2), base_axis=2, **o),
        (2, 4, 5),
        {"affine/W": (5, 3, 2), "affine/b": (3, 2)},
    ),
    (
        "convolution",
        lambda x, **o: PF.convolution(x, 6, (3, 2), group=2, **o),
        IMAGE,
        {"conv/W": (6, 2, 3, 2), "conv/b": (6,)},
    ),
    (
        "convolution, channels last",
        lambda x, **o: PF.convolution(x, 6, (3, 2), channel_last=True, **o),
        (2, 6, 5, 4),
        {"conv/W": (6, 3, 2, 4), "conv/b": (6,)},
    ),
    (
        "depthwise convolution",
        lambda x, **o: PF.depthwise_convolution(x, (3, 3), multiplier=2, **o),
        IMAGE,
        {"depthwise_conv/W": (8, 3, 3), "depthwise_conv/b": (8,)},
    ),
    (
        "deconvolution",
        lambda x, **o: PF.deconvolution(x, 6, (3, 2), group=2, **o),
        IMAGE,
        {"deconv/W": (4, 3, 3, 2), "deconv/b": (6,)},
    ),
    (
        "depthwise deconvolution",
        lambda x, **o: PF.depthwise_deconvolution(x, (3, 3), divisor=2, **o),
        IMAGE,
        {"depthwise_deconv/W": (4, 3, 3), "depthwise_deconv/b": (2,)},
    ),
    (
        "batch normalisation",
        PF.batch_normalization,
        IMAGE,
        {f"bn/{name}": (1, 4, 1, 1) for name in ("beta", "gamma", "mean", "var")},
    ),
    (
        "batch normalisation of two axes",
        lambda x, **o: PF.batch_normalization(x, axes=[1, 3], **o),
        IMAGE,
        {f"bn/{name}": (1, 4, 1, 5) for name in ("beta", "gamma", "mean", "var")},
    ),
    (
        "fused batch normalisation",
        PF.fused_batch_normalization,
        IMAGE,
        {f"bn/{name}": (1, 4, 1, 1) for name in ("beta", "gamma", "mean", "var")},
    ),
    (
        "layer normalisation",
        PF.layer_normalization,
        IMAGE,
        {f"layer_normalization/{name}": (1, 4, 6, 5) for name in ("beta", "gamma")},
    ),
    (
        "instance normalisation",
        PF.instance_normalization,
        IMAGE,
        {f"instance_normalization/{name}": (1, 4, 1, 1) for name in ("beta", "gamma")},
    ),
    (
        "group normalisation",
        lambda x, **o: PF.group_normalization(x, 2, **o),
        IMAGE,
        {f"group_normalization/{name}": (1, 4, 1, 1) for name in ("beta", "gamma")},
    ),
    ("prelu", PF.prelu, IMAGE, {"prelu/slope": ()}),
    (
        "prelu of channels",
        lambda x, **o: PF.prelu(x, shared=False, **o),
        IMAGE,
        {"prelu/slope": (4,)},
    ),
    (
        "attention",
        attention,
        (3, 2, 4),
        {
            **{f"multi_head_attention/{n}_weight": (4, 4) for n in ("q", "k", "v", "out")},
            **{f"multi_head_attention/{n}_bias": (4,) for n in ("q", "k", "v", "out")},
        },
    ),
    (
        "attention of other sizes",
        lambda x, **o: attention(
            x, k_embed_dim=6, v_embed_dim=8, out_dim=3, with_bias=False, add_attn_bias=True, **o
        ),
        (3, 2, 4),
        {
            "multi_head_attention/q_weight": (4, 6),
            "multi_head_attention/k_weight": (4, 6),
            "multi_head_attention/v_weight": (4, 8),
            "multi_head_attention/out_weight": (8, 3),
            "multi_head_attention/attn_bias_k": (1, 1, 6),
            "multi_head_attention/attn_bias_v": (1, 1, 8),
        },
    ),
]
CASES = pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [case[1:] for case in LAYERS],
    ids=[case[0] for case in LAYERS],
)


@CASES
def test_parameters_have_nnablas_names_and_shapes(layer, shape, expected):
    layer(variable(*shape))
    found = {name: p.shape for name, p in get_parameters(grad_only=False).items()}
    assert found == expected


@CASES
def test_a_name_puts_the_parameters_under_it(layer, shape, expected):
    layer(variable(*shape), name="block/one")
    assert set(get_parameters(grad_only=False)) == {f"block/one/{name}" for name in expected}


@CASES
def test_all_trainable_parameters_get_a_gradient(layer, shape, expected):
    x = variable(*shape)
    y = layer(x)
    weights = nnl.Variable(y.shape)
    weights.d = np.random.default_rng(0).normal(size=y.shape)
    y = y * weights
    y.forward()
    for p in get_parameters().values():
        p.grad.zero()
    y.backward()
    running = {"bn/mean", "bn/var"}
    # A bias of the keys moves all scores of a query alike, so that the softmax does not change.
    flat = {"multi_head_attention/k_bias"}
    assert set(get_parameters()) == set(expected) - running
    assert all(p.g.any() for name, p in get_parameters().items() if name not in flat)


@CASES
def test_fixed_parameters_get_none_and_stay_trainable_elsewhere(layer, shape, expected):
    y = layer(variable(*shape), fix_parameters=True)
    assert not y.need_grad
    assert set(get_parameters()) == set(expected) - {"bn/mean", "bn/var"}


@CASES
def test_calling_again_uses_the_same_parameters(layer, shape, expected):
    x = variable(*shape)
    layer(x)
    before = get_parameters(grad_only=False)
    layer(x)
    again = get_parameters(grad_only=False)
    assert all(again[name] is parameter for name, parameter in before.items())
    assert len(again) == len(before) == len(expected)


def test_weights_start_glorot_uniform_and_biases_at_zero():
    nnl.seed(1)
    PF.affine(variable(2, 300), 200)
    PF.convolution(variable(*IMAGE), 64, (5, 5))
    found = get_parameters()
    for name, limit in (
        ("affine/W", math.sqrt(6 / (300 + 200))),
        ("conv/W", math.sqrt(6 / (25 * 4 + 64))),
    ):
        values = found[name].d
        assert 0.99 * limit < np.abs(values).max() <= limit * (1 + 1e-6)
        assert values.std() == pytest.approx(limit / math.sqrt(3), rel=0.02)
    assert not found["affine/b"].d.any()


def test_statistics_start_at_mean_zero_and_variance_one():
    PF.batch_normalization(variable(*IMAGE))
    found = get_parameters(grad_only=False)
    assert [float(found[f"bn/{n}"].d.max()) for n in ("beta", "gamma", "mean", "var")] == [
        0,
        1,
        0,
        1,
    ]


def test_initializers_arrays_and_generators_are_used():
    x = variable(2, 3)
    PF.affine(x, 2, w_init=I.ConstantInitializer(2), b_init=np.arange(2), name="given")
    PF.affine(x, 2, rng=np.random.default_rng(0), name="drawn")
    PF.affine(x, 2, rng=np.random.default_rng(0), name="again")
    PF.batch_normalization(x, param_init={"gamma": np.full((1, 3), 5), "mean": np.ones((1, 3))})
    found = get_parameters(grad_only=False)
    assert np.array_equal(found["given/affine/W"].d, np.full((3, 2), 2))
    assert np.array_equal(found["given/affine/b"].d, [0, 1])
    assert np.array_equal(found["drawn/affine/W"].d, found["again/affine/W"].d)
    assert np.array_equal(found["bn/gamma"].d, [[5, 5, 5]])
    assert np.array_equal(found["bn/mean"].d, [[1, 1, 1]])


def test_without_bias_or_scale_there_is_no_such_parameter():
    PF.affine(variable(2, 3), 2, with_bias=False)
    PF.layer_normalization(variable(2, 3), no_bias=True)
    PF.instance_normalization(variable(*IMAGE), no_scale=True)
    assert set(get_parameters()) == {
        "affine/W",
        "layer_normalization/gamma",
        "instance_normalization/beta",
    }


def test_apply_changes_the_weight_that_is_used_not_the_parameter():
    x = variable(2, 3)
    y = PF.affine(x, 2, apply_w=lambda w: w * 2, apply_b=lambda b: b + 1)
    w = get_parameters()["affine/W"].d
    np.testing.assert_allclose(y.d, x.d @ w * 2 + 1, rtol=1e-5)


def test_affine_is_a_matrix_product():
    x = variable(2, 3, 4)
    y = PF.affine(x, 5)
    found = get_parameters()
    expected = x.d.reshape(2, 12) @ found["affine/W"].d + found["affine/b"].d
    np.testing.assert_allclose(y.d, expected, rtol=1e-5, atol=1e-6)


def test_embed_looks_rows_up_in_a_matrix_of_unit_variance():
    indices = variable(4, 2, dtype=np.int64)
    y = PF.embed(indices, 3, 5000)
    w = get_parameters()["embed/W"]
    assert w.shape == (3, 5000)
    assert w.d.std() == pytest.approx(1, rel=0.02)
    assert np.array_equal(y.d, w.d[indices.d])


def test_batch_normalisation_trains_running_statistics_and_tests_with_them():
    x = variable(*IMAGE)
    PF.batch_normalization(x, decay_rate=0.75).forward()
    found = get_parameters(grad_only=False)
    mean = x.d.mean(axis=(0, 2, 3), keepdims=True)
    var = x.d.var(axis=(0, 2, 3), keepdims=True, ddof=1)
    np.testing.assert_allclose(found["bn/mean"].d, 0.25 * mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["bn/var"].d, 0.75 + 0.25 * var, rtol=1e-4)
    y = PF.batch_normalization(x, batch_stat=False)
    expected = (x.d - found["bn/mean"].d) / np.sqrt(found["bn/var"].d + 1e-5)
    np.testing.assert_allclose(y.d, expected, rtol=1e-4, atol=1e-5)


def test_prelu_starts_with_a_slope_of_a_quarter():
    x = variable(2, 3)
    np.testing.assert_allclose(PF.prelu(x).d, np.where(x.d > 0, x.d, 0.25 * x.d), rtol=1e-6)


@pytest.mark.parametrize(
    "convolve",
    [
        lambda x: PF.convolution(x, 2, 3),
        lambda x: PF.deconvolution(x, 2, 3),
        lambda x: PF.depthwise_convolution(x, 3),
        lambda x: PF.depthwise_deconvolution(x, 3),
    ],
)
def test_a_kernel_of_one_number_is_refused(convolve):
    with pytest.raises(ShapeError, match="kernel 3 must hold one length for each spatial axis"):
        convolve(nnl.Variable((2, 4, 8, 8)))
