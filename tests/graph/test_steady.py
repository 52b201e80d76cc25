"""Which leaves of a program are steady, and when what follows from them is computed anew."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, S, Variable
from nnl_core.cpu.backend import NumpyBackend
from nnl_core.graph.lower import lower


def steady(*outputs, **options):
    """Return the names of a graph's steady leaves."""
    lowered = lower([(y, y.data) for y in outputs], **options)
    storages = [lowered.leaves[position] for position in lowered.graph.steady]
    named = {id(p.data): name for name, p in nnl.get_parameters(grad_only=False).items()}
    return {named.get(id(storage), "constant") for storage in storages}


@pytest.fixture(autouse=True)
def scope():
    with nnl.parameter_scope("", {}):
        yield


def test_parameters_are_steady_and_inputs_are_not():
    assert steady(PF.affine(Variable((2, 3)), 4)) == {"affine/W", "affine/b"}


def test_a_large_constant_is_steady():
    assert steady(Variable((100,)) + Variable.constant(np.ones(100))) == {"constant"}


def test_a_frozen_parameter_is_steady():
    assert "affine/W" in steady(PF.affine(Variable((2, 3)), 4, fix_parameters=True))


def test_running_statistics_are_steady_where_they_are_only_read():
    y = PF.batch_normalization(Variable((2, 3)), batch_stat=False)
    assert {"bn/mean", "bn/var"} <= steady(y)


def test_running_statistics_are_not_steady_where_the_run_sets_them():
    y = PF.batch_normalization(Variable((2, 3)), batch_stat=True)
    assert steady(y) == {"bn/beta", "bn/gamma"}


def test_what_a_run_updates_is_not_steady_nor_is_what_shares_its_memory():
    x, block = nnl.Parameter((2,)), nnl.Parameter((4,))
    nnl.parameters.set_parameter("x", x)
    nnl.parameters.set_parameter("block", block)
    x.data.relocate(block.data.read()[:2])
    assert steady(x * 2) == {"x"}
    assert steady(x * 2, updates=[(block + 1, block.data)]) == set()


def test_steadiness_tells_graphs_apart():
    x = Variable((2,))
    graphs = [lower([(y, y.data)]).graph for y in (x * x, F.mul(*[nnl.Parameter((2,))] * 2))]
    assert graphs[0].signature() != graphs[1].signature()


class Program:
    """Tells in which order it was run and prepared."""

    def __init__(self, program, log):
        self.inner, self.log = program, log
        self.graph, self.memory = program.graph, program.memory
        self.steady = tuple(program.graph.steady) or None

    def run(self, leaves, outputs, observer=None):
        self.log.append("all")
        self.inner.run(leaves, outputs, observer)

    def prepare(self, leaves):
        self.log.append("prepare")
        return Prepared(self, [leaves[position].copy() for position in self.steady])


class Prepared:
    """Computes with copies of the steady leaves that were made before."""

    def __init__(self, program, values):
        self.program, self.values = program, values

    def run(self, leaves, outputs):
        self.program.log.append("rest")
        leaves = list(leaves)
        for position, value in zip(self.program.steady, self.values, strict=True):
            leaves[position] = value
        self.program.inner.run(leaves, outputs)


class Backend(NumpyBackend):
    def __init__(self):
        super().__init__()
        self.log = []

    def compile(self, graph):
        return Program(super().compile(graph), self.log)


@pytest.fixture
def log():
    backend = Backend()
    with nnl.backend_scope(backend):
        yield backend.log


def affine():
    x = Variable.from_numpy_array(np.ones((2, 3), np.float32))
    return x, PF.affine(x, 4)


def test_it_is_prepared_once_for_all_runs(log):
    x, y = affine()
    for value in (1, 2, 3):
        x.d = value
        y.forward(clear_buffer=True)
    assert log == ["prepare", "rest", "rest", "rest"]


def write_through_a_view(w):
    w.d[0, 0] += 1


def assign(w):
    w.d = w.d + 1


def fill(w):
    w.data.fill(2)


def put_another_storage_in_place(w):
    w.data = nnl.NdArray.from_numpy_array(w.d + 1)


@pytest.mark.parametrize(
    "change", [write_through_a_view, assign, fill, put_another_storage_in_place]
)
def test_it_is_prepared_again_where_a_parameter_was_written(log, change):
    x, y = affine()
    y.forward(clear_buffer=True)
    w = nnl.get_parameters()["affine/W"]
    change(w)
    y.forward(clear_buffer=True)
    assert log.count("prepare") == 2
    np.testing.assert_allclose(y.d, x.d @ w.d, rtol=1e-6)


def test_it_is_prepared_again_after_a_solver_updated_parameters(log):
    x, y = affine()
    loss = F.mean(y * y)
    solver = S.Sgd(lr=0.1)
    solver.set_parameters(nnl.get_parameters())
    step = nnl.compile_step(loss, solver)
    y.forward(clear_buffer=True)
    step.run()
    y.forward(clear_buffer=True)
    w, b = (nnl.get_parameters()[f"affine/{name}"].d for name in "Wb")
    np.testing.assert_allclose(y.d, x.d @ w + b, rtol=1e-6)


def test_models_that_share_a_program_are_prepared_each_for_itself(log):
    results = []
    for name in "ab":
        with nnl.parameter_scope(name):
            results.append(affine())
    for _ in range(2):
        for name, (x, y) in zip("ab", results, strict=True):
            y.forward(clear_buffer=True)
            w = nnl.get_parameters()[f"{name}/affine/W"].d
            np.testing.assert_allclose(y.d, x.d @ w, rtol=1e-6)
    assert log.count("prepare") == 2


def test_an_observed_run_computes_everything(log):
    _, y = affine()
    y.forward(clear_buffer=True, function_pre_hook=lambda node: None)
    assert log == ["all"]
