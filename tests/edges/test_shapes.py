"""Arrays of no axes, of axes longer than 32 bits count, and in any memory layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import NnlError
from nnl_core.graph.execute import forward_all
from nnl_core.graph.operator import Operator
from nnl_core.testing import operators

Evaluate = Callable[[Callable[[], Any]], np.ndarray]

# No axes -----------------------------------------------------------------------------------------

ELEMENTWISE = [op for op in operators("nnl") if op.is_elementwise]


@pytest.mark.parametrize("operator", ELEMENTWISE, ids=str)
def test_an_elementwise_function_of_no_axes_is_that_of_one_element(operator: Operator) -> None:
    for sample in operator.iterate_samples(np.random.default_rng(0)):
        arrays = [a for a in sample.inputs if a is not None]
        if not all(a.size for a in arrays) or operator.__name__ == "normalize":
            continue
        first = [None if a is None else a.ravel()[:1] for a in sample.inputs]
        one = operator(*first, **sample.attributes)
        none = operator(
            *(None if a is None else np.asarray(a[0]) for a in first), **sample.attributes
        )
        assert one.shape == (1,) and none.shape == ()
        np.testing.assert_array_equal(none.d, one.d[0])


POINT = np.array(2.0)
SCALARS: dict[str, tuple[Callable[[Variable], Any], Any]] = {
    **{
        name: (getattr(F, name), 2)
        for name in ("sum", "prod", "norm", "mean", "max", "min", "logsumexp", "reduce_sum")
    },
    "var": (F.var, 0),
    "std": (F.std, 0),
    "argmax": (F.argmax, 0),
    "transpose": (lambda x: F.transpose(x, ()), 2),
    "reshape": (lambda x: F.reshape(x, (1, 1)), [[2]]),
    "squeeze": (F.squeeze, 2),
    "expand_dims": (lambda x: F.expand_dims(x, 0), [2]),
    "broadcast": (lambda x: F.broadcast(x, (2,)), [2, 2]),
    "tile": (lambda x: F.tile(x, 2), [2, 2]),
    "stack": (lambda x: F.stack(x, x), [2, 2]),
    "pad": (lambda x: F.pad(x, ()), 2),
    "slice": (F.slice, 2),
    "getitem": (lambda x: x[...], 2),
    "a new axis": (lambda x: x[None], [2]),
    "einsum": (lambda x: F.einsum(",->", x, x), 4),
    "dot": (lambda x: F.dot(x, x), 4),
    "where": (lambda x: F.where(np.array(True), x, 0.0), 2),
    "dropout of nothing": (lambda x: F.dropout(x, 0.0), 2),
    "gather at one place": (lambda x: F.gather(np.arange(3.0), F.cast(x, "int64"), axis=0), 2),
    "embed": (lambda x: F.embed(F.cast(x, "int64"), np.arange(6.0).reshape(3, 2)), [4, 5]),
    "gather_nd": (lambda x: F.gather_nd(F.reshape(x, (1,)), np.array([0])), 2),
    "scatter_nd": (lambda x: F.scatter_nd(x, np.array([1]), shape=(2,)), [0, 2]),
    "bool_gather": (lambda x: F.bool_gather(x, np.array(1.0)), [2]),
    "unique": (F.unique, [2]),
    "tensor_normalization": (lambda x: F.tensor_normalization(x, ()), 0),
}


@pytest.mark.parametrize(("build", "expected"), SCALARS.values(), ids=SCALARS)
def test_functions_take_and_give_arrays_of_no_axes(
    build: Callable[[Variable], Any], expected: Any, evaluate: Evaluate
) -> None:
    result = evaluate(lambda: build(Variable.from_numpy_array(POINT)))
    assert result.shape == np.shape(expected)
    np.testing.assert_array_equal(result, expected)


def test_of_no_axes_there_is_one_place_and_it_has_no_numbers(evaluate: Evaluate) -> None:
    assert evaluate(lambda: F.shape(POINT)).shape == (0,)
    assert evaluate(lambda: F.nonzero(POINT)).shape == (0, 1)


NEEDS_AN_AXIS: dict[str, Callable[[], Any]] = {
    **{
        name: (lambda name=name: getattr(F, name)(POINT))
        for name in (
            *("softmax", "log_softmax", "masked_softmax", "cumsum", "cumprod", "cummax", "sort"),
            *("logcumsumexp", "flip", "split", "eye_like", "trilu", "matrix_diag", "batch_det"),
            *("batch_inv", "batch_cholesky", "global_average_pooling", "meshgrid", "rms_norm"),
            *("weight_standardization", "random_crop", "random_erase", "image_augmentation"),
            *("nms_detection2d", "crelu", "random_flip"),
        )
    },
    **{
        name: (lambda name=name: getattr(F, name)(POINT, POINT))
        for name in (
            *("matmul", "affine", "concatenate", "convolution", "deconvolution", "warp_by_grid"),
            *("top_n_error", "confusion_matrix", "softmax_cross_entropy", "nll_loss", "info_nce"),
            *("kl_multinomial", "cosine_similarity", "random_choice", "patch_correlation"),
            *("pack_padded_sequence", "onnx_non_max_suppression", "warp_by_flow"),
        )
    },
    "topk": lambda: F.topk(POINT, 1),
    "max_pooling": lambda: F.max_pooling(POINT, (1,)),
    "unfold": lambda: F.unfold(POINT, (1,)),
    "fft": lambda: F.fft(POINT, 1),
    "stft": lambda: F.stft(POINT, 4, 2, 4),
    "interpolate": lambda: F.interpolate(POINT, output_size=(1,)),
    "pixel_shuffle": lambda: F.pixel_shuffle(POINT, 1),
    "rnn": lambda: F.rnn(POINT, POINT, POINT),
    "attention": lambda: F.scaled_dot_product_attention(POINT, POINT, POINT),
    "ctc_loss": lambda: F.ctc_loss(POINT, POINT, POINT, POINT),
    "layer_normalization": lambda: F.layer_normalization(POINT, None, None),
    "batch_normalization": lambda: F.batch_normalization(POINT, None, None, None, None),
    "gather_elements": lambda: F.gather_elements(POINT, np.array(0)),
    "scatter_add": lambda: F.scatter_add(POINT, np.array(0), POINT),
}


@pytest.mark.parametrize("build", NEEDS_AN_AXIS.values(), ids=NEEDS_AN_AXIS)
def test_what_works_along_an_axis_says_that_there_is_none(build: Callable[[], Any]) -> None:
    with pytest.raises(NnlError, match=r"ax[ie]s|shape|length|batch"):
        build()


# Axes that 32 bits do not count ------------------------------------------------------------------

LONG = 2**40
NONE = np.zeros((0, LONG))
HUGE: dict[str, tuple[Callable[[Variable], Any], tuple[int, ...]]] = {
    "transpose": (lambda x: F.transpose(x, (1, 0)), (LONG, 0)),
    "reshape": (lambda x: F.reshape(x, (2**20, 2**20, 0)), (2**20, 2**20, 0)),
    "sum": (lambda x: F.sum(x, axis=1), (0,)),
    "mean": (lambda x: F.mean(x, axis=1), (0,)),
    "max": (lambda x: F.max(x, axis=1), (0,)),
    "softmax": (lambda x: F.softmax(x, axis=1), (0, LONG)),
    "layer_normalization": (lambda x: F.layer_normalization(x, None, None), (0, LONG)),
    "sort": (lambda x: F.sort(x, axis=1), (0, LONG)),
    "topk": (lambda x: F.topk(x, 3)[0], (0, 3)),
    "cumsum": (lambda x: F.cumsum(x, axis=1), (0, LONG)),
    "concatenate": (lambda x: F.concatenate(x, x, axis=1), (0, 2 * LONG)),
    "pad": (lambda x: F.pad(x, (1, 2)), (0, LONG + 3)),
    "flip": (lambda x: F.flip(x, (1,)), (0, LONG)),
    "tile": (lambda x: F.tile(x, (1, 4)), (0, 4 * LONG)),
    "matmul": (lambda x: F.matmul(x, F.transpose(x, (1, 0))), (0, 0)),
    "gather": (lambda x: F.gather(x, np.array([LONG - 1]), axis=1), (0, 1)),
    "gather_nd": (lambda x: F.gather_nd(x, np.zeros((2, 0), np.int64)), (0,)),
    "gather_elements": (
        lambda x: F.gather_elements(x, np.zeros((0, 3), np.int64), axis=1),
        (0, 3),
    ),
    "getitem": (lambda x: x[:, LONG - 1], (0,)),
    "slice": (lambda x: x[:, LONG // 2 :: 2**10], (0, 2**29)),
    "one_hot": (lambda x: F.one_hot(np.zeros((0, 1), np.int64), (LONG,)), (0, LONG)),
    "convolution": (
        lambda x: F.convolution(F.reshape(x, (0, 1, 2**16, 2**16)), np.ones((1, 1, 3, 3))),
        (0, 1, 2**16 - 2, 2**16 - 2),
    ),
    "max_pooling": (lambda x: F.max_pooling(x, (4,)), (0, LONG // 4)),
    "add": (lambda x: x + x, (0, LONG)),
    "nonzero": (F.nonzero, (2, 0)),
}


@pytest.mark.parametrize(("build", "shape"), HUGE.values(), ids=HUGE)
def test_lengths_beyond_32_bits_are_counted_forward_and_backward(
    build: Callable[[Variable], Any], shape: tuple[int, ...]
) -> None:
    x = Variable.from_numpy_array(NONE, need_grad=True)
    y = build(x)
    forward_all([y])
    assert y.d.shape == shape
    if y.need_grad:
        (gradient,) = nnl.grad(y, x, allow_unused=True)
        assert gradient.d.shape == NONE.shape


def test_a_position_beyond_32_bits_is_not_folded_back() -> None:
    with pytest.raises(NnlError, match=f"index {2**32} is out of range"):
        F.gather(np.arange(4.0), np.array([2**32]), axis=0).forward()


# Memory layouts ----------------------------------------------------------------------------------

DATA = np.random.default_rng(8).normal(size=(4, 6))


def read_only() -> np.ndarray:
    copy = DATA.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS: dict[str, Callable[[], np.ndarray]] = {
    "backwards": lambda: DATA[::-1, ::-1].copy()[::-1, ::-1],
    "columns first": lambda: np.asfortranarray(DATA),
    "every second": lambda: DATA.repeat(2, axis=1)[:, ::2],
    "transposed": lambda: DATA.T.copy().T,
    "read-only": read_only,
    "big-endian": lambda: DATA.astype(">f8"),
    "unaligned": lambda: np.frombuffer(b"\0" + DATA.tobytes(), np.float64, offset=1).reshape(4, 6),
    "a field of records": lambda: np.rec.fromarrays([np.zeros((4, 6)), DATA]).f1,
}
READERS: dict[str, Callable[[Variable], Any]] = {
    "sum": lambda x: F.sum(x, axis=0),
    "elementwise": lambda x: F.tanh(x) * x,
    "matmul": lambda x: F.matmul(x, F.transpose(x, (1, 0))),
    "softmax": lambda x: F.softmax(x, axis=0),
    "convolution": lambda x: F.convolution(F.reshape(x, (1, 1, 4, 6)), np.ones((1, 1, 2, 2))),
    "max_pooling": lambda x: F.max_pooling(x, (2, 2)),
    "sort": lambda x: F.sort(x, axis=0),
    "gather": lambda x: F.gather(x, np.array([3, 0]), axis=0),
    "cumsum": lambda x: F.cumsum(x, axis=0),
    "reshape": lambda x: F.reshape(x, (6, 4)),
    "unfold": lambda x: F.unfold(F.reshape(x, (1, 1, 4, 6)), (2, 2)),
    "interpolate": lambda x: F.interpolate(F.reshape(x, (1, 1, 4, 6)), output_size=(5, 5)),
}


@pytest.mark.parametrize("arrange", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("build", READERS.values(), ids=READERS)
def test_the_layout_of_an_array_changes_no_value_and_no_gradient(
    build: Callable[[Variable], Any], arrange: Callable[[], np.ndarray], differentiate: Any
) -> None:
    expected = differentiate(build, DATA)
    for result, target in zip(differentiate(build, arrange()), expected, strict=True):
        np.testing.assert_allclose(result, target, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("arrange", LAYOUTS.values(), ids=LAYOUTS)
def test_a_variable_is_set_to_an_array_of_any_layout(arrange: Callable[[], np.ndarray]) -> None:
    x = Variable((4, 6), dtype="float64")
    y = F.cumsum(x, axis=1)
    x.d = arrange()
    y.forward()
    np.testing.assert_allclose(y.d, np.cumsum(DATA, axis=1), rtol=1e-14)


def test_one_element_that_is_seen_everywhere_is_read_everywhere(differentiate: Any) -> None:
    everywhere = np.broadcast_to(np.array(3.0), (4, 6))
    y, dx = differentiate(lambda x: F.sum(x * x, axis=1), everywhere)
    np.testing.assert_array_equal(y, np.full(4, 54.0))
    np.testing.assert_array_equal(dx, np.full((4, 6), 6.0))
