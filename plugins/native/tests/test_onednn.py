"""oneDNN through its C interface: right answers, layouts that it chooses, refusals in words."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core.errors import BackendError
from nnl_native import onednn, onednn_library
from nnl_native.kernel import channels_last, plain
from nnl_native.onednn import Descriptor, Geometry

GEOMETRY = Geometry(stride=(2, 1), dilation=(1, 2), before=(1, 0), after=(0, 2))
X, WEIGHT, Y = (2, 3, 7, 6), (4, 3, 3, 2), (2, 4, 3, 6)


@pytest.fixture(autouse=True)
def library():
    if onednn.problem() is not None:
        pytest.skip(str(onednn.problem()))


def strided(array):
    return Descriptor.strided(array.shape, [n // array.itemsize for n in array.strides])


def last(array):
    """Return the same array with its channels side by side in memory."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)).transpose(0, 3, 1, 2)


def run(primitive, arrays, threads=1):
    onednn.execute(primitive, {k: a.ctypes.data for k, a in arrays.items()}, threads)


def brought(array, target):
    """Copy into a layout that oneDNN chose."""
    memory = np.zeros(target.nbytes // 4, np.float32)
    primitive = onednn.reorder(strided(array), target, 1)
    run(primitive, {onednn.SOURCE: array, onednn.DESTINATION: memory})
    return memory


def taken(memory, source, shape):
    """Copy back from a layout that oneDNN chose."""
    array = np.zeros(shape, np.float32)
    primitive = onednn.reorder(source, strided(array), 1)
    run(primitive, {onednn.SOURCE: memory, onednn.DESTINATION: array})
    return array


def correlate(x, weight):
    """Convolve with GEOMETRY, by its definition."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)))
    y = np.zeros(Y)
    for i, j in np.ndindex(Y[2:]):
        window = padded[:, :, 2 * i : 2 * i + 3, j : j + 3 : 2]
        y[:, :, i, j] = np.einsum("nckl,mckl->nm", window, weight)
    return y


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) for shape in (X, WEIGHT, Y, WEIGHT[:1])]


def test_a_convolution_of_channels_last_correlates_windows_with_each_map(arrays):
    x, weight, _, bias = arrays
    x, y = last(x), last(np.zeros(Y, np.float32))
    any_weight = Descriptor.any(WEIGHT)
    made = onednn.convolution(strided(x), any_weight, strided(bias), strided(y), GEOMETRY, 1)
    given = {
        onednn.SOURCE: x,
        onednn.WEIGHT: brought(weight, made.descriptors[onednn.WEIGHT]),
        onednn.BIAS: bias,
        onednn.DESTINATION: y,
    }
    run(made, given)
    np.testing.assert_allclose(y, correlate(x, weight) + bias[:, None, None], rtol=1e-4, atol=1e-4)


def test_gradients_of_a_convolution_are_its_transposes(arrays):
    x, weight, dy, _ = arrays
    x, dy, dx = last(x), last(dy), last(np.zeros(X, np.float32))
    of_data = onednn.convolution_data(strided(dx), Descriptor.any(WEIGHT), strided(dy), GEOMETRY, 1)
    memory = brought(weight, of_data.descriptors[onednn.WEIGHT])
    numbers = (onednn.SOURCE_GRADIENT, onednn.WEIGHT, onednn.DESTINATION_GRADIENT)
    run(of_data, dict(zip(numbers, (dx, memory, dy), strict=True)))
    of_weight = onednn.convolution_weight(
        strided(x), Descriptor.any(WEIGHT), None, strided(dy), GEOMETRY, 1
    )
    layout = of_weight.descriptors[onednn.WEIGHT_GRADIENT]
    memory = np.zeros(layout.nbytes // 4, np.float32)
    numbers = (onednn.SOURCE, onednn.WEIGHT_GRADIENT, onednn.DESTINATION_GRADIENT)
    run(of_weight, dict(zip(numbers, (x, memory, dy), strict=True)))
    dw = taken(memory, layout, WEIGHT)
    # The convolution is linear in each: all three products of inner products are one number.
    expected = (correlate(x, weight) * dy).sum()
    assert (x * dx).sum() == pytest.approx(expected, rel=1e-4)
    assert (weight * dw).sum() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_a_product_takes_transposed_stacks_and_repeats_a_single_matrix(transposed, threads):
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 5, 7), (1, 7, 6)))
    left, right = (
        np.ascontiguousarray(one.swapaxes(1, 2)).swapaxes(1, 2) if swap else one
        for one, swap in zip((a, b), transposed, strict=True)
    )
    y = np.zeros((3, 5, 6), np.float32)
    made = onednn.matmul(strided(left), strided(right), None, strided(y), threads)
    run(made, {onednn.SOURCE: left, onednn.WEIGHT: right, onednn.DESTINATION: y}, threads)
    np.testing.assert_allclose(y, a @ b, rtol=1e-5, atol=1e-5)


def test_post_ops_follow_a_product_in_order():
    rng = np.random.default_rng(2)
    a, b, y, other = (
        rng.normal(size=shape).astype(np.float32) for shape in ((5, 7), (7, 6), (5, 6), (1, 6))
    )
    before = y.copy()
    steps = (
        onednn.Accumulate(0.5),
        onednn.Elementwise("relu", 0.1),
        onednn.Combine("mul", strided(other)),
    )
    made = onednn.matmul(strided(a), strided(b), None, strided(y), 1, steps)
    given = {onednn.SOURCE: a, onednn.WEIGHT: b, onednn.DESTINATION: y}
    run(made, given | {onednn.combined(2): other})
    total = a @ b + 0.5 * before
    np.testing.assert_allclose(
        y, np.where(total > 0, total, 0.1 * total) * other, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("name", "number"), sorted(onednn.ELEMENTWISE.items()))
def test_names_of_functions_are_the_librarys(name, number):
    x = np.array([[-1.5, 0.25, 2.0]], np.float32)
    y = np.zeros_like(x)
    made = onednn.matmul(
        strided(x), strided(np.eye(3, dtype=np.float32)), None, strided(y), 1,
        (onednn.Elementwise(name, *PARAMETERS.get(name, (0.0, 0.0))),),
    )  # fmt: skip
    run(made, {onednn.SOURCE: x, onednn.WEIGHT: np.eye(3, dtype=np.float32), onednn.DESTINATION: y})
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(y, FUNCTIONS[name](x.astype(float)), rtol=1e-4, atol=1e-5)


def _logistic(x):
    return 1 / (1 + np.exp(-x))


def _gelu(x):
    erf = np.array([[-0.8663855974622838, 0.1974126513658474, 0.9544997361036416]])  # of x/sqrt 2
    return x / 2 * (1 + erf)


PARAMETERS = {
    "elu": (0.5, 0.0),
    "linear": (2.0, 1.0),
    "clip": (-1.0, 1.0),
    "softplus": (1.0, 0.0),
    "hard_sigmoid": (0.25, 0.5),
    "hard_swish": (0.25, 0.5),
    "swish": (1.0, 0.0),
}
FUNCTIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)),
    "square": np.square,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "linear": lambda x: 2 * x + 1,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "hard_sigmoid": lambda x: np.clip(x / 4 + 0.5, 0, 1),
    "sigmoid": _logistic,
    "exp": np.exp,
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "swish": lambda x: x * _logistic(x),
    "log": np.log,
    "clip": lambda x: np.clip(x, -1, 1),
    "gelu": _gelu,
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "hard_swish": lambda x: x * np.clip(x / 4 + 0.5, 0, 1),
}


def test_descriptors_are_equal_where_elements_are_at_the_same_places():
    one = Descriptor.strided((5, 1, 7), (7, 7, 1))
    other = Descriptor.strided((5, 1, 7), (7, 1, 1))  # an axis of length 1 goes nowhere
    assert one == other
    assert hash(one) == hash(other)
    assert one != Descriptor.strided((5, 1, 7), (1, 5, 5))
    assert one.nbytes == 4 * 5 * 7


def test_equal_questions_have_one_primitive():
    asked = [
        [Descriptor.strided(shape, plain(shape).strides) for shape in ((4, 3), (3, 2), (4, 2))]
        for _ in range(2)
    ]
    first, second = (onednn.matmul(a, b, None, c, 1) for a, b, c in asked)
    assert first is second


def test_channels_last_is_not_the_reference_implementation():
    x, y = (Descriptor.strided(s, channels_last(s).strides) for s in ((2, 1, 9, 9), (2, 16, 7, 7)))
    square = Geometry((1, 1), (1, 1), (0, 0), (0, 0))
    made = onednn.convolution(x, Descriptor.any((16, 1, 3, 3)), None, y, square, 1)
    assert not made.implementation.startswith("ref")


def test_an_error_says_which_shapes_were_asked_for():
    a, b, c = (Descriptor.strided(s, plain(s).strides) for s in ((4, 3), (5, 2), (4, 2)))
    with pytest.raises(onednn.PrimitiveError, match=r"matrix product of \(4, 3\), \(5, 2\)"):
        onednn.matmul(a, b, None, c, 1)
    with pytest.raises(onednn.PrimitiveError, match="not with float64"):
        Descriptor.any((2, 3), "float64")


def test_a_library_that_is_missing_is_a_reason_and_an_error(monkeypatch):
    monkeypatch.setattr(onednn_library, "_candidates", lambda: iter(()))
    monkeypatch.setattr(onednn_library, "_search", onednn_library._search.__wrapped__)
    assert onednn.find_library() is None
    assert "pip install onednn-cpu-gomp" in str(onednn.problem())
    with pytest.raises(BackendError, match="is not installed"):
        onednn_library.library.__wrapped__()


def test_a_file_that_is_no_library_is_a_reason(monkeypatch, tmp_path):
    file = tmp_path / "libdnnl.so.3"
    file.write_text("no library")
    monkeypatch.setattr(onednn_library, "_candidates", lambda: iter([(file, (3, 2))]))
    monkeypatch.setattr(onednn_library, "_search", onednn_library._search.__wrapped__)
    assert f"{file} cannot be loaded" in str(onednn.problem())
