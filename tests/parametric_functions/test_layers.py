"""Transformers, normed weights and the decorator, beyond what was recorded."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F
from nnl_core.errors import ParameterError, ShapeError
from nnl_core.graph.variable import Variable


@pytest.fixture(autouse=True)
def own_scope() -> Iterator[None]:
    with nnl.parameter_scope("", {}):
        yield


def variable(*shape: int) -> Variable:
    numbers = np.random.default_rng(len(shape)).normal(size=shape)
    return Variable.from_numpy_array(numbers.astype(np.float32), need_grad=True)


# Transformers ------------------------------------------------------------------------------------


def small(src: Variable, tgt: Variable, **options: Any) -> Variable:
    return PF.transformer(
        src, tgt, 8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=6,
        **options,
    )  # fmt: skip


def test_dropout_draws_anew_at_each_run_and_none_is_drawn_without() -> None:
    src, tgt = variable(4, 2, 8), variable(3, 2, 8)
    dropped, whole = small(src, tgt), small(src, tgt, dropout=0)

    def run(y: Variable) -> bytes:
        y.forward()
        return np.array(y.d).tobytes()

    assert run(dropped) != run(dropped)
    assert run(whole) == run(whole)


def test_a_causal_mask_keeps_later_targets_out() -> None:
    src, tgt = variable(4, 2, 8), variable(5, 2, 8)
    causal = np.triu(np.full((5, 5), -np.inf, np.float32), 1)
    y = small(src, tgt, dropout=0, tgt_additive_mask=Variable.from_numpy_array(causal))
    y.forward()
    before = np.array(y.d)
    changed = np.array(tgt.d)
    changed[3:] += 1
    tgt.d = changed
    y.forward()
    np.testing.assert_allclose(y.d[:3], before[:3], rtol=1e-5, atol=1e-6)
    assert abs(y.d[3:] - before[3:]).max() > 0.01


def test_fixed_parameters_get_no_gradient() -> None:
    x = variable(4, 2, 8)
    y = small(nnl.Variable((4, 2, 8)), nnl.Variable((3, 2, 8)), fix_parameters=True, dropout=0)
    assert not y.need_grad
    assert small(x, nnl.Variable((3, 2, 8)), fix_parameters=True).need_grad


def test_a_generator_fixes_first_values() -> None:
    for name in ("one", "two"):
        small(variable(4, 2, 8), variable(3, 2, 8), rng=np.random.default_rng(5), name=name)
    found = nnl.get_parameters()
    first = {name: p for name, p in found.items() if name.startswith("one/")}
    assert len(first) * 2 == len(found)
    for name, parameter in first.items():
        np.testing.assert_array_equal(parameter.d, found[name.replace("one/", "two/")].d)


@pytest.mark.parametrize(
    ("src", "tgt", "text"),
    [
        ((4, 2, 8), (3, 3, 8), r"tgt has shape \(3, 3, 8\)"),
        ((4, 2, 7), (3, 2, 8), r"src has shape \(4, 2, 7\)"),
        ((4, 2, 8), (3, 8), r"tgt has shape \(3, 8\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    src: tuple[int, ...], tgt: tuple[int, ...], text: str
) -> None:
    with pytest.raises(ShapeError, match=text):
        small(nnl.Variable(src), nnl.Variable(tgt))


# Normed weights ----------------------------------------------------------------------------------


def test_spectral_norm_of_a_layer_converges_to_the_largest_singular_value() -> None:
    x = variable(3, 6)
    y = PF.affine(x, 4, with_bias=False, apply_w=lambda w: PF.spectral_norm(w, dim=1))
    for _ in range(100):
        y.forward()
    w = np.array(nnl.get_parameters()["affine/W"].d)
    largest = np.linalg.svd(w, compute_uv=False)[0]
    np.testing.assert_allclose(y.d, x.d @ (w / largest), rtol=1e-4, atol=1e-5)


def test_spectral_norm_under_test_leaves_its_vector_alone() -> None:
    y = PF.spectral_norm(variable(4, 3), test=True)
    (u,) = nnl.get_parameters(grad_only=False).values()
    before = np.array(u.d)
    y.forward()
    np.testing.assert_array_equal(u.d, before)


def test_weight_normalization_starts_at_the_weight_and_frees_its_length() -> None:
    x = variable(2, 3)
    y = PF.affine(x, 4, apply_w=lambda w: PF.weight_normalization(w, dim=1))
    found = nnl.get_parameters()
    assert list(found) == ["affine/W", "affine/wn/g", "affine/b"]
    np.testing.assert_allclose(y.d, x.d @ found["affine/W"].d, rtol=1e-5)
    found["affine/wn/g"].d = 2 * found["affine/wn/g"].d
    found["affine/W"].d = 5 * found["affine/W"].d
    y.forward()
    np.testing.assert_allclose(y.d, 2 / 5 * x.d @ found["affine/W"].d, rtol=1e-5)


def test_fixed_lengths_get_no_gradient() -> None:
    y = PF.weight_normalization(nnl.Variable((2, 3)), fix_parameters=True)
    assert not y.need_grad


# The decorator -----------------------------------------------------------------------------------


@PF.parametric_function_api("scaling", [("s", "the factor", "(1,)", True)])
def scaled(x: Variable, factor: float = 2.0, fix_parameters: bool = False) -> Variable:
    """Multiply by a factor."""
    return x * PF.get_parameter_or_create(
        "s", (1,), np.array([factor]), True, not fix_parameters
    )  # fmt: skip


def test_parameters_go_into_the_scope_and_under_the_name() -> None:
    x = variable(3)
    np.testing.assert_allclose(scaled(x).d, 2 * x.d)
    np.testing.assert_allclose(scaled(x, 3.0, name="a/b").d, 3 * x.d)
    np.testing.assert_allclose(scaled(x, 4.0, False, "c").d, 4 * x.d)
    assert list(nnl.get_parameters()) == ["scaling/s", "a/b/scaling/s", "c/scaling/s"]


def test_signature_and_docstring_say_what_was_added() -> None:
    assert list(inspect.signature(scaled).parameters) == ["x", "factor", "fix_parameters", "name"]
    assert scaled.__name__ == "scaled"
    assert scaled.__doc__ is not None
    assert scaled.__doc__.startswith("Multiply by a factor.")
    assert "- ``scaling/s`` of shape ``(1,)``: the factor" in scaled.__doc__


def test_the_scope_is_named_after_the_function_by_default() -> None:
    @PF.parametric_function_api()
    def shifted(*xs: Variable, fix_parameters: bool = False, **options: object) -> Variable:
        return F.add_n(*xs) + PF.get_parameter_or_create("t", (1,))

    shifted(variable(3), variable(3), name="n")
    assert list(nnl.get_parameters()) == ["n/shifted/t"]
    assert list(inspect.signature(shifted).parameters)[-2:] == ["name", "options"]


def test_a_function_with_a_name_of_its_own_is_refused() -> None:
    with pytest.raises(ParameterError, match="'named' has an argument 'name' already"):

        @PF.parametric_function_api("x")
        def named(x: Variable, name: str) -> Variable:
            return x


def test_parameters_are_found_through_pf() -> None:
    with PF.parameter_scope("outer"):
        made = PF.get_parameter_or_create("w", (2,))
    assert PF.get_parameter("outer/w") is made
    assert PF.get_parameter("w") is None


# Misuse ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [0, -1])
def test_groups_count_from_one(group: int) -> None:
    for layer in (PF.convolution, PF.deconvolution):
        with pytest.raises(ShapeError, match=f"group {group} must be at least 1"):
            layer(variable(2, 4, 6, 6), 4, (3, 3), group=group)


def test_a_layer_names_the_axis_of_channels_that_its_input_lacks() -> None:
    for layer in (PF.convolution, PF.deconvolution):
        with pytest.raises(ShapeError, match="axis 1 is out of range for 1 axes"):
            layer(variable(2), 4, (3, 3))


def test_first_values_of_parameters_that_a_layer_lacks_are_refused() -> None:
    x = variable(2, 4, 6)
    for layer, names in (
        (PF.batch_normalization, "beta, gamma, mean, var"),
        (PF.layer_normalization, "beta, gamma"),
    ):
        with pytest.raises(ParameterError, match=rf"\['gama'\]; it is a dict of {names}"):
            layer(x, param_init={"gama": np.ones(4)})
        with pytest.raises(ParameterError, match="it is a dict of"):
            layer(x, param_init="gamma")
