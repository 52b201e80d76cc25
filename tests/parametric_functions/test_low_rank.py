"""Low-rank adapters: load, adapt, train the factors alone, merge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F
from nnl_core.errors import ParameterError
from nnl_core.graph.variable import Variable
from nnl_core.parameters import pop_parameter


@pytest.fixture(autouse=True)
def own_scope() -> Iterator[None]:
    nnl.seed(3)
    with nnl.parameter_scope("", {}):
        yield


RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 2, 8)).astype(np.float32)  # length, batch, features


def model(x: Variable | np.ndarray) -> Variable:
    """One of each kind of layer that is adapted, and one that is not."""
    x = x if isinstance(x, Variable) else Variable.from_numpy_array(x)
    h = PF.multi_head_attention(x, x, x, num_heads=2, name="self")[0]
    h = PF.layer_normalization(h, batch_axis=(0, 1), name="norm")
    h = F.tanh(PF.affine(h, (3, 2), base_axis=2, name="one"))
    return PF.affine(h, 4, base_axis=2, name="two")


def value(y: Variable) -> np.ndarray:
    y.forward()
    return np.array(y.d)


def parameter(name: str) -> Variable:
    found = nnl.get_parameters(grad_only=False)[name]
    assert isinstance(found, Variable)
    return found


def disturb() -> None:
    """Give all factors other numbers."""
    for one in PF.low_rank_parameters().values():
        one.d = np.random.default_rng(one.size).normal(size=one.shape) / 3


def test_the_start_is_the_model_that_was_loaded(tmp_path: Path) -> None:
    expected = value(model(X))
    nnl.save_parameters(tmp_path / "trained.npz")
    nnl.clear_parameters()
    nnl.load_parameters(tmp_path / "trained.npz")
    with PF.low_rank_adapters(rank=2, alpha=16):
        y = model(X)
    np.testing.assert_allclose(value(y), expected, rtol=1e-6)


def test_an_adapted_affine_layer_adds_the_product_of_its_factors() -> None:
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    y = PF.low_rank_affine(x, (2, 4), rank=2, alpha=6)
    disturb()
    w, b = parameter("affine/W").d, parameter("affine/b").d
    a, up = parameter("affine/W_lora_A").d, parameter("affine/W_lora_B").d
    assert a.shape == (3, 2)
    assert up.shape == (2, 2, 4)
    product = np.einsum("ir,rjk->ijk", a, up)
    expected = np.einsum("ni,ijk->njk", x, w + 6 / 2 * product) + b
    np.testing.assert_allclose(value(y), expected, rtol=1e-5, atol=1e-6)


def test_only_the_factors_get_a_gradient_and_the_input() -> None:
    x = Variable.from_numpy_array(X, need_grad=True)
    with PF.low_rank_adapters(rank=2):
        y = model(x)
    disturb()
    assert set(nnl.get_parameters()) == {
        *PF.low_rank_parameters(),
        "norm/layer_normalization/beta",
        "norm/layer_normalization/gamma",
    }
    weight = parameter("one/affine/W")
    weight.grad.zero()
    y.forward()
    y.backward()
    assert x.g.any()
    assert not weight.g.any()
    assert all(one.g.any() for name, one in PF.low_rank_parameters().items() if "k_" not in name)


def test_training_the_factors_changes_nothing_else() -> None:
    target = RNG.normal(size=(6, 2, 4)).astype(np.float32)
    model(X)
    before = {name: np.array(p.d) for name, p in nnl.get_parameters(grad_only=False).items()}
    with PF.low_rank_adapters(rank=2, alpha=4):
        loss = F.mean(F.squared_error(model(X), target))
    first = float(value(loss))
    solver = nnl.S.Adam(0.05)
    solver.set_parameters(PF.low_rank_parameters())
    step = nnl.compile_step(loss, solver)
    for _ in range(60):
        step.run()
    assert float(value(loss)) < 0.6 * first
    for name, array in before.items():
        np.testing.assert_array_equal(parameter(name).d, array, err_msg=name)


def test_merging_keeps_what_the_model_does_and_forgets_the_factors() -> None:
    model(X)
    names = list(nnl.get_parameters(grad_only=False))
    with PF.low_rank_adapters(rank=2, alpha=3):
        y = model(X)
    disturb()
    expected = value(y)
    merged = PF.merge_low_rank()
    assert sorted(merged) == [
        "one/affine/W",
        *(f"self/multi_head_attention/{n}_weight" for n in ("k", "out", "q", "v")),
        "two/affine/W",
    ]
    assert list(nnl.get_parameters(grad_only=False)) == names
    np.testing.assert_allclose(value(model(X)), expected, rtol=1e-4, atol=1e-5)


def test_patterns_choose_the_weights() -> None:
    with PF.low_rank_adapters(rank=1, only=("*/q_weight", "two/*")):
        model(X)
    assert {name.rpartition("_lora_")[0] for name in PF.low_rank_parameters()} == {
        "self/multi_head_attention/q_weight",
        "two/affine/W",
    }
    assert parameter("one/affine/W").need_grad
    assert not parameter("two/affine/b").need_grad
    assert not parameter("self/multi_head_attention/q_bias").need_grad
    assert parameter("self/multi_head_attention/k_bias").need_grad


def test_adapters_end_with_the_block_and_inner_ones_count() -> None:
    with PF.low_rank_adapters(rank=1):
        with PF.low_rank_adapters(rank=3):
            PF.affine(np.ones((1, 2)), 2, name="inner")
        PF.affine(np.ones((1, 2)), 2, name="outer")
    PF.affine(np.ones((1, 2)), 2, name="free")
    shapes = {name: one.shape for name, one in PF.low_rank_parameters().items()}
    assert shapes == {
        "inner/affine/W_lora_A": (2, 3),
        "inner/affine/W_lora_B": (3, 2),
        "outer/affine/W_lora_A": (2, 1),
        "outer/affine/W_lora_B": (1, 2),
    }


def test_adapters_are_saved_with_their_strength(tmp_path: Path) -> None:
    y = PF.low_rank_affine(X, 4, rank=2, alpha=9)
    disturb()
    expected = value(y)
    nnl.save_parameters(tmp_path / "adapted.npz")
    nnl.clear_parameters()
    nnl.load_parameters(tmp_path / "adapted.npz")
    np.testing.assert_array_equal(value(PF.low_rank_affine(X, 4, rank=2, alpha=1)), expected)


def test_a_layer_whose_weight_is_altered_already_stays_as_it_is() -> None:
    with PF.low_rank_adapters(rank=2):
        PF.affine(X, 4, apply_w=lambda w: w * 2)
    assert PF.low_rank_parameters() == {}


def test_a_rank_below_1_is_refused() -> None:
    with pytest.raises(ParameterError, match="rank 0"):
        PF.low_rank_affine(X, 4, rank=0)


def test_an_adapter_without_its_weight_is_not_merged() -> None:
    PF.low_rank_affine(X, 4, rank=1, name="whole")
    PF.low_rank_affine(X, 4, rank=1, name="broken")
    disturb()
    before = np.array(parameter("whole/affine/W").d)
    pop_parameter("broken/affine/W")
    with pytest.raises(ParameterError, match="'broken/affine/W' is not; call it in the scope"):
        PF.merge_low_rank()
    np.testing.assert_array_equal(parameter("whole/affine/W").d, before)
