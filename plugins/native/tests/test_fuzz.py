"""Random graphs, compiled natively: what NumPy computes, gradients too, whatever is next to what.

Each graph is computed three times: operator by operator by NumPy in ``float64``, which is taken
for the truth, the same in ``float32``, and as a native program. The native one may be off by some
times as much as the second: how far that is depends on the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.graph.execute import forward_all

LARGEST = 6000  # elements of a value
GRAPHS = 50  # in each part
LENGTHS = st.sampled_from([0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 16, 17, 33])


@dataclass
class Leaf:
    """An array that a graph begins with: normal numbers, or whole ones below ``below``."""

    shape: tuple[int, ...]
    number: int
    below: int | None = None

    def make(self, dtype: str) -> np.ndarray:
        rng = np.random.default_rng(self.number)
        if self.below is not None:
            return rng.integers(0, self.below, self.shape)
        return rng.normal(size=self.shape).astype(np.float32).astype(dtype)


@dataclass
class Recipe:
    """How a graph is made: leaves, then functions of what there is, then what is asked for."""

    leaves: list[Leaf] = field(default_factory=list)
    steps: list[tuple[str, Callable[..., Any], tuple[int, ...]]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def __repr__(self) -> str:
        lines = [f"v{k} = leaf{leaf.shape}" for k, leaf in enumerate(self.leaves)]
        for k, (text, _, inputs) in enumerate(self.steps, len(self.leaves)):
            for position, i in enumerate(inputs):
                text = text.replace("{}", f"v{i}", 1).replace(f"{{{position}}}", f"v{i}")
            lines.append(f"v{k} = {text}  # {self.shapes[k]}")
        return "\n".join([*lines, f"asked: {self.asked}"])


def results(recipe: Recipe, backend: str, dtype: str, *, at_once: bool) -> list[np.ndarray]:
    """Compute what is asked for, and its gradients by all leaves that it depends on."""
    with nnl.backend_scope(backend), nnl.auto_forward(at_once):
        values: list[Variable] = []
        for leaf in recipe.leaves:
            array = leaf.make(dtype)
            values.append(Variable.from_numpy_array(array, need_grad=leaf.below is None))
        count = len(values)
        for _, function, inputs in recipe.steps:
            values.append(function(*(values[i] for i in inputs)))
        outputs = [values[i] for i in recipe.asked]
        weights = [np.random.default_rng(k).normal(size=y.shape) for k, y in enumerate(outputs)]
        total = F.sum(outputs[0] * outputs[0]) * 0.5
        for y, weight in zip(outputs, weights, strict=True):
            total = total + F.sum(y * Variable.from_numpy_array(weight.astype(dtype)))
        leaves = [value for value in values[:count] if value.need_grad]
        slopes = [g for g in nnl.grad([total], leaves, allow_unused=True) if g is not None]
        wanted = [*outputs, *slopes]
        if not at_once:
            forward_all(wanted)
        return [np.array(value.d) for value in wanted]


# Functions of one value, of any shape -------------------------------------------------------------

UNARY: dict[str, Callable[[Variable], Variable]] = {
    "F.relu({})": F.relu,
    "F.tanh({})": F.tanh,
    "F.sigmoid({})": F.sigmoid,
    "F.exp(F.tanh({}))": lambda x: F.exp(F.tanh(x)),
    "F.log(F.abs({}) + 1)": lambda x: F.log(F.abs(x) + 1.0),
    "F.sqrt(F.square({}) + 0.5)": lambda x: F.sqrt(x * x + 0.5),
    "F.gelu({})": F.gelu,
    "F.elu({})": F.elu,
    "F.swish({})": F.swish,
    "F.softplus({})": F.softplus,
    "F.leaky_relu({})": F.leaky_relu,
    "F.sin({})": F.sin,
    "1 - {} * 0.5": lambda x: 1.0 - x * 0.5,
    "1 / (2 + {0} * {0})": lambda x: 1.0 / (2.0 + x * x),
    "F.clip_by_value({}, -1, 1)": lambda x: F.minimum_scalar(F.maximum_scalar(x, -1.0), 1.0),
    "cast there and back({})": lambda x: F.cast(F.cast(x, "float64"), x.dtype),
    "F.identity({})": F.identity,
}

BINARY: dict[str, Callable[[Variable, Variable], Variable]] = {
    "{} + {}": lambda x, y: x + y,
    "{} - {}": lambda x, y: x - y,
    "{} * {}": lambda x, y: x * y,
    "{} / (2 + {}^2)": lambda x, y: x / (2.0 + y * y),
    "F.maximum2({}, {})": F.maximum2,
    "F.minimum2({}, {})": F.minimum2,
    "F.where({0} > 0, {0}, {1})": lambda x, y: F.where(F.greater_scalar(x, 0.0), x, y + x * 0.0),
}


@st.composite
def recipes(draw: Any) -> Recipe:
    """A graph of 3 to 14 functions, whose leaves are made as they are needed."""
    recipe = Recipe()
    plan = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=3, max_size=14))
    made: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = []
    specs: dict[Any, tuple[int, ...]] = {}  # leaves are ("leaf", k), results ("step", k)

    def leaf(shape: tuple[int, ...], below: int | None = None) -> Any:
        number = len(recipe.leaves)
        recipe.leaves.append(Leaf(shape, number, below))
        specs["leaf", number] = shape
        return "leaf", number

    def value() -> Any:
        floats = [key for key in specs if key[0] == "step" or recipe.leaves[key[1]].below is None]
        recent = floats[-6:]
        return recent[draw(st.integers(0, len(recent) - 1))]

    def add(text: str, function: Callable[..., Any], *inputs: Any) -> None:
        variables = [
            Variable(specs[key])
            if key[0] == "step" or recipe.leaves[key[1]].below is None
            else Variable.from_numpy_array(np.zeros(specs[key], np.int64))
            for key in inputs
        ]
        shape = tuple(function(*variables).shape)
        if math.prod(shape) <= LARGEST:
            specs["step", len(made)] = shape
            made.append((text, function, inputs))

    leaf(tuple(draw(st.lists(LENGTHS, max_size=4))))
    with nnl.backend_scope("numpy"):
        for kind in plan:
            KINDS[kind](draw, value, leaf, add, specs)
    numbers = {("leaf", k): k for k in range(len(recipe.leaves))}
    numbers.update({("step", k): len(recipe.leaves) + k for k in range(len(made))})
    recipe.steps = [(text, f, tuple(numbers[key] for key in keys)) for text, f, keys in made]
    recipe.shapes = [leaf.shape for leaf in recipe.leaves]
    recipe.shapes += [specs["step", k] for k in range(len(made))]
    results = range(len(recipe.leaves), len(recipe.leaves) + len(made))
    last = results[-1] if made else 0
    more = draw(st.lists(st.sampled_from(results), max_size=2)) if made else []
    recipe.asked = list(dict.fromkeys([last, *more]))
    return recipe


# Kinds of steps: each draws what it needs and adds one --------------------------------------------


def unary(draw, value, leaf, add, specs):
    text = draw(st.sampled_from(sorted(UNARY)))
    add(text, UNARY[text], value())


def binary(draw, value, leaf, add, specs):
    """Of two values that there are, if they broadcast, else with a leaf that does."""
    text = draw(st.sampled_from(sorted(BINARY)))
    x, y = value(), value()
    try:
        np.broadcast_shapes(specs[x], specs[y])
    except ValueError:
        y = leaf(broadcastable(draw, specs[x]))
    add(text, BINARY[text], *((x, y) if draw(st.booleans()) else (y, x)))


def mask(draw, value, leaf, add, specs):
    """By truths made of leaves alone, so that no rounding decides them, or of whole numbers."""
    x = value()
    shape = specs[x]
    if draw(st.booleans()):
        one, other = leaf(shape), leaf(broadcastable(draw, shape))
        add(
            "F.where(F.greater({1}, {2}), {0}, {0} * 0.5)",
            lambda x, a, b: F.where(F.greater(a, b), x, x * 0.5),
            x,
            one,
            other,
        )
    else:
        whole = leaf(shape, below=5)
        add(
            "{0} * F.cast({1} * {1} + {1}, float32)",
            lambda x, k: x * F.cast(k * k + k, x.dtype) * 0.1,
            x,
            whole,
        )


def broadcastable(draw, shape):
    kept = [n if draw(st.booleans()) else 1 for n in shape]
    return tuple(kept[draw(st.integers(0, len(kept))) :])


def an_axis(draw, shape):
    return draw(st.integers(0, len(shape) - 1))


def reduction(draw, value, leaf, add, specs):
    x = value()
    name = draw(st.sampled_from(["sum", "mean", "max", "min", "prod"]))
    axes = tuple(k for k in range(len(specs[x])) if draw(st.booleans()))
    keep = draw(st.booleans())
    function = getattr(F, name)
    if name in ("max", "min", "mean") and 0 in specs[x]:
        return
    if name == "prod":
        add(
            f"F.prod(F.tanh({{}}), {axes}, {keep})",
            lambda x: F.prod(F.tanh(x), axis=axes, keepdims=keep),
            x,
        )
    else:
        add(f"F.{name}({{}}, {axes}, {keep})", lambda x: function(x, axis=axes, keepdims=keep), x)


def along(draw, value, leaf, add, specs):
    """Of one axis: softmax and its like, running sums, turned round."""
    x = value()
    if not specs[x]:
        return
    axis = an_axis(draw, specs[x])
    name = draw(st.sampled_from(["softmax", "log_softmax", "cumsum", "flip"]))
    if name == "flip":
        add(f"F.flip({{}}, [{axis}])", lambda x: F.flip(x, [axis]), x)
    else:
        function = getattr(F, name)
        add(f"F.{name}({{}}, {axis})", lambda x: function(x, axis), x)


def normalization(draw, value, leaf, add, specs):
    x = value()
    if len(specs[x]) < 2 or math.prod(specs[x][1:]) < 2 or not specs[x][0]:
        return
    add("layer norm({})", lambda x: F.layer_normalization(x, None, None, batch_axis=0, eps=0.1), x)


def turn(draw, value, leaf, add, specs):
    x = value()
    axes = tuple(draw(st.permutations(range(len(specs[x])))))
    add(f"F.transpose({{}}, {axes})", lambda x: F.transpose(x, axes), x)


def reshape(draw, value, leaf, add, specs):
    """Split, merge or drop axes."""
    x = value()
    shape = specs[x]
    way = draw(st.sampled_from(["flat", "merge", "one", "split"]))
    new = (math.prod(shape),)
    if way == "merge" and len(shape) > 1:
        at = draw(st.integers(0, len(shape) - 2))
        new = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    elif way == "one":
        at = draw(st.integers(0, len(shape)))
        new = (*shape[:at], 1, *shape[at:])
    elif way == "split" and shape and shape[-1] % 2 == 0 and shape[-1]:
        new = (*shape[:-1], shape[-1] // 2, 2)
    if len(new) <= 5:
        add(f"F.reshape({{}}, {new})", lambda x: F.reshape(x, new), x)


def cut(draw, value, leaf, add, specs):
    x = value()
    slices = tuple(
        slice(draw(st.integers(0, n)), draw(st.integers(0, n)), draw(st.sampled_from([1, 1, 2])))
        if draw(st.booleans())
        else slice(None, None, draw(st.sampled_from([1, 1, -1])))
        for n in specs[x]
    )
    if slices:
        add(f"{{}}[{slices}]", lambda x: x[slices], x)


def join(draw, value, leaf, add, specs):
    x = value()
    if not specs[x]:
        return
    axis = an_axis(draw, specs[x])
    shape = list(specs[x])
    shape[axis] = draw(LENGTHS)
    same = [key for key in specs if specs[key] == specs[x] and key[0] == "step"]
    y = same[0] if same and draw(st.booleans()) else leaf(tuple(shape))
    add(f"F.concatenate({{}}, {{}}, {axis})", lambda x, y: F.concatenate(x, y, axis=axis), x, y)


def border(draw, value, leaf, add, specs):
    x = value()
    widths = tuple(draw(st.integers(0, 2)) for _ in range(2 * len(specs[x])))
    if widths:
        add(f"F.pad({{}}, {widths})", lambda x: F.pad(x, widths), x)


def spread(draw, value, leaf, add, specs):
    x = value()
    new = (draw(st.integers(1, 3)), *(draw(st.integers(1, 3)) if n == 1 else n for n in specs[x]))
    add(
        f"F.broadcast({{}} with one axis more, {new})",
        lambda x: F.broadcast(F.reshape(x, (1, *x.shape)), new),
        x,
    )


def product(draw, value, leaf, add, specs):
    x = value()
    if len(specs[x]) < 2:
        return
    *batch, _, inner = specs[x]
    columns = draw(LENGTHS)
    turned = draw(st.booleans())
    right = leaf((*batch, columns, inner) if turned else (*batch, inner, columns))
    add(
        f"F.batch_matmul({{}}, {{}}, transpose_b={turned})",
        lambda x, y: F.batch_matmul(x, y, transpose_b=turned) * 0.3,
        x,
        right,
    )


def layer(draw, value, leaf, add, specs):
    x = value()
    if len(specs[x]) < 2:
        return
    weight = leaf((math.prod(specs[x][1:]), draw(st.integers(1, 9))))
    if draw(st.booleans()):
        bias = leaf((specs[weight][1],))
        add("F.affine({}, {}, {})", lambda x, w, b: F.affine(x, w, b) * 0.3, x, weight, bias)
    else:
        add("F.affine({}, {})", lambda x, w: F.affine(x, w) * 0.3, x, weight)


def gather(draw, value, leaf, add, specs):
    x = value()
    if not specs[x] or not specs[x][0]:
        return
    indices = leaf(tuple(draw(st.lists(LENGTHS, max_size=2))), below=specs[x][0])
    add("F.embed({}, {})", lambda i, x: F.embed(i, x), indices, x)


def image(draw, value, leaf, add, specs):
    """A value as images: there, or by way of a reshape."""
    x = value()
    if len(specs[x]) == 4:
        return x
    size = math.prod(specs[x])
    for channels in (4, 3, 2, 1):
        if size and size % channels == 0:
            rest = size // channels
            width = next((n for n in (6, 5, 4, 3, 2) if rest % n == 0), 1)
            new = (1, channels, rest // width, width)
            break
    else:
        return leaf((2, 3, 5, 4))
    add(f"F.reshape({{}}, {new})", lambda x: F.reshape(x, new), x)
    return list(specs)[-1]


def convolution(draw, value, leaf, add, specs):
    x = image(draw, value, leaf, add, specs)
    _, channels, height, width = specs[x]
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    pad = (draw(st.integers(0, 1)), draw(st.integers(0, 2)))
    stride = (draw(st.integers(1, 2)),) * 2
    group = channels if channels and draw(st.booleans()) else 1
    maps = group * draw(st.integers(1, 4))
    if not channels or height + 2 * pad[0] < kernel[0] or width + 2 * pad[1] < kernel[1]:
        return
    weight = leaf((maps, channels // group, *kernel))
    options = {"pad": pad, "stride": stride, "group": group}
    if draw(st.booleans()):
        add(
            f"F.convolution({{}}, {{}}, {{}}, **{options})",
            lambda x, w, b: F.convolution(x, w, b, **options) * 0.3,
            x,
            weight,
            leaf((maps,)),
        )
    else:
        add(
            f"F.convolution({{}}, {{}}, **{options})",
            lambda x, w: F.convolution(x, w, **options) * 0.3,
            x,
            weight,
        )


def pooling(draw, value, leaf, add, specs):
    x = image(draw, value, leaf, add, specs)
    _, _, height, width = specs[x]
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    if height < kernel[0] or width < kernel[1]:
        return
    name = draw(st.sampled_from(["max_pooling", "average_pooling", "sum_pooling"]))
    stride = draw(st.sampled_from([kernel, (1, 1), (2, 2)]))
    function = getattr(F, name)
    add(f"F.{name}({{}}, {kernel}, {stride})", lambda x: function(x, kernel, stride), x)


def batch_statistics(draw, value, leaf, add, specs):
    x = image(draw, value, leaf, add, specs)
    if 0 in specs[x] or math.prod(specs[x]) // specs[x][1] < 3:
        return
    shape = (1, specs[x][1], 1, 1)

    def normalize(x, beta, gamma):
        mean = Variable.from_numpy_array(np.zeros(shape, x.dtype))
        variance = Variable.from_numpy_array(np.ones(shape, x.dtype))
        return F.batch_normalization(x, beta, gamma, mean, variance, eps=0.1, batch_stat=True)

    add("F.batch_normalization({}, {}, {})", normalize, x, leaf(shape), leaf(shape))


KINDS = {
    function.__name__ + more: function
    for function, times in {
        unary: 5,
        binary: 4,
        mask: 1,
        reduction: 2,
        along: 1,
        normalization: 1,
        turn: 2,
        reshape: 2,
        cut: 1,
        join: 1,
        border: 1,
        spread: 1,
        product: 1,
        layer: 1,
        gather: 1,
        convolution: 2,
        pooling: 1,
        batch_statistics: 1,
    }.items()
    for more in map(str, range(times))
}
"""Kinds of steps, as often as they shall be chosen."""


# Comparing ----------------------------------------------------------------------------------------


def check(recipe: Recipe) -> None:
    note(repr(recipe))
    truth = results(recipe, "numpy", "float64", at_once=True)
    usual = results(recipe, "numpy", "float32", at_once=True)
    found = results(recipe, "native", "float32", at_once=False)
    exact = results(recipe, "native", "float64", at_once=False)
    assert len(found) == len(exact) == len(truth)
    for position, (true, near, single, double) in enumerate(
        zip(truth, usual, found, exact, strict=True)
    ):
        assert single.shape == double.shape == true.shape
        assert single.dtype == np.float32 and double.dtype == np.float64
        np.testing.assert_array_equal(np.isfinite(single), np.isfinite(near), f"result {position}")
        if not true.size or not np.isfinite(near).all():
            continue
        scale = 1 + np.abs(true).max()
        rounding = np.abs(near - true).max()
        if rounding > 1e-2 * scale:  # too close to a kink, or too much cancels
            continue
        assert np.abs(double - true).max() <= 1e-9 * scale, f"float64: result {position}"
        allowed = 30 * rounding + 2e-5 * scale
        assert np.abs(single - true).max() <= allowed, f"float32: result {position}"


@pytest.mark.parametrize("part", range(10))
def test_a_random_graph_is_what_numpy_computes(part: int) -> None:
    @settings(
        max_examples=GRAPHS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @seed(part)
    @given(recipes())
    def check_some(recipe: Recipe) -> None:
        check(recipe)

    check_some()
