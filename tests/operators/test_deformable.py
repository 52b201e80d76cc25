"""Deformable convolution against loops over its definition, and what its arguments mean."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.variable import Variable


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(size=shape)


def between(image: np.ndarray, *at: float) -> float:
    """Interpolate linearly between elements of an image that is 0 outside."""
    total = 0.0
    low = [math.floor(p) for p in at]
    for corner in itertools.product((0, 1), repeat=len(at)):
        place = tuple(n + c for n, c in zip(low, corner, strict=True))
        if all(0 <= p < n for p, n in zip(place, image.shape, strict=True)):
            weights = [1 - abs(p - a) for p, a in zip(place, at, strict=True)]
            total += math.prod(weights) * image[place]
    return total


def by_definition(
    x: np.ndarray,
    weight: np.ndarray,
    offset: np.ndarray,
    mask: np.ndarray,
    pad: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    deformable_group: int,
) -> np.ndarray:
    """One group, offsets at the places of the result."""
    kernel = weight.shape[2:]
    places = offset.shape[2:]
    y = np.zeros((x.shape[0], weight.shape[0], *places))
    taps = list(itertools.product(*map(range, kernel)))
    run = x.shape[1] // deformable_group
    for b, c, (k, tap), p in itertools.product(
        range(x.shape[0]), range(x.shape[1]), enumerate(taps), np.ndindex(*places)
    ):
        row = c // run * len(taps) + k
        at = [
            p[n] * stride[n] + tap[n] * dilation[n] - pad[n]
            + offset[(b, row * len(kernel) + n, *p)]
            for n in range(len(kernel))
        ]  # fmt: skip
        y[(b, slice(None), *p)] += (
            weight[(slice(None), c, *tap)] * mask[(b, row, *p)] * between(x[b, c], *at)
        )
    return y


CASES: dict[str, tuple[Any, ...]] = {
    "image": ((2, 4, 5, 6), (3, 4, 2, 3), (1, 0), (1, 2), (2, 1), 2, (5, 2)),
    "signal": ((2, 2, 7), (3, 2, 3), (1,), (2,), (1,), 1, (4,)),
    "volume": ((1, 2, 3, 4, 3), (2, 2, 2, 1, 2), (0, 1, 0), (1, 2, 1), (1, 1, 2), 2, (2, 3, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_its_definition_says(name: str) -> None:
    shape, weight, pad, stride, dilation, groups, places = CASES[name]
    size, count = math.prod(weight[2:]), len(places)
    x, w = draw(*shape), draw(*weight)
    offset = 2 * draw(shape[0], groups * size * count, *places)
    mask = draw(shape[0], groups * size, *places)
    y = F.deformable_convolution(
        x, w, offset, mask, None, 1, pad, stride, dilation, 1, groups
    )  # fmt: skip
    expected = by_definition(x, w, offset, mask, pad, stride, dilation, groups)
    np.testing.assert_allclose(y.d, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("group", [1, 2])
def test_without_offsets_it_is_a_convolution(group: int) -> None:
    x, weight, bias = draw(2, 4, 5, 6), draw(6, 4 // group, 3, 2), draw(6)
    options = {"pad": (1, 2), "stride": (2, 1), "dilation": (1, 2), "group": group}
    convolved = F.convolution(x, weight, bias, **options).d
    offset = np.zeros((2, 12, *convolved.shape[2:]))
    moved = F.deformable_convolution(x, weight, offset, bias=bias, **options)
    np.testing.assert_allclose(moved.d, convolved, rtol=1e-12, atol=1e-12)


def test_offsets_of_the_shape_of_the_input_count_at_every_stride() -> None:
    x, weight = draw(1, 2, 6, 7), draw(3, 2, 2, 2)
    offset, mask = draw(1, 8, 6, 7), draw(1, 4, 6, 7)
    whole = F.deformable_convolution(x, weight, offset, mask, stride=(2, 3))
    taken = F.deformable_convolution(
        x, weight, offset[..., :5:2, :4:3], mask[..., :5:2, :4:3], stride=(2, 3)
    )
    np.testing.assert_array_equal(whole.d, taken.d)


def test_channels_may_be_last() -> None:
    x, weight, bias = draw(2, 4, 5, 6), draw(6, 2, 3, 2), draw(6)
    offset, mask = draw(2, 24, 3, 5), draw(2, 12, 3, 5)
    first = F.deformable_convolution(
        x, weight, offset, mask, bias, group=2, deformable_group=2
    )  # fmt: skip
    last = F.deformable_convolution(
        *(np.moveaxis(v, 1, -1) for v in (x, weight, offset, mask)),
        bias, group=2, deformable_group=2, channel_last=True,
    )  # fmt: skip
    np.testing.assert_allclose(np.moveaxis(last.d, -1, 1), first.d, rtol=1e-12)


def test_any_number_of_batch_axes() -> None:
    x, weight, offset = draw(2, 3, 2, 4, 4), draw(3, 2, 2, 2), draw(2, 3, 8, 3, 3)
    y = F.deformable_convolution(x, weight, offset, base_axis=2)
    flat = F.deformable_convolution(
        x.reshape(6, 2, 4, 4), weight, offset.reshape(6, 8, 3, 3)
    )  # fmt: skip
    np.testing.assert_array_equal(y.d.reshape(flat.shape), flat.d)
    single = F.deformable_convolution(x[0, 0], weight, offset[0, 0], base_axis=0)
    np.testing.assert_array_equal(single.d, flat.d[0])


@pytest.mark.parametrize("order", [1, 2])
def test_gradients_are_those_of_central_differences(order: int) -> None:
    arrays = [draw(1, 2, 4, 4), draw(2, 2, 2, 2), 0.9 * draw(1, 8, 3, 3), draw(1, 4, 3, 3), draw(2)]
    arrays = arrays[: 6 - order]  # a sum has no slope in its bias
    weights, directions = draw(1, 2, 3, 3), [draw(*a.shape) for a in arrays]
    variables = [Variable.from_numpy_array(a, need_grad=True) for a in arrays]

    def slope(graph: list[Variable]) -> Variable:
        """The outputs' weighted sum, or its slope along all directions at once."""
        total = F.sum(F.deformable_convolution(*graph) * weights)
        if order == 1:
            return total
        found = nnl.grad(total, graph)
        return sum((F.sum(g * d) for g, d in zip(found, directions, strict=True)), start=0.0)

    gradients = nnl.grad(slope(variables), variables)
    for position, gradient in enumerate(gradients):
        ends = []
        for step in (1e-6, -1e-6):
            moved = list(arrays)
            moved[position] = arrays[position] + step * directions[position]
            ends.append(
                float(slope([Variable.from_numpy_array(a, need_grad=True) for a in moved]).d)
            )
        difference = (ends[0] - ends[1]) / 2e-6
        assert np.sum(gradient.d * directions[position]) == pytest.approx(difference, rel=1e-5)


