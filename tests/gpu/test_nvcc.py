"""Tests for what the real compiler makes of kernels: no warnings, no spills, launches that fit."""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest

from nnl_core.gpu import blas
from nnl_core.gpu.compiler import source_of
from nnl_core.gpu.device import device
from nnl_core.gpu.kernel import FOLDER, Call, Launch, find_emitter
from nnl_core.graph.dtypes import as_dtype
from nnl_core.graph.operator import lookup, registered
from nnl_core.graph.spec import Spec
from nnl_core.session import current_session
from tools.cuemu.toolkit import find_toolkit

DTYPES = ("float32", "float16")
EACH = 2  # units of a file that are compiled for each of them
REGISTERS = 1 << 16  # of a multiprocessor
SHARED = 227 << 10  # bytes that a block of sm_90 may have
WINDOWS: dict[str, object] = {"stride": (1, 1), "pad": ((1, 1), (1, 1)), "dilation": (1, 1)}
IMAGES, MAPS, WEIGHT = (64, 64, 56, 56), (64, 128, 56, 56), (128, 64, 3, 3)
LARGE: list[tuple[str, list[tuple[int, ...]], dict[str, object]]] = [
    ("batch_matmul", [(4096, 1024), (1024, 4096)], {}),
    ("batch_matmul", [(64, 1 << 16), (1 << 16, 64)], {}),
    ("batch_matmul", [(4096, 1024), (4096, 1024)], {"transpose_b": True}),
    ("convolution", [IMAGES, WEIGHT], WINDOWS),
    ("convolution_data_gradient", [MAPS, WEIGHT], WINDOWS),
    ("convolution_weight_gradient", [IMAGES, MAPS], {"kernel": (3, 3), **WINDOWS}),
]
"""Operators whose kernels have other tiles where there is more work than samples have."""


class Function(NamedTuple):
    """What the compiler says of a kernel."""

    spilled: int
    registers: int
    shared: int

    @classmethod
    def of(cls, said: str) -> Function:
        """Read the lines behind its name."""
        numbers = (
            sum(map(int, re.findall(what, said)))
            for what in (r"(\d+) bytes spill", r"Used (\d+) registers", r"(\d+) bytes smem")
        )
        return cls(*numbers)


def _launches(
    name: str, specs: Sequence[Spec | None], attributes: dict[str, object]
) -> list[Launch]:
    operator = lookup(name)
    emit = find_emitter(operator)
    if emit is None:
        return []
    given = operator.bind_attributes(attributes)
    outputs = tuple(operator.infer_specs(specs, given))
    emission = emit(Call(operator, given, tuple(specs), outputs, device()))
    return [step for step in emission.steps if isinstance(step, Launch)] if emission else []


def _of_samples(dtype: str) -> Iterator[Launch]:
    """Yield what computes the samples of all operators, floats being of a dtype."""
    for operator in registered("nnl"):
        for sample in operator.iterate_samples(np.random.default_rng(0)):
            specs: list[Spec | None] = [
                None
                if array is None
                else Spec(array.shape, as_dtype(dtype) if array.dtype == float else array.dtype)
                for array in sample.inputs
            ]
            specs += [None] * (len(operator.parameters.inputs) - len(specs))
            yield from _launches(operator.name, specs, dict(sample.attributes))


def _of_large_products(dtype: str) -> Iterator[Launch]:
    """Yield what computes large products where there is no library, also in tf32."""
    allowed = device().allow_tf32
    with patch.object(blas, "find", return_value=None):
        for is_allowed in (False, True):
            device().allow_tf32 = is_allowed
            for name, shapes, attributes in LARGE:
                specs: list[Spec | None] = [Spec(shape, as_dtype(dtype)) for shape in shapes]
                specs += [None] * (len(lookup(f"nnl::{name}").parameters.inputs) - len(specs))
                yield from _launches(f"nnl::{name}", specs, attributes)
    device().allow_tf32 = allowed


@cache
def _chosen() -> list[Launch]:
    """Return launches of some units of each file for each dtype, and of large products."""
    import_module("nnl_core.functions")
    current_session().load_operators("nnl")
    files = [path.read_text() for path in sorted(FOLDER.glob("*.cu"))]
    launches: list[Launch] = []
    chosen: set[str] = set()
    for dtype in DTYPES:
        found = list(_of_samples(dtype))
        for text in files:
            texts = dict.fromkeys(one.kernel.text for one in found if text in one.kernel.text)
            chosen |= set(list(texts)[:EACH])
        large = list(_of_large_products(dtype))
        chosen |= {one.kernel.text for one in large}
        launches += found + large
    return [one for one in launches if one.kernel.text in chosen]


@cache
def _compiled(architecture: str, folder: Path) -> dict[str, Function]:
    """Return what the real compiler says of the chosen kernels; skip where it is not there."""
    toolkit = find_toolkit()
    if toolkit is None or not os.access(toolkit / "bin" / "nvcc", os.X_OK):
        pytest.skip("there is no CUDA compiler")
    (folder / "kernels.cu").write_text(
        source_of(dict.fromkeys(one.kernel.text for one in _chosen()))
    )
    command = f"{toolkit}/bin/nvcc --cubin -std=c++17 -O3 -arch {architecture}"
    options = f"--Werror all-warnings -Xptxas -v -o {os.devnull} {folder}/kernels.cu"
    done = subprocess.run(
        [*command.split(), *options.split()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]
    kernels = done.stderr.split("Compiling entry function '")[1:]
    return {said.partition("'")[0]: Function.of(said) for said in kernels}


@pytest.fixture
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Function]:
    return _compiled("sm_90", tmp_path_factory.getbasetemp())


def test_a_unit_of_each_file_is_compiled_without_warnings(compiled: dict[str, Function]) -> None:
    texts = {launch.kernel.text for launch in _chosen()}
    for path in FOLDER.glob("*.cu"):
        assert any(path.read_text() in text for text in texts), path.name
    assert {launch.kernel.symbol for launch in _chosen()} <= compiled.keys()


def test_no_kernel_spills_registers(compiled: dict[str, Function]) -> None:
    assert [name for name, function in compiled.items() if function.spilled] == []


def test_launches_have_the_registers_and_the_shared_memory(compiled: dict[str, Function]) -> None:
    for launch in _chosen():
        function, warps = compiled[launch.kernel.symbol], -(-math.prod(launch.block) // 32)
        held = -(-function.registers * 32 // 256) * 256  # by a warp
        assert warps * held <= REGISTERS, launch.kernel.entry
        assert launch.shared + function.shared <= SHARED, launch.kernel.entry
