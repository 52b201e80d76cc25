"""Backends by name, and by the number of a device behind it."""

from __future__ import annotations

import re

import pytest

import nnl_core as nnl
from nnl_core.cpu.backend import NumpyBackend
from nnl_core.errors import BackendError, UnknownComponentError
from nnl_core.hooks import BackendSpec, Plugin
from nnl_core.session import Session


class Numbered(NumpyBackend):
    """A backend on any of three devices."""

    def __init__(self, index: int = 0) -> None:
        super().__init__()
        if index > 2:
            raise BackendError(f"there is no device {index}")
        self.index = index


class Devices(Plugin):
    name = "devices"

    def nnl_backends(self):
        return [BackendSpec("many", f"{__name__}:Numbered", "on three devices", priority=50)]


@pytest.fixture
def session():
    with Session([Devices], discover=False, environment={}) as made:
        yield made


def test_the_number_behind_a_name_chooses_a_device(session):
    assert session.backend("many:2").index == 2


def test_a_name_without_a_number_is_the_first_device(session):
    assert session.backend("many") is session.backend("many:0")
    assert session.backend("many").index == 0


def test_each_device_has_one_backend(session):
    assert session.backend("many:1") is session.backend("many:1")
    assert session.backend("many:1") is not session.backend("many:2")


def test_numbers_choose_in_scopes_and_as_the_default(session):
    with nnl.backend_scope("many:1") as chosen:
        assert nnl.current_backend() is chosen is session.backend("many:1")


def test_the_environment_may_name_a_device():
    session = Session([Devices], discover=False, environment={"NNL_BACKEND": "many:1"})
    assert session.backend().index == 1
    assert session.default_backend() == ("many:1", "NNL_BACKEND")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("numpy:1", "'numpy' has no devices to choose from; say 'numpy'"),
        ("numpy:0", "'numpy' has no devices to choose from; say 'numpy'"),
        ("many:", "write the number of a device behind the name, such as 'many:1'"),
        ("many:-1", "write the number of a device behind the name, such as 'many:1'"),
        ("many:first", "write the number of a device behind the name, such as 'many:1'"),
        ("many:3", "there is no device 3"),
    ],
)
def test_a_device_that_is_not_there_is_an_error_that_says_so(session, name, message):
    with pytest.raises(BackendError, match=re.escape(message)):
        session.backend(name)


def test_an_unknown_backend_with_a_number_is_unknown(session):
    with pytest.raises(UnknownComponentError, match="unknown backend 'mini'"):
        session.backend("mini:1")


def test_a_wrong_number_in_the_environment_names_the_variable():
    session = Session([Devices], discover=False, environment={"NNL_BACKEND": "many:x"})
    with pytest.raises(BackendError, match=r"NNL_BACKEND is 'many:x': .* write the number"):
        session.backend()
