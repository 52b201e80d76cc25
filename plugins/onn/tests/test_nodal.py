"""The library of nodal operators and pools: formulas, guards, routing, and how they are found."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_onn
from nnl_core import Session
from nnl_core.errors import (
    NotDifferentiableError,
    OperatorError,
    PluginError,
    UnknownComponentError,
)
from nnl_core.hooks import Plugin
from nnl_core.testing import check_plugin
from nnl_onn import Nodal, Pool, add_nodal, add_pool
from nnl_onn.hooks import NodalSpec
from nnl_onn.nodal import BUILT_IN, find_nodal
from nnl_onn.plugin import OnnPlugin
from nnl_onn.pools import BUILT_IN as POOLS
from nnl_onn.pools import find_pool

# The formulas as their papers and FastONN's library print them, in NumPy.
FORMULAS = {
    "mul": lambda x, w: w * x,
    "cubic": lambda x, w: 100 * w * x**3,
    "sine": lambda x, w: np.sin(100 * w * x),
    "harmonic": lambda x, w: np.sin(w * x),
    "exp": lambda x, w: np.exp(w * x) - 1,
    "sinh": lambda x, w: np.sinh(0.1 * w * x),
    "sinc": lambda x, w: 0.01 * np.sin(1000 * (w * x + 1e-10)) / (w * x + 1e-10),
    "chirp": lambda x, w: np.sin(10000 * w * x**2),
    "log": lambda x, w: w * np.log(1.54308063482 + 1.17520119364 * x),
    "quadratic": lambda x, w: w * x**2,
    "gaussian": lambda x, w: w * np.exp(-w * x**2),
    "derivative_of_gaussian": lambda x, w: w * x * np.exp(-w * x**2),
}


def test_the_library_is_that_of_the_papers_and_of_fastonn():
    assert set(BUILT_IN) == set(FORMULAS)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_nodal_operator_is_its_formula(name):
    rng = np.random.default_rng(0)
    x, w = rng.uniform(-1, 1, (50, 1)), rng.uniform(-1, 1, 40)
    np.testing.assert_allclose(
        find_nodal(name).function()(x, w), FORMULAS[name](x, w), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("path", ["", "x", "w", "xw"])
@pytest.mark.parametrize("name", ["sinc", "log"])
def test_where_fastonn_has_no_number_there_is_one(name, path):
    x = np.array([-100.0, -1.3131, -1.313, 0.0, 1e-30])
    found = find_nodal(name).function(path)(x[:, np.newaxis], np.array([-0.5, 0.0, 1e-12]))
    assert np.isfinite(found).all()


def test_the_logarithm_is_held_below_its_domain_and_has_no_slope_there():
    log = find_nodal("log")
    x, w = np.array([-1.5, -9.0]), np.array(2.0)
    np.testing.assert_allclose(log.function()(x, w), 2 * np.log(0.01))
    np.testing.assert_array_equal(log.function("x")(x, w), 0)


def test_sinc_of_nothing_is_its_limit():
    assert find_nodal("sinc").function()(np.zeros(1), np.ones(1)) == 10


def test_an_expression_is_a_nodal_operator():
    x = np.array([0.5])
    assert find_nodal("x**2 * w + 1").function()(x, np.array([4.0])) == 2


def test_a_name_that_there_is_not_gets_the_nearest():
    with pytest.raises(UnknownComponentError, match=r"'sinus'.*sin"):
        find_nodal("sinus")
    with pytest.raises(UnknownComponentError, match=r"'mean'.*median"):
        find_pool("mean")
    with pytest.raises(OperatorError, match="no name"):
        find_nodal(3)
    with pytest.raises(OperatorError, match="no name"):
        find_pool(None)


def test_a_record_must_lead_to_a_nodal_operator():
    class Wrong(Plugin):
        name = "wrong"
        requires = ("onn",)

        def nnl_onn_nodal_operators(self):
            return [NodalSpec("wrong.kind", "math:pi", "")]

    with Session([OnnPlugin, Wrong], discover=False), pytest.raises(PluginError, match=r"math:pi"):
        find_nodal("wrong.kind")


def test_a_program_names_operators_of_its_own(monkeypatch):
    monkeypatch.setattr("nnl_onn.nodal._found", {})
    monkeypatch.setattr("nnl_onn.pools._found", {})
    assert add_nodal("mine.double", Nodal("2 * w * x")) == "mine.double"
    assert find_nodal(add_nodal("mine.double", Nodal("2 * w * x"))) == Nodal("2 * w * x")
    smallest = Pool(lambda values: values.argmin(-1))
    assert find_pool(add_pool("mine.min", smallest)) is smallest


@pytest.mark.parametrize("name", ["mul", "mine.double"])
def test_a_name_is_of_one_operator(monkeypatch, name):
    monkeypatch.setattr("nnl_onn.nodal._found", {"mine.double": Nodal("2 * w * x")})
    with pytest.raises(OperatorError, match="another nodal operator has the name"):
        add_nodal(name, Nodal("w + x"))
    with pytest.raises(OperatorError, match="another pool has the name 'max'"):
        add_pool("max", Pool(lambda values: values.argmin(-1)))


def test_a_name_is_no_expression():
    with pytest.raises(OperatorError, match="'x \\+ w' is no name"):
        add_nodal("x + w", Nodal("x + w"))


def test_surrogates_take_the_place_of_derivatives_and_are_differentiated_further():
    step = Nodal("heaviside(w * x)", gx="w * x**2", gw="x")
    x, w = np.array([3.0]), np.array([2.0])
    values = {path: step.function(path)(x, w).item() for path in ("", "x", "w", "xx", "xw", "wx")}
    assert values == {"": 1, "x": 18, "w": 3, "xx": 12, "xw": 9, "wx": 1}


def test_a_surrogate_for_one_leaves_the_other_derivative():
    nodal = Nodal("w * x", gx="1")
    x, w = np.array([3.0]), np.array([2.0])
    assert nodal.function("x")(x, w) == 1
    assert nodal.function("w")(x, w) == 3


def test_a_function_has_the_derivatives_that_it_was_given():
    nodal = Nodal(np.arctan2, gx=lambda x, w: w / (x**2 + w**2))
    x, w = np.array([3.0]), np.array([2.0])
    assert nodal.function()(x, w) == np.arctan2(3.0, 2.0)
    assert nodal.function("x")(x, w) == 2 / 13
    with pytest.raises(NotDifferentiableError, match="'w'"):
        nodal.function("w")
    with pytest.raises(NotDifferentiableError, match="'w'"):
        nodal.function("xw")


# Pools -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "values", "tap"),
    [
        ("max", [1.0, 3.0, 2.0, 3.0], 1),
        ("max", [-np.inf, -np.inf], 0),
        ("max", [1.0, np.nan, 9.0, np.nan], 1),
        ("median", [5.0, 1.0, 3.0], 2),
        ("median", [4.0, 1.0, 2.0, 3.0], 2),  # the lower of 2 and 3
        ("median", [2.0, 0.0, 7.0, 2.0, 2.0], 0),
        ("median", [1.0, np.nan, 0.0], 1),
        ("median", [6.0], 0),
    ],
)
def test_a_pool_selects_the_first_of_equal_taps(pool, values, tap):
    assert find_pool(pool).select(np.array(values)) == tap


@pytest.mark.parametrize(("pool", "value"), [("sum", 10), ("max", 7), ("median", 1)])
def test_a_pool_is_a_function_of_values(pool, value):
    assert find_pool(pool)(np.array([[7.0, 1.0, 2.0, 0.0]])) == value


# The distribution --------------------------------------------------------------------------------


def test_the_plugin_imports_nothing_heavy_and_what_it_names_is_there():
    check_plugin(OnnPlugin)


def test_every_public_name_is_there():
    assert set(nnl_onn.__all__) <= set(dir(nnl_onn))
    assert all(getattr(nnl_onn, name).__name__ == name for name in nnl_onn.__all__)


def test_records_name_the_whole_library():
    manager = Session([OnnPlugin], discover=False).manager
    found = {
        kind: {record.name: manager.resolve(record) for record in manager.collect(kind)}
        for kind in ("nodal operator", "pool")
    }
    assert found == {"nodal operator": BUILT_IN, "pool": POOLS}
