"""Devices by number, and what is said of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, S, Variable
from nnl_core.cli import main
from nnl_core.errors import BackendError
from nnl_core.session import current_session
from nnl_core.settings import check
from nnl_core.training.project import Workbench
from tools import cuemu


@pytest.fixture
def two_devices(emulator):
    with cuemu.option(devices=2):
        yield


def test_info_tells_of_each_device_of_driver_and_toolkit(two_devices, capsys):
    assert main(["info", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["backends"]
    (found,) = [row["details"] for row in rows if row["name"] == "cuda"]
    assert re.fullmatch(r".+, [\d.]+ [GM]iB, compute capability \d+\.\d", found["cuda"])
    assert re.fullmatch(r".+, [\d.]+ [GM]iB, compute capability \d+\.\d", found["cuda:1"])
    assert re.fullmatch(r"for CUDA \d+\.\d", found["driver"])
    assert re.fullmatch(r"\d+\.\d \(.*nvcc\)", found["toolkit"])


def test_info_shows_the_same_as_text(capsys):
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"cuda       works .*\n +cuda: .+, compute capability", printed)


def test_a_device_that_is_not_there_is_named_with_how_many_there_are():
    with pytest.raises(BackendError, match="there is no GPU 7; the driver finds"):
        current_session().backend("cuda:7")


def test_backends_are_called_like_their_devices(two_devices):
    assert current_session().backend("cuda").name == "cuda"
    assert current_session().backend("cuda:1").name == "cuda:1"


def test_values_move_between_two_devices(two_devices):
    x = Variable.from_numpy_array(np.arange(6, dtype=np.float32).reshape(2, 3))
    with nnl.backend_scope("cuda"):
        doubled = x * 2.0
        doubled.forward()
    with nnl.backend_scope("cuda:1") as second:
        shifted = F.add_scalar(doubled.get_unlinked_variable(), 1.0)
        shifted.forward()
        assert shifted.data.is_on(second)
    with nnl.backend_scope("cuda"):
        back = F.mul_scalar(shifted.get_unlinked_variable(), 10.0)
        back.forward()
        np.testing.assert_array_equal(back.d, (np.arange(6).reshape(2, 3) * 2 + 1) * 10)


def test_two_devices_compute_in_turns_in_one_process(two_devices):
    results = {}
    for name in ("cuda", "cuda:1", "cuda", "cuda:1"):
        with nnl.backend_scope(name):
            x = Variable.from_numpy_array(np.linspace(-1, 1, 5, dtype=np.float32))
            y = F.tanh(x)
            y.forward()
            results.setdefault(name, []).append(np.array(y.d))
    for first, second in results.values():
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(results["cuda"][0], results["cuda:1"][0])


def test_parameters_follow_from_device_to_device(two_devices):
    x = Variable.from_numpy_array(np.ones((4, 3), np.float32))
    losses = {}
    for names in (("numpy", "numpy"), ("cuda", "cuda:1")):
        nnl.random.seed(0)
        with nnl.parameter_scope("", {}):
            solver = S.Adam(0.1)
            loss = F.mean(F.squared_error(PF.affine(x, 2), 1.0))
            solver.set_parameters(nnl.get_parameters())
            step = nnl.compile_step(loss, solver)
            for name in names:
                with nnl.backend_scope(name):
                    step.run()
                    step.run()
                    losses.setdefault(names, []).append(float(loss.d))
    expected, found = losses.values()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


# -------------------------------------------------------------------- tf32


def rounded(array):
    """Return float32 elements with 11 bits of precision, ties to even."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    bits = bits + 0x0FFF + ((bits >> 13) & 1)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


def test_products_round_their_operands_inside_the_scope_alone():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(32, 32)).astype(np.float32) for _ in range(2))
    with nnl.backend_scope("cuda") as backend:
        y = F.matmul(Variable.from_numpy_array(a), Variable.from_numpy_array(b))

        def product():
            for _ in range(3):  # the last ones are launched as a captured graph
                y.forward()
            return np.array(y.d)

        exact = product()
        with nnl.allow_tf32():
            assert backend.allow_tf32
            fast = product()
        assert not backend.allow_tf32
        np.testing.assert_array_equal(product(), exact)
    np.testing.assert_allclose(exact, a @ b, rtol=1e-5, atol=1e-5)
    assert np.abs(fast - exact).max() > 1e-5
    np.testing.assert_allclose(fast, rounded(a) @ rounded(b), rtol=1e-5, atol=1e-5)


def test_a_backend_that_gains_nothing_computes_as_ever():
    with nnl.backend_scope("numpy"), nnl.allow_tf32():
        x = Variable.from_numpy_array(np.full((2, 2), 1 + 2**-20, np.float32))
        y = F.matmul(x, x)
        y.forward()
        np.testing.assert_array_equal(y.d, x.d @ x.d)


def test_a_project_may_ask_for_it():
    table = {"model": {"layers": ["Affine"]}, "precision": "tf32", "backend": "cuda"}
    workbench = Workbench(check(table, "nnl.toml"), Path(), current_session())
    with workbench.scope():
        assert nnl.current_backend().allow_tf32
    assert not current_session().backend("cuda").allow_tf32