def test_what_is_not_a_number_stays_and_what_is_infinitely_far_is_outside() -> None:
    x, weight = np.ones((1, 1, 1, 3)), np.ones((1, 1, 1, 1))
    offset = np.zeros((1, 2, 1, 3))
    offset[0, 1, 0] = [np.nan, np.inf, 0]
    y = F.deformable_convolution(x, weight, offset).d
    np.testing.assert_array_equal(y, [[[[np.nan, 0, 1]]]])


def test_an_infinite_offset_does_not_poison_gradients() -> None:
    x = Variable.from_numpy_array(np.ones((1, 1, 1, 3)), need_grad=True)
    offset = np.zeros((1, 2, 1, 3))
    offset[0, 1, 0, 1] = np.inf
    moved = Variable.from_numpy_array(offset, need_grad=True)
    y = F.deformable_convolution(x, np.ones((1, 1, 1, 1)), moved)
    y.forward()
    y.backward()
    assert x.g.tolist() == [[[[1, 0, 1]]]]
    assert moved.g[0, 1].tolist() == [[0, 0, -1]]  # the last is followed by the zero outside


def test_an_empty_batch_gives_an_empty_result() -> None:
    y = F.deformable_convolution(np.zeros((0, 2, 4, 4)), draw(3, 2, 2, 2), np.zeros((0, 8, 3, 3)))
    assert y.d.shape == (0, 3, 3, 3)


def test_narrow_data_is_computed_in_single_precision() -> None:
    arrays = [a.astype(np.float16) for a in (draw(1, 2, 4, 4), draw(3, 2, 2, 2), draw(1, 8, 3, 3))]
    narrow = F.deformable_convolution(*arrays)
    single = F.deformable_convolution(*(a.astype(np.float32) for a in arrays))
    assert narrow.dtype == np.float16
    np.testing.assert_array_equal(narrow.d, single.d.astype(np.float16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset": (1, 8, 4, 3)}, r"offset must have shape \(1, 8, 3, 3\) or \(1, 8, 4, 4\)"),
        ({"offset": (1, 4, 3, 3)}, r"offset must have shape \(1, 8, 3, 3\)"),
        ({"mask": (1, 8, 3, 3)}, r"mask must have shape \(1, 4, 3, 3\)"),
        ({"weight": (3, 2, 2)}, "input .* has 2 spatial axes, weight .* has 1"),
        ({"deformable_group": 3}, "deformable_group 3 does not divide the 2 channels"),
        ({"x": (1, 3, 4, 4)}, "channels"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"x": (1, 2, 4, 4), "weight": (3, 2, 2, 2), "offset": (1, 8, 3, 3)}
    given |= change
    arguments = {name: draw(*v) if isinstance(v, tuple) else v for name, v in given.items()}
    with pytest.raises(ShapeError, match=message):
        F.deformable_convolution(**arguments)
