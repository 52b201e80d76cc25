"""What the distribution contributes, how it is chosen, and what it leaves to NumPy."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, S, Variable, defop
from nnl_core.errors import BackendError
from nnl_core.hooks import BackendSpec
from nnl_core.session import Session
from nnl_core.testing import check_plugin
from nnl_native.plugin import NativePlugin


def test_the_plugin_imports_nothing_heavy_and_what_it_names_is_there():
    check_plugin(NativePlugin)


def test_it_is_the_default_where_it_is_installed_and_works():
    assert Session(environment={}).backend().name == "native"


def test_without_a_compiler_numpy_is_the_default_and_the_reason_is_said():
    program = (
        "from nnl_core.session import current_session\n"
        "session = current_session()\n"
        "assert session.backend().name == 'numpy', session.backend()\n"
        "session.backend('native')\n"
    )
    environment = {"CC": "", "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "BackendError: backend 'native' cannot be used here: there is no C compiler" in (
        done.stderr
    )
    assert "nnl-native[zig]" in done.stderr


def test_a_compiler_that_does_not_work_is_a_reason(monkeypatch, tmp_path):
    from nnl_native import compiler, probe, runtime

    cached = (compiler.compiler_command, compiler.compiler_identity, probe.probe, runtime.walker)
    for function in cached:
        function.cache_clear()
    monkeypatch.setattr(compiler, "_functions", {})
    monkeypatch.setenv("NNL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CC", "false")
    try:
        session = Session(environment={})
        with pytest.raises(BackendError, match="its C does not compile or load here"):
            session.backend("native")
        assert session.backend().name == "numpy"
    finally:
        for function in cached:
            function.cache_clear()


def test_attributes_that_python_calls_equal_are_not_one_program():
    x = Variable.from_numpy_array(np.ones(20_000, np.float32))
    with nnl.auto_forward():
        zeros, negative = F.mul_scalar(x, 0.0).d, F.mul_scalar(x, -0.0).d
    assert not np.signbit(zeros).any()
    assert np.signbit(negative).all()


def test_profiles_say_what_numpy_computed():
    @defop("plugin::reversed")
    def reversed_(x):
        return x[::-1].copy()

    reversed_.infer(lambda x: x)
    x = Variable.from_numpy_array(np.ones((4, 3), np.float32))
    w = Variable.from_numpy_array(np.ones(3, np.float32), need_grad=True)
    with nnl.no_grad():
        backwards = reversed_(F.relu(x))
    loss = F.sum(F.exp(backwards) * w)
    solver = S.Sgd(0.1)
    solver.set_parameters({"w": w})
    rows = nnl.compile_step(loss, solver).profile(1)
    assert [row.operator for row in rows if row.computed_by == "numpy"] == ["reversed"]
    assert "native" in {row.computed_by for row in rows}


def test_the_record_says_what_it_is():
    (record,) = NativePlugin().nnl_backends()
    assert isinstance(record, BackendSpec) and record.name == "native" and record.priority > 0
