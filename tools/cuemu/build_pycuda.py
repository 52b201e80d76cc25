"""Builds PyCUDA without a GPU and installs it: ``python -m tools.cuemu.build_pycuda``.

It is for the Python that runs this. The wheel is kept in ``NNL_PYCUDA_CACHE``, else in
``nnl-pycuda`` of the user's cache folder, so that a second call only installs it. It links to the
emulator's libcuda.so.1, whose name is that of the driver: the same wheel runs on a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.cuemu.cache import cache_folder, make_once
from tools.cuemu.library import BuildError, build
from tools.cuemu.toolkit import MISSING, find_toolkit, version_of

VERSION = "2026.1"
BUILD_TOOLS = ("setuptools>=80,<90", "wheel>=0.45,<1")
CANNOT_BUILD = 3  # exit status

# What PyCUDA's setup reads from the home folder. It would look for the driver and for curand in the
# toolkit, which need not have them.
SETTINGS = """\
CUDA_ROOT = {toolkit!r}
CUDA_INC_DIR = [{include!r}]
CUDADRV_LIB_DIR = [{library!r}]
CUDA_ENABLE_CURAND = False
CXXFLAGS = ["-O1", "-g0", "-w"]
LDFLAGS = ["-s"]
"""

# Most of the build is Boost's C++, one file after another; this compiles them side by side.
PARALLEL = '''\
"""Compiles the files of an extension at once."""
import os
from concurrent.futures import ThreadPoolExecutor

import setuptools
from distutils.ccompiler import CCompiler


def compile(self, sources, output_dir=None, macros=None, include_dirs=None, debug=False,
            extra_preargs=None, extra_postargs=None, depends=None):
    macros, objects, extra, flags, build = self._setup_compile(
        output_dir, macros, include_dirs, sources, depends, extra_postargs
    )
    options = self._get_cc_args(flags, debug, extra_preargs)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(self._compile, name, *build[name], options, extra, flags)
            for name in objects if name in build
        ]
        for job in jobs:
            job.result()
    return objects


CCompiler.compile = compile
'''


def is_installed() -> bool:
    """Tell whether this Python has the PyCUDA that would be built."""
    try:
        return metadata.version("pycuda") == VERSION
    except metadata.PackageNotFoundError:
        return False


def wheel() -> Path:
    """Return the wheel, built first where there is none for this Python and this CUDA.

    Raises `BuildError` where the toolkit is missing, or with what the build says.
    """
    toolkit = find_toolkit()
    if toolkit is None:
        raise BuildError(MISSING)
    version = sys.version_info
    platform = sysconfig.get_platform().replace("-", "_")
    name = f"{VERSION}-cp{version.major}{version.minor}-{platform}-cuda{version_of(toolkit)}"
    folder = cache_folder("NNL_PYCUDA_CACHE", "nnl-pycuda") / name
    make_once(folder, lambda draft: _build(toolkit, draft))
    return next(folder.glob("*.whl"))


def _build(toolkit: Path, draft: Path) -> None:
    library = build()
    with TemporaryDirectory() as temporary:
        home, tools = Path(temporary, "home"), Path(temporary, "tools")
        home.mkdir()
        _pip("install", "--target", str(tools), *BUILD_TOOLS)
        (tools / "sitecustomize.py").write_text(PARALLEL)
        settings = SETTINGS.format(
            toolkit=str(toolkit), include=str(toolkit / "include"), library=str(library)
        )
        (home / ".aksetup-defaults.py").write_text(settings)
        _pip(
            *("wheel", "--no-deps", "--no-build-isolation", "--no-binary", "pycuda"),
            # pip would else keep a wheel that was made for these settings alone.
            *("--no-cache-dir", "--wheel-dir", str(draft), f"pycuda=={VERSION}"),
            environment=_environment(home, tools, library),
        )


def _environment(home: Path, tools: Path, library: Path) -> dict[str, str]:
    """Return an environment with another home, where pip still finds its configuration."""
    old = Path.home()
    for name in (".netrc", ".pip"):
        if (old / name).exists():
            (home / name).symlink_to(old / name)
    return {
        **os.environ,
        "HOME": str(home),
        "XDG_CONFIG_HOME": os.environ.get("XDG_CONFIG_HOME") or str(old / ".config"),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(old / ".cache"),
        "PYTHONPATH": str(tools),
        "LIBRARY_PATH": str(library),
    }


def _pip(*arguments: str, environment: Mapping[str, str] | None = None) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        words = (done.stdout + done.stderr).strip()
        raise BuildError(f"pip {arguments[0]} ends with {done.returncode}:\n{words[-3000:]}")


def main() -> int:
    """Build and install PyCUDA; return 3, with one sentence, where it cannot be built here."""
    if is_installed():
        print(f"PyCUDA {VERSION} is installed")
        return 0
    if find_toolkit() is None:
        print(f"PyCUDA cannot be built: {MISSING}", file=sys.stderr)
        return CANNOT_BUILD
    try:
        built = wheel()
        _pip("install", str(built))
    except BuildError as error:
        print(f"PyCUDA is not built: {error}", file=sys.stderr)
        return 1
    print(f"installed {built.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
