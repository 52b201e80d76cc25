"""Devices by number, and what is said of them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.cli import main
from nnl_core.errors import BackendError
from nnl_core.session import current_session
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
    from nnl_core import PF, S

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
