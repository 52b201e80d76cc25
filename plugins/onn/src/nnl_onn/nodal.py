"""Nodal operators: what a connection makes of an input element and its weight."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import sympy

from nnl_core.errors import NotDifferentiableError, OperatorError, PluginError
from nnl_core.graph.operator import Array
from nnl_core.session import current_session
from nnl_onn.expressions import differentiate, in_order, numpy_function, parse
from nnl_onn.hooks import NodalSpec

Function: TypeAlias = Callable[[Array, Array], Array]
Form: TypeAlias = str | Function


@dataclass(frozen=True)
class Nodal:
    """A nodal operator ``psi(x, w)``: an expression, or a function of two arrays that broadcast.

    ``gx`` and ``gw`` are what takes the place of the derivatives by ``x`` and ``w``: surrogate
    gradients of an expression, or the derivatives of a function. Where they are expressions, or
    are not given, they are differentiated further as often as need be; functions are not.
    """

    psi: Form
    gx: Form | None = None
    gw: Form | None = None

    def __call__(self, x: Array, w: Array) -> Array:
        """Return ``psi`` of two arrays, broadcast."""
        return self.function()(x, w)

    @property
    def is_surrogate(self) -> bool:
        """Whether its gradients are meant to differ from the derivatives of its expression."""
        return isinstance(self.psi, str) and not self.gx is self.gw is None

    def form(self, path: str = "") -> sympy.Expr | Function:
        """Return ``psi``, or a derivative by the letters of ``path``, as expression or function.

        The first letter of a path picks the author's gradient where there is one. Raises
        `NotDifferentiableError` for a derivative that nobody gave.
        """
        given = self.psi
        if not self.is_surrogate:
            path = in_order(path)
        own = {"x": self.gx, "w": self.gw}.get(path[:1])
        if own is not None:
            given, path = own, path[1:]
        if isinstance(given, str):
            return differentiate(parse(given), path)
        if path:
            raise NotDifferentiableError(
                f"nodal operator {self.psi!r} is a function without a derivative by {path!r}; give "
                "gx and gw as expressions in x and w"
            )
        return given

    def expression(self, path: str = "") -> sympy.Expr | None:
        """Return what `form` does where that is an expression; of functions ``None``."""
        form = self.form(path)
        return form if isinstance(form, sympy.Expr) else None

    def function(self, path: str = "") -> Function:
        """Return ``psi``, or a derivative, as a function of arrays that broadcast."""
        form = self.form(path)
        return numpy_function(form) if isinstance(form, sympy.Expr) else form


# The constants are those of FastONN's library; ``harmonic``, ``quadratic``, ``gaussian`` and
# ``derivative_of_gaussian`` are of the papers on operational neural networks only.
mul = Nodal("w * x")
cubic = Nodal("100 * w * x**3")
sine = Nodal("sin(100 * w * x)")
harmonic = Nodal("sin(w * x)")
exp = Nodal("exp(w * x) - 1")
sinh = Nodal("sinh(w * x / 10)")
sinc = Nodal("10 * sinc(1000 * w * x)")
chirp = Nodal("sin(10000 * w * x**2)")
# Below x = -1.3 the logarithm would have no value.
log = Nodal("w * log(maximum(1.54308063482 + 1.17520119364 * x, 0.01))")
quadratic = Nodal("w * x**2")
gaussian = Nodal("w * exp(-w * x**2)")
derivative_of_gaussian = Nodal("w * x * exp(-w * x**2)")

BUILT_IN: Mapping[str, Nodal] = {
    name: value for name, value in list(globals().items()) if isinstance(value, Nodal)
}

_found: dict[str, Nodal] = {}


def find_nodal(name: str) -> Nodal:
    """Return a nodal operator by name, or of an expression in ``x`` and ``w`` as its name.

    Raises `OperatorError` or `UnknownComponentError` where there is none.
    """
    if not isinstance(name, str):
        raise OperatorError(f"nodal operator {name!r} is no name and no expression in x and w")
    known = BUILT_IN.get(name) or _found.get(name)
    if known is None:
        known = _found[name] = _contributed(name) if _is_name(name) else _written(name)
    return known


def add_nodal(name: str, nodal: Nodal) -> str:
    """Give a program's own nodal operator a name, and return that; distributions use records.

    Raises `OperatorError` for a name that is no identifier, or that another operator has.
    """
    if not _is_name(name):
        raise OperatorError(f"{name!r} is no name: write identifiers, with dots between them")
    known = BUILT_IN.get(name) or _found.setdefault(name, nodal)
    if known != nodal:
        raise OperatorError(f"another nodal operator has the name {name!r}; take one of your own")
    return name


def _is_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split(".")) and text not in ("x", "w")


@functools.cache
def _written(text: str) -> Nodal:
    parse(text)
    return Nodal(text)


def _contributed(name: str) -> Nodal:
    manager = current_session().manager
    record = manager.component(NodalSpec, name)
    nodal = manager.resolve(record)
    if not isinstance(nodal, Nodal):
        raise PluginError(f"nodal operator {name!r} ({record.target}) is no nnl_onn.Nodal")
    return nodal
