"""Native kernels for these tests, compiled into a cache of their own, whatever the default is."""

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
def native(own_cache):
    """Run on the native backend, or skip with the reason why it does not work here."""
    from nnl_native.probe import probe

    problem = probe()
    if problem is not None:
        pytest.skip(f"backend 'native': {problem}")
    with nnl.backend_scope("native") as backend:
        yield backend
