"""Errors name the function that was called, not one that it is made of."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from types import FunctionType
from typing import ParamSpec, TypeVar

from nnl_core.errors import OperatorError, ShapeError

P = ParamSpec("P")
R = TypeVar("R")

LABEL = re.compile(r"^(?!operator |parameter )\w+(?=( '[^']*')?: )")
"""The function or operator at the beginning of an error, which may give its node's name, too."""


def named(function: Callable[P, R]) -> Callable[P, R]:
    """Begin what is wrong with the function's arguments with its name."""
    name = function.__name__

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (OperatorError, ShapeError) as error:
            text = str(error)
            label = LABEL.match(text)
            error.args = (name + text[label.end() :] if label else f"{name}: {text}",)
            raise

    return call


def name_errors(namespace: dict[str, object], package: str) -> None:
    """Let all public functions of a package be `named`, in a namespace and where they are from."""
    for key, value in list(namespace.items()):
        if isinstance(value, FunctionType) and value.__module__.startswith(package + "."):
            if not key.startswith("_"):
                namespace[key] = named(value)
                setattr(sys.modules[value.__module__], key, namespace[key])  # where pickle looks
