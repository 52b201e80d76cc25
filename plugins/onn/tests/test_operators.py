"""The operators ``onn::`` against loops over the definition, closed forms and differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import ShapeError
from nnl_core.graph.lower import lower
from nnl_core.graph.passes import remove_dead
from nnl_core.testing import OperatorCheckError, check_operator
from nnl_onn import Nodal, connections
from nnl_onn.nodal import BUILT_IN, add_nodal, find_nodal
from nnl_onn.operators import operate, operate_data, operate_gradients, operate_weight
from nnl_onn.samples import CASES, draw
from nnl_onn.testing import check_nodal

NAMES = ["operate", "operate_data", "operate_gradients", "operate_weight"]
POOLS = ["sum", "max", "median"]


def by_loops(x, w, nodal, pool, stride, dilation, groups):
    """The definition, one connection after another."""
    psi = find_nodal(nodal).function()
    kernel = w.shape[2:]
    places = connections.places(x.shape[2:], kernel, stride, dilation)
    maps, inner = w.shape[0] // groups, w.shape[1]
    y = np.zeros((x.shape[0], w.shape[0], *places))
    for n, o, *at in np.ndindex(*y.shape):
        for c in range(inner):
            channel = o // maps * inner + c
            values = []
            for tap in np.ndindex(*kernel):
                seen = tuple(
                    p * s + k * d for p, s, k, d in zip(at, stride, tap, dilation, strict=True)
                )
                values.append(float(psi(x[(n, channel, *seen)], w[(o, c, *tap)])))
            ordered = sorted(values)
            y[(n, o, *at)] += {
                "sum": sum(values), "max": ordered[-1], "median": ordered[(len(values) - 1) // 2],
            }[pool]  # fmt: skip
    return y


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_definition(case, pool):
    drawn = draw("sine", pool, case, np.random.default_rng(0))
    np.testing.assert_allclose(
        operate.reference(drawn.x, drawn.w, **drawn.options),
        by_loops(drawn.x, drawn.w, **drawn.options),
        rtol=1e-12,
        atol=1e-12,
    )


@pytest.mark.parametrize("name", NAMES)
def test_it_keeps_all_promises_of_an_operator(name):
    """Among them: gradients of both orders by differences, for every nodal operator and pool."""
    check_operator(f"onn::{name}")


def test_samples_hold_every_nodal_operator_with_every_pool():
    samples = operate.iterate_samples(np.random.default_rng(0))
    found = {(one.attributes["nodal"], one.attributes["pool"]) for one in samples}
    assert found == set(itertools.product(BUILT_IN, POOLS))


@pytest.mark.parametrize("case", CASES)
def test_products_summed_are_a_convolution(case):
    rng = np.random.default_rng(1)
    x, w = (Variable.from_numpy_array(rng.normal(size=s), need_grad=True) for s in case[:2])
    options = {"stride": case.stride, "dilation": case.dilation}
    ours = operate(x, w, nodal="mul", pool="sum", groups=case.groups, **options)
    theirs = F.convolution(x, w, group=case.groups, **options)
    outer = Variable.from_numpy_array(rng.normal(size=ours.shape))
    for left, right in zip(
        (ours, *nnl.grad([F.sum(ours * outer)], [x, w])),
        (theirs, *nnl.grad([F.sum(theirs * outer)], [x, w])),
        strict=True,
    ):
        nnl.forward_all([left, right])
        np.testing.assert_allclose(left.d, right.d, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("block", [1, 7, 100])
@pytest.mark.parametrize("pool", POOLS)
def test_the_size_of_blocks_changes_nothing(monkeypatch, block, pool):
    case = CASES[2]._replace(x=(2, 4, 7, 6), w=(4, 2, 2, 2))
    rng = np.random.default_rng(2)
    drawn = draw("mul", "sum", case, rng)
    x, w, g = drawn.x, drawn.w, drawn.g
    options = {**drawn.options, "pool": pool}
    calls = [(operate, (x, w)), (operate_data, (g, x, w)), (operate_weight, (g, x, w))]
    whole = [operator.reference(*inputs, **options) for operator, inputs in calls]
    monkeypatch.setattr(connections, "BLOCK", block)
    for (operator, inputs), right in zip(calls, whole, strict=True):
        found = operator.reference(*inputs, **options)
        np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-14)


def test_blocks_bound_memory(monkeypatch):
    monkeypatch.setattr(connections, "BLOCK", 1000)
    x, w = np.ones((3, 4, 40, 40)), np.ones((8, 4, 3, 3))
    found = connections.Connections(x, w, (1, 1), (1, 1), 1, "mul", "max", "")
    sizes = [found.values(block)[0].size for block in itertools.islice(found.blocks(), 200)]
    assert max(sizes) <= 1000


@pytest.mark.parametrize(
    ("pool", "weight", "routed"),
    [
        # of x = (1, 2, 2, 1) with w = 1 the first 2 is the maximum, and the first 1 the median
        ("max", [1.0, 1.0, 1.0, 1.0], [0, 1, 0, 0]),
        ("median", [1.0, 1.0, 1.0, 1.0], [1, 0, 0, 0]),
        # all taps are 0: the first
        ("max", [0.0, 0.0, 0.0, 0.0], [0, 0, 0, 0]),
    ],
)
def test_a_gradient_goes_to_the_first_of_equal_taps(pool, weight, routed):
    x = Variable.from_numpy_array(np.array([[[1.0, 2.0, 2.0, 1.0]]]), need_grad=True)
    w = Variable.from_numpy_array(np.array([[weight]]), need_grad=True)
    y = operate(x, w, nodal="mul", pool=pool, stride=(1,), dilation=(1,))
    y.forward()
    y.backward()
    np.testing.assert_array_equal(x.g.ravel(), routed)
    taken = np.zeros(4)
    taken[int(np.argmax(routed)) if any(routed) else 0] = x.d.ravel()[np.argmax(routed)]
    np.testing.assert_array_equal(w.g.ravel(), taken)


@pytest.mark.parametrize("pool", POOLS)
def test_what_is_no_number_stays_none(pool):
    x = np.array([[[1.0, np.nan, 2.0, 3.0, 4.0]]])
    y = operate.reference(x, np.ones((1, 1, 3)), nodal="mul", pool=pool, stride=(1,), dilation=(1,))
    np.testing.assert_array_equal(np.isnan(y), [[[True, True, False]]])


def test_single_precision_of_a_fast_chirp_is_rounded_once():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (1, 2, 9)).astype(np.float32)
    w = rng.uniform(-0.1, 0.1, (2, 2, 3)).astype(np.float32)
    options = {"nodal": "chirp", "pool": "sum", "stride": (1,), "dilation": (1,)}
    exact = operate.reference(x.astype(float), w.astype(float), **options)
    np.testing.assert_array_equal(operate.reference(x, w, **options), exact.astype(np.float32))


ROUNDABOUT = {
    "right": Nodal(lambda x, w: np.sinh(w * x), gx="w * cosh(w * x)", gw="x * cosh(w * x)"),
    "wrong": Nodal(lambda x, w: np.sinh(w * x), gx="cosh(w * x)", gw="x * cosh(w * x)"),
    "surrogate": Nodal("heaviside(w * x)", gx="w * exp(-(w * x)**2)", gw="x * exp(-(w * x)**2)"),
    "first": Nodal(lambda x, w: w * x, gx=lambda x, w: w + 0 * x, gw=lambda x, w: x + 0 * w),
    "none": Nodal(lambda x, w: w * x),
}


@pytest.fixture
def strangers(monkeypatch):
    monkeypatch.setattr("nnl_onn.nodal._found", {})
    for name, nodal in ROUNDABOUT.items():
        add_nodal(name, nodal)


@pytest.mark.parametrize("nodal", ["right", "first", "none"])
def test_a_function_with_derivatives_keeps_all_promises(strangers, nodal):
    check_nodal(nodal)


def test_a_function_with_a_wrong_derivative_is_found_out(strangers):
    with pytest.raises(OperatorCheckError, match="'x' along a random direction"):
        check_nodal("wrong")


def test_a_surrogate_is_asked_for_shapes_alone(strangers):
    check_nodal("surrogate", pool="sum")


@pytest.mark.parametrize("nodal", ["w * x / (1 + abs(w * x))", "x**2 * w + sin(w)"])
def test_an_expression_of_ones_own_keeps_all_promises(nodal):
    check_nodal(nodal)


def test_an_input_that_needs_no_gradient_costs_none():
    x, w = Variable((1, 2, 5)), Variable((3, 2, 3), need_grad=True)
    y = operate(x, w, nodal="sine", pool="max", stride=(1,), dilation=(1,))
    (dw,) = nnl.grad([F.sum(y * y)], [w])
    graph = remove_dead(lower([(dw, dw.data)]).graph)
    names = [one.operator.name for one in graph.instructions]
    assert "onn::operate_weight" in names and "onn::operate_gradients" not in names


# What does not fit -------------------------------------------------------------------------------


def call(x=(1, 2, 5), w=(3, 2, 3), dtype=np.float32, **options):
    given = {"nodal": "mul", "pool": "sum", "stride": (1,), "dilation": (1,), **options}
    return operate(Variable(x), Variable(w, dtype=dtype), **given)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"x": (1, 3, 5)}, "1 groups of 2 input maps each do not fit 3 channels"),
        ({"groups": 2}, "do not fit 2 channels and 3 output maps"),
        ({"x": (1, 2, 2)}, "covers 3 does not fit in an axis of 2"),
        ({"dilation": (3,)}, "covers 7 does not fit in an axis of 5"),
        ({"x": (1, 2, 5, 5)}, "2 spatial axes, weight has 1"),
        ({"x": (1, 2), "w": (3, 2)}, "one at least"),
        ({"stride": (1, 1)}, "one length for each of 1 spatial axes"),
        ({"stride": (0,)}, "at least 1"),
        ({"dtype": np.float64}, "one floating dtype"),
    ],
)
def test_what_does_not_fit_is_named(options, text):
    with pytest.raises(ShapeError, match=text):
        call(**options)


def test_a_gradient_of_another_shape_is_named():
    x, w, g = Variable((1, 2, 5)), Variable((3, 2, 3)), Variable((1, 3, 4))
    with pytest.raises(ShapeError, match=r"g has shape \(1, 3, 4\), not \(1, 3, 3\)"):
        operate_gradients(g, x, w, nodal="mul", pool="sum", stride=(1,), dilation=(1,))


def test_its_cost_is_one_for_each_value_of_a_connection():
    node = call(x=(4, 2, 7), stride=(2,)).parent
    specs = [None if one is None else one.spec for one in node.inputs]
    assert operate.count_multiply_adds(specs, [], node.attributes) == 4 * 3 * 2 * 3 * 3
