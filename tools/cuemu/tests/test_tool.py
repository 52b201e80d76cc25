"""How the emulator is built and found, and how sources become modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.cuemu import cache, nvcc, toolkit

ROOT = Path(__file__).parents[3]


def test_a_folder_is_made_once(tmp_path):
    made = []
    for _ in range(2):
        folder = cache.make_once(tmp_path / "x", made.append)
    assert len(made) == 1
    assert folder == tmp_path / "x"
    assert folder.is_dir()


def test_of_several_processes_one_makes_a_folder(tmp_path):
    script = (
        "import sys; from pathlib import Path; from tools.cuemu import cache\n"
        "make = lambda draft: (draft / 'by').write_text(print('made') or 'me')\n"
        "cache.make_once(Path(sys.argv[1]), make)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "x")]
    running = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    said = [process.communicate()[0] for process in running]
    assert sorted(said) == ["", "", "made\n"]


def test_nothing_half_made_stays(tmp_path):
    def fail(draft: Path) -> None:
        (draft / "part").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.make_once(tmp_path / "x", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["x.lock"]


def write_header(folder: Path, version: int) -> None:
    (folder / "include").mkdir(parents=True)
    (folder / "include" / "cuda.h").write_text(f"#define CUDA_VERSION {version}\n")


def test_the_toolkit_that_is_named_comes_first(tmp_path, monkeypatch):
    write_header(tmp_path, 12080)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert toolkit.find_toolkit() == tmp_path.resolve()
    assert toolkit.version_of(tmp_path) == 12080


def test_the_toolkit_behind_a_wrapper_on_the_path_is_found(tmp_path, monkeypatch):
    write_header(tmp_path / "cuda", 13000)
    wrapper = tmp_path / "bin" / "nvcc"
    wrapper.parent.mkdir()
    wrapper.write_text(f"#!/bin/sh\necho '#$ TOP={tmp_path}/cuda' >&2\n")
    wrapper.chmod(0o755)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(wrapper.parent), prepend=os.pathsep)
    assert toolkit.find_toolkit() == (tmp_path / "cuda").resolve()


KERNEL = "__attribute__((cuemu_kernel))"


def test_kernels_are_found_with_their_launch_bounds():
    text = f"""
        {KERNEL} void first(int *x) {{}}
        extern "C" {KERNEL} void __attribute__((cuemu_bounds(128, 2))) second(int *x);
        template <class T> {KERNEL} void general(T *x) {{}}
        template {KERNEL} void general<float>(float *);
    """
    assert nvcc.kernels(text) == {"first": "", "second": "128, 2", "general<float>": ""}


def test_dynamic_shared_memory_becomes_a_pointer():
    text = (
        "extern static thread_local __attribute__((cuemu_shared)) "
        "__attribute__((aligned(16))) float s[];"
    )
    assert (
        nvcc.with_dynamic_shared(text)
        == "__attribute__((unused)) float *const s = (float *)cuemu_dynamic_shared();"
    )


def test_options_that_take_a_value_do_not_hide_the_source():
    arguments = "--cubin -arch sm_80 -O3 -Xptxas -v -I inc -DN=4 --compiler-options -P k.cu"
    assert nvcc.parsed(arguments.split()) == (
        *("cubin", "80", Path("k.cu"), "k.cubin"),
        ["-Iinc", "-DN=4"],
    )


def test_a_source_that_does_not_compile_is_an_error_with_its_line(tmp_path):
    (tmp_path / "k.cu").write_text("__global__ void f() {\n  nonsense;\n}\n")
    command = [str(ROOT / "tools" / "cuemu" / "bin" / "nvcc"), "--cubin", "k.cu"]
    environment = {**os.environ, "CUEMU_PYTHON": sys.executable}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "k.cu:2:" in done.stderr
    assert not (tmp_path / "k.cubin").exists()


def test_a_real_cubin_is_refused_with_the_reason(cuda, context):
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    header[18] = 190  # the machine: CUDA
    with pytest.raises(cuda.Error, match="this is a real cubin"):
        cuda.module_from_buffer(bytes(header))
