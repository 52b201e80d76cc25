"""Windows at the ends of an axis: which there are, what they hold, and who gets their gradient.

The rules are ONNX's and nnabla's: a window begins inside the axis or the padding before it, never
in the padding after it; with "ceil" there are as few as reach the end, with "every" all that begin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nnl_core import F, Variable
from nnl_core.errors import ShapeError
from nnl_core.graph.operator import lookup

KINDS = ["max", "sum", "average", "average with padding"]


def windows(
    n: int, kernel: int, stride: int, before: int, after: int, border: str
) -> list[list[int]]:
    """Return the positions that each window covers, those of padding and beyond it included.

    The windows are counted up one by one.
    """
    found: list[list[int]] = []
    end = n + after
    while True:
        start = len(found) * stride - before
        fits, begins = start + kernel <= end, start < n
        reached = bool(found) and found[-1][-1] + 1 >= end
        more = {"ignore": fits, "every": begins, "ceil": fits or (begins and not reached)}
        if not more[border]:
            return found
        found.append(list(range(start, start + kernel)))


@st.composite
def placings(draw: st.DrawFn) -> dict[str, Any]:
    n, kernel, stride = (draw(st.integers(1, high)) for high in (9, 5, 5))
    before, after = (draw(st.integers(0, kernel - 1)) for _ in range(2))
    border = draw(st.sampled_from(["ignore", "ceil", "every"]))
    assume(kernel <= n + before + after)
    found = windows(n, kernel, stride, before, after, border)
    assume(found and all(0 <= w[-1] and w[0] < n for w in found))
    return {"n": n, "kernel": kernel, "stride": stride, "pad": (before, after), "border": border}


def pool(kind: str, x: Variable, kernel: int, stride: int, pad: Any, border: str) -> Variable:
    options: dict[str, Any] = {"kernel": (kernel,), "stride": (stride,), "pad": (pad,)}
    if kind.startswith("average"):
        options["including_pad"] = kind != "average"
    y: Variable = lookup(f"nnl::{kind.split()[0]}_pooling")(x, border=border, **options)
    return y


@given(placings(), st.sampled_from(KINDS), st.integers(0, 2**32 - 1))
def test_each_window_is_reduced_and_each_element_gets_its_share(
    placing: dict[str, Any], kind: str, seed: int
) -> None:
    n, (before, after) = placing.pop("n"), placing["pad"]
    rng = np.random.default_rng(seed)
    data = rng.permutation(n) - n - 1.0  # all negative: zeros of the padding would show
    found = windows(n, placing["kernel"], placing["stride"], before, after, placing["border"])
    weights = rng.normal(size=len(found))
    expected, gradient = [], np.zeros(n)
    for window, weight in zip(found, weights, strict=True):
        inside = [i for i in window if 0 <= i < n]
        if kind == "max":
            winner = max(inside, key=lambda i: data[i])
            expected.append(data[winner])
            gradient[winner] += weight
            continue
        counted = [i for i in window if i < n + after] if "padding" in kind else inside
        share = 1.0 if kind == "sum" else 1 / len(counted)
        expected.append(sum(data[i] for i in inside) * share)
        for i in inside:
            gradient[i] += weight * share
    x = Variable.from_numpy_array(data[None], need_grad=True)
    x.grad.zero()
    y = pool(kind, x, **placing)
    y.forward()
    y.backward(weights[None])
    np.testing.assert_allclose(y.d, [expected], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(x.g, [gradient], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_last_window_that_overhangs_holds_what_is_left(kind: str, differentiate: Any) -> None:
    """Of five elements by threes, the second window has two."""
    y, dx = differentiate(
        lambda x: pool(kind, x, 3, 3, (0, 0), "ceil"), np.array([[1.0, 2, 3, 4, 6]])
    )
    value = {"max": [3, 6], "sum": [6, 10]}.get(kind, [2, 5])
    share = {"max": [0, 0, 1, 0, 1], "sum": [1] * 5}.get(kind, [1 / 3] * 3 + [1 / 2] * 2)
    np.testing.assert_array_equal(y, [value])
    np.testing.assert_allclose(dx, [share])


@pytest.mark.parametrize("border", ["ceil", "every"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_window_begins_in_the_padding_at_the_end(kind: str, border: str) -> None:
    """By twos from -1, a third window would begin at 3: behind the three elements."""
    assert pool(kind, Variable((1, 3)), 2, 2, (1, 1), border).shape == (1, 2)


def test_the_overhang_counts_for_nothing_and_the_padding_as_asked(evaluate: Any) -> None:
    ones = np.ones((1, 4))
    for kind, expected in (("average", [1, 1]), ("average with padding", [2 / 3, 2 / 3])):
        x = Variable.from_numpy_array(ones)
        result = evaluate(lambda x=x, kind=kind: pool(kind, x, 3, 3, (1, 1), "ceil"))
        np.testing.assert_allclose(result, [expected])


def test_a_window_of_padding_alone_is_refused() -> None:
    for kind in KINDS:
        with pytest.raises(ShapeError, match="padding alone"):
            pool(kind, Variable((1, 3)), 2, 1, (2, 0), "ceil")


@pytest.mark.parametrize("name", ["max_pooling", "sum_pooling", "average_pooling"])
@pytest.mark.parametrize("ignore_border", [True, False])
def test_channels_last_is_the_same_with_other_axes(
    name: str, ignore_border: bool, differentiate: Any
) -> None:
    data = np.random.default_rng(2).normal(size=(2, 5, 4, 3))
    options = {"stride": (2, 3), "pad": ((1, 0), (0, 1)), "ignore_border": ignore_border}
    function = getattr(F, name)
    y, dx = differentiate(lambda x: function(x, (3, 2), channel_last=True, **options), data)
    z, dz = differentiate(lambda x: function(x, (3, 2), **options), data.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(y, z.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(dx, dz.transpose(0, 2, 3, 1))


# Asymmetric padding ------------------------------------------------------------------------------

PADS = [((0, 0), (0, 0)), ((1, 0), (0, 2)), ((2, 1), (1, 0)), ((0, 2), (2, 2))]


@pytest.mark.parametrize("pad", PADS)
def test_padding_before_and_after_is_that_of_the_padded_picture(
    pad: Any, differentiate: Any
) -> None:
    """Every function that slides windows pads as `np.pad` does, and cuts its gradient off."""
    data = np.random.default_rng(4).normal(size=(1, 2, 5, 6))
    weight = np.random.default_rng(5).normal(size=(3, 2, 3, 3))
    around = np.pad(data, ((0, 0), (0, 0), *pad))
    inner = tuple(slice(before, before + n) for (before, _), n in zip(pad, (5, 6), strict=True))
    for build in (
        lambda x, **o: F.convolution(x, weight, **o),
        lambda x, **o: F.depthwise_convolution(x, weight[:2, 0], **o),
        lambda x, **o: F.unfold(x, (3, 3), **o),
        lambda x, **o: F.sum_pooling(x, (3, 3), (1, 1), **o),
    ):
        y, dx = differentiate(lambda x, build=build: build(x, pad=pad), data)
        z, dz = differentiate(build, around)
        np.testing.assert_allclose(y, z, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(dx, dz[..., *inner], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pad", PADS)
def test_transposed_convolution_cuts_what_convolution_pads(pad: Any, differentiate: Any) -> None:
    data = np.random.default_rng(6).normal(size=(1, 3, 5, 6))
    weight = np.random.default_rng(7).normal(size=(3, 2, 3, 3))
    y, _ = differentiate(lambda x: F.deconvolution(x, weight, pad=pad), data)
    whole, _ = differentiate(lambda x: F.deconvolution(x, weight), data)
    (top, bottom), (left, right) = pad
    expected = whole[:, :, top : 7 - bottom, left : 8 - right]
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)


def test_folding_what_was_unfolded_counts_how_often_each_pixel_is_seen(evaluate: Any) -> None:
    ones = np.ones((1, 1, 4, 5))
    for pad in ((0, 0), (1, 1)):
        options: dict[str, Any] = {"pad": pad, "stride": (2, 1)}
        back = evaluate(lambda o=options: F.fold(F.unfold(ones, (3, 2), **o), (4, 5), (3, 2), **o))
        rows, columns = np.zeros(4), np.zeros(5)
        for seen, n, k, s, p in ((rows, 4, 3, 2, pad[0]), (columns, 5, 2, 1, pad[1])):
            for window in windows(n, k, s, p, p, "ignore"):
                seen[[i for i in window if 0 <= i < n]] += 1
        np.testing.assert_array_equal(back[0, 0], np.outer(rows, columns))
