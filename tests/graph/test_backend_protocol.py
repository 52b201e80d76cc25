"""A backend with memory of its own needs nothing from the graph but the protocol."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.cpu.backend import NumpyBackend
from nnl_core.errors import BackendError
from nnl_core.hooks import BackendSpec, Plugin


class Block:
    """Memory that only its backend can look into."""

    def __init__(self, array):
        self._array = array


class RemoteProgram:
    def __init__(self, program):
        self.inner = program
        self.graph, self.memory = program.graph, program.memory

    def run(self, leaves, outputs, observer=None):
        self.inner.run([b._array for b in leaves], [b._array for b in outputs], observer)


class RemoteBackend:
    name, on_host = "remote", False

    def __init__(self):
        self.inner = NumpyBackend()
        self.uploads = self.downloads = 0

    def allocate(self, spec):
        return Block(np.full(spec.shape, -1, spec.dtype))

    def to_host(self, buffer):
        self.downloads += 1
        return buffer._array.copy()

    def from_host(self, array, buffer=None):
        self.uploads += 1
        return Block(array.copy())

    def run(self, operator, inputs, attributes, outputs):
        arrays = [None if b is None else b._array for b in inputs]
        return tuple(Block(a) for a in self.inner.run(operator, arrays, attributes, outputs))

    def compile(self, graph):
        return RemoteProgram(self.inner.compile(graph))


@pytest.fixture
def remote():
    with nnl.backend_scope(RemoteBackend()) as backend:
        yield backend


def leaf(values):
    return Variable.from_numpy_array(np.array(values, np.float64), need_grad=True)


def test_forward_and_backward_agree_with_the_host(remote):
    x, w = leaf([[1.0, 2.0]]), leaf([[3.0], [4.0]])
    y = F.sum(F.tanh(F.affine(x, w) * 0.1))
    y.forward()
    y.backward()
    np.testing.assert_allclose(y.d, np.tanh(1.1))
    np.testing.assert_allclose(w.g, (1 - np.tanh(1.1) ** 2) * 0.1 * x.d.T)


def test_dynamic_execution_stays_on_the_device(remote):
    with nnl.auto_forward():
        x = leaf([1.0])
        y = x
        for _ in range(10):
            y = y * 2
    assert remote.downloads == 0 and remote.uploads == 1
    np.testing.assert_array_equal(y.d, [1024])


def test_data_moves_only_when_it_changed(remote):
    x = leaf([1.0])
    y = x * 2
    y.forward()
    y.forward()
    assert remote.uploads == 1
    x.d[0] = 5
    y.forward()
    assert remote.uploads == 2
    np.testing.assert_array_equal(y.d, [10])


def test_values_move_between_backends():
    x = leaf([3.0])
    with nnl.backend_scope(RemoteBackend()):
        h = x * 2
        h.forward()
    y = h.get_unlinked_variable() + 1
    y.forward()
    np.testing.assert_array_equal(y.d, [7])


def test_training_on_a_remote_device_gives_the_host_s_parameters():
    def train():
        nnl.clear_parameters()
        nnl.seed(1)
        x = leaf(np.random.default_rng(0).normal(size=(8, 3)))
        loss = F.mean((nnl.PF.affine(x, 2) - 1.0) ** 2)
        solver = nnl.S.Momentum(0.1)
        solver.set_parameters(nnl.get_parameters())
        step = nnl.compile_step(loss, solver, weight_decay=0.01, clip_grad_norm=0.5)
        for _ in range(4):
            step.run()
        return {name: p.d.copy() for name, p in nnl.get_parameters().items()}

    host = train()
    with nnl.backend_scope(RemoteBackend()):
        remote = train()
    for name, value in host.items():
        np.testing.assert_allclose(remote[name], value, rtol=1e-6)


def test_an_unknown_backend_is_named():
    with pytest.raises(nnl.NnlError, match="nosuch"), nnl.backend_scope("nosuch"):
        pass


def test_a_backend_whose_probe_fails_repeats_the_reason(monkeypatch):
    class Absent(Plugin):
        name = "absent"

        def nnl_backends(self):
            return [BackendSpec("absent", "math:sqrt", "not here", "absent_probe:why", 99)]

    probe = types.ModuleType("absent_probe")
    probe.why = lambda: "no such device in this machine"
    monkeypatch.setitem(sys.modules, "absent_probe", probe)
    with nnl.Session(plugins=[Absent], discover=False, environment={}) as session:
        with pytest.raises(BackendError, match="no such device in this machine"):
            session.backend("absent")
        assert session.backend(None).name == "numpy"
