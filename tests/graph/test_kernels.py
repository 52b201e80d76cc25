"""Which kernel runs: what plugins select, and kernels that they bring for others' operators."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import functions as F
from nnl_core.hooks import KernelSet, Plugin
from nnl_core.session import Session


def session_with(**members: object) -> Session:
    plugin = type("P", (Plugin,), {"name": "p", **members})
    return Session([plugin], environment={}, discover=False)


@pytest.fixture
def doubling():
    """An operator that doubles, by its reference."""
    name = "kernel_test::double"

    @nnl.defop(name)
    def double(x):
        return x * 2

    double.infer(lambda x: x)
    yield double
    from nnl_core.graph import operator

    del operator._registry[name]


def computed(operator, shape=(2,)):
    y = operator(nnl.Variable.from_numpy_array(np.ones(shape, np.float32)))
    y.forward()
    return y.d.ravel().tolist()


def kernel_giving(value):
    def kernel(x, out=None):
        if out is None:
            out = np.empty_like(x)
        out[...] = value
        return out

    return kernel


def test_a_plugin_selects_the_kernel_once_for_each_shape(doubling):
    asked = []

    def select(self, request):
        asked.append((request.operator, request.backend, [spec.shape for spec in request.inputs]))
        return kernel_giving(7)

    with session_with(nnl_select_kernel=select):
        for shape in ((2,), (2,), (3,)):
            assert set(computed(doubling, shape)) == {7}
    assert asked == [(doubling, "numpy", [(2,)]), (doubling, "numpy", [(3,)])]
    assert computed(doubling) == [2, 2]


ATTACHES_FIVE = """
import numpy as np
import nnl_core as nnl

def five(x, out=None):
    out = np.empty_like(x) if out is None else out
    out[...] = 5
    return out

nnl.lookup("kernel_test::double").kernel("numpy", five)
"""


@pytest.fixture
def kernels(monkeypatch, tmp_path):
    """Make a session whose plugin brings a kernel for some operators on some backend."""
    (tmp_path / "kernel_test_module.py").write_text(ATTACHES_FIVE)
    monkeypatch.syspath_prepend(tmp_path)

    def make(operators, backend):
        record = KernelSet("k", "kernel_test_module", "", operators, backend)
        return session_with(nnl_kernels=lambda self: [record])

    yield make
    sys.modules.pop("kernel_test_module", None)


def test_kernels_of_a_plugin_serve_though_a_graph_ran_before_its_session(doubling, kernels):
    assert computed(doubling) == [2, 2]
    with kernels("kernel_test::*", "numpy"):
        assert computed(doubling) == [5, 5]


def test_kernels_of_a_plugin_serve_in_a_dynamic_graph(doubling, kernels):
    with kernels("kernel_test::double", "numpy"), nnl.auto_forward():
        y = doubling(nnl.Variable.from_numpy_array(np.ones(2, np.float32)))
        assert y.d.tolist() == [5, 5]


@pytest.mark.parametrize("record", [("other::*", "numpy"), ("kernel_test::*", "elsewhere")])
def test_kernels_for_other_operators_and_backends_are_not_imported(doubling, kernels, record):
    with kernels(*record):
        assert computed(doubling) == [2, 2]
        assert F.sin(nnl.Variable.from_numpy_array(np.zeros(2, np.float32))).d.tolist() == [0, 0]
    assert not doubling.kernels
