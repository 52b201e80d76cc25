"""What holds for these tests: they run on NumPy unless they say otherwise."""

from __future__ import annotations

import os

import pytest

import nnl_core as nnl


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Keep what tests compile out of the user's cache; one folder for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with pytest.MonkeyPatch.context() as patch:
        if "NNL_CACHE_DIR" not in os.environ:
            patch.setenv("NNL_CACHE_DIR", str(folder / "nnl-native"))
        yield


@pytest.fixture(autouse=True)
def numpy_backend(own_cache):
    """Run on NumPy, from fresh parameters."""
    nnl.clear_parameters()
    with nnl.backend_scope("numpy"):
        yield
    nnl.clear_parameters()
