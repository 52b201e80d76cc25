"""pytest fixtures for plugins; loaded into every pytest run, so it imports nothing but pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from nnl_core.hooks.manager import PluginManager
    from nnl_core.session import Session
    from nnl_core.testing.plugins import Outcome


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers that the fixtures use."""
    config.addinivalue_line("markers", "cuda: needs a CUDA device or the emulated driver")


@pytest.fixture
def nnl_manager() -> PluginManager:
    """Return a plugin manager without plugins, which never looks for installed ones."""
    from nnl_core.hooks.manager import PluginManager

    return PluginManager(discover=False)


@pytest.fixture
def nnl_session() -> Iterator[Session]:
    """Return the current session: a fresh one, with nothing but the core."""
    from nnl_core.session import Session

    with Session(environment={}, discover=False) as session:
        yield session


@pytest.fixture
def nnl_run() -> Callable[..., Outcome]:
    """Return a function that runs ``nnl`` in this process: `nnl_core.testing.run_nnl`."""
    from nnl_core.testing.plugins import run_nnl

    return run_nnl


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """Return a backend's name: the test runs once for each, and skips where it does not work."""
    from nnl_core.hooks import BackendSpec
    from nnl_core.session import current_session

    session = current_session()
    name: str = getattr(request, "param", "numpy")
    problem = session.backend_problem(session.manager.component(BackendSpec, name))
    if problem is not None:
        pytest.skip(f"backend {name!r}: {problem}")
    return name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that use our ``backend`` fixture once for each backend that is installed."""
    if "backend" not in metafunc.fixturenames or _is_overridden(metafunc):
        return
    from nnl_core.hooks import BackendSpec
    from nnl_core.session import current_session

    names = [record.name for record in current_session().manager.collect(BackendSpec)]
    marks = {"cuda": pytest.mark.cuda}
    parameters = [
        pytest.param(name, marks=[marks[name]] if name in marks else []) for name in names
    ]
    metafunc.parametrize("backend", parameters, ids=names, indirect=True)


def _is_overridden(metafunc: pytest.Metafunc) -> bool:
    """Tell whether ``backend`` means something else in this test."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", "")
        if "backend" in (names.replace(" ", "").split(",") if isinstance(names, str) else names):
            return True
    definitions = metafunc.definition._fixtureinfo.name2fixturedefs.get("backend", ())
    return not definitions or definitions[-1].func.__module__ != __name__
