from __future__ import annotations

import json

import numpy as np

from nnl_core.cli import main
from nnl_core.hooks import BackendSpec, Plugin
from nnl_core.session import Session


class Abacus(Plugin):
    name = "abacus"

    def nnl_backends(self):
        target = f"{__name__}:Abacus"
        return [BackendSpec("abacus", target, "beads", probe="json:no_such_probe", priority=9)]


def session(command_line, report):
    return Session([Abacus], discover=False, environment={})


def test_backends_are_listed_with_the_reason_why_one_is_missing(capsys):
    assert main(["info"], session) == 0
    printed = capsys.readouterr().out
    assert f"numpy        {np.__version__}" in printed
    assert "  numpy      works" in printed
    assert "  abacus     cannot be used: " in printed
    assert "no_such_probe" in printed
    assert printed.index("abacus     cannot") < printed.index("numpy      works")


def test_the_same_can_be_had_as_json(capsys):
    assert main(["info", "--json"], session) == 0
    found = json.loads(capsys.readouterr().out)
    problems = {row["name"]: row["problem"] for row in found["backends"]}
    assert problems["numpy"] is None
    assert "no_such_probe" in problems["abacus"]
    assert found["plugins"] == ["core", "abacus"]
    assert found["default_backend"] == "numpy"


def asking(name):
    return lambda command_line, report: Session(discover=False, environment={"NNL_BACKEND": name})


def test_the_default_backend_is_named_with_who_chose_it(capsys):
    assert main(["info"], asking("numpy")) == 0
    assert "backend      numpy (NNL_BACKEND)" in capsys.readouterr().out


def test_a_default_that_cannot_be_had_is_said_and_does_not_hide_the_rest(capsys):
    assert main(["info"], asking("abbacus")) == 0
    printed = capsys.readouterr().out
    assert "NNL_BACKEND is 'abbacus': unknown backend 'abbacus'" in printed
    assert "  numpy      works" in printed
