"""The cache of compiled kernels: shared by processes, whole or not there, and never needed."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap

import pytest

from nnl_native import compiler
from nnl_native.compiler import CompileError, kernel_name, load_functions

SOURCE = "int NAME(int x) { return x + %d; }"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NNL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler, "_functions", {})
    return tmp_path / "cache"


def function(number):
    """Return the kernel that adds a number, as Python calls it."""
    source = SOURCE % number
    name = kernel_name(source)
    address = load_functions({name: source})[name]
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(address)


def libraries(folder):
    return sorted(path for path in folder.rglob("*.so") if not path.is_symlink())


def test_a_kernel_is_compiled_once_for_all_processes(folder, monkeypatch):
    assert function(1)(41) == 42
    monkeypatch.setattr(compiler, "_functions", {})  # as another process begins
    monkeypatch.setattr(compiler, "run_compiler", None)  # nothing may be compiled
    assert function(1)(41) == 42


def test_a_damaged_library_is_compiled_again(folder, monkeypatch):
    """Loading it fails; a process that has it loaded goes on with the file it has."""
    assert function(2)(40) == 42
    (library,) = libraries(folder)
    library.unlink()
    library.write_bytes(b"no library")
    monkeypatch.setattr(compiler, "_functions", {})
    assert function(2)(40) == 42


def test_what_does_not_compile_leaves_nothing_behind(folder):
    with pytest.raises(CompileError, match="nonsense"):
        load_functions({kernel_name("nonsense NAME"): "nonsense NAME"})
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_a_cache_that_cannot_be_made_is_done_without(folder):
    folder.write_text("a file where the folder should be")
    assert function(3)(39) == 42


def test_processes_that_compile_the_same_kernels_at_once_all_get_them(folder):
    """Each renames what it has made; whoever comes second replaces equal with equal."""
    program = textwrap.dedent(
        f"""
        import ctypes
        from nnl_native.compiler import kernel_name, load_functions
        texts = [{SOURCE!r} % number for number in range(12)]
        found = load_functions({{kernel_name(text): text for text in texts}})
        call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
        print(sum(call(found[kernel_name(text)])(0) for text in texts))
        """
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "NNL_CACHE_DIR": str(folder)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    assert [process.communicate()[0].strip() for process in started] == ["66"] * 3
    assert not [path for path in folder.rglob("*") if path.name.startswith(".draft")]
