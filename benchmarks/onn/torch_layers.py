"""FastONN's formulation of operational layers in PyTorch, and layers of generative neurons."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnF

from benchmarks.onn.cases import KERNEL, Arrays, Case, arrays, least_gap

NODAL = {
    "mul": lambda x, w: w * x,
    "cubic": lambda x, w: 100 * w * x**3,
    "sine": lambda x, w: torch.sin(100 * w * x),
    "exp": lambda x, w: torch.exp(w * x) - 1,
    "sinh": lambda x, w: torch.sinh(0.1 * w * x),
    "chirp": lambda x, w: torch.sin(10000 * w * x**2),
    "harmonic": lambda x, w: torch.sin(w * x),
}
POOLS = {
    "sum": lambda values: torch.sum(values, dim=3),
    "max": lambda values: torch.max(values, dim=3)[0],
    "median": lambda values: torch.median(values, dim=3)[0],
}


def nodal_values(case: Case, x: Any, w: Any) -> Any:
    """Return the nodal operator of every connection and tap: (batch, inner, outer, taps, places).

    ``w`` is laid out as (inner, outer, taps).
    """
    windows = nnF.unfold(x, KERNEL, padding=KERNEL // 2)
    windows = windows.view(x.shape[0], x.shape[1], 1, KERNEL * KERNEL, -1)
    return NODAL[case.nodal](windows, w.view(1, *w.shape, 1))


def operational(case: Case, x: Any, w: Any, b: Any) -> Any:
    pooled = POOLS[case.pool](nodal_values(case, x, w))
    summed = pooled.sum(dim=1)
    return summed.view(*summed.shape[:2], *x.shape[2:]) - b.view(1, -1, 1, 1)


def generative(case: Case, x: Any, w: Any, b: Any) -> Any:
    powers = torch.cat([x**number for number in range(1, case.order + 1)], dim=1)
    return nnF.conv2d(powers, w, b, padding=KERNEL // 2)


class TorchLayer:
    """A layer in either precision, with its weight as its library lays it out."""

    def __init__(
        self, case: Case, given: Arrays, activated: bool, dtype: Any = torch.float32
    ) -> None:
        self.case, self.activated = case, activated
        self.weight_shape = given["w"].shape
        self.x, self.w, self.b = (
            torch.from_numpy(array).to(dtype).requires_grad_()
            for array in (given["x"], self.laid_out(given["w"]), given["b"])
        )
        self.g = torch.from_numpy(given["g"]).to(dtype)

    def laid_out(self, w: Any) -> Any:
        if self.case.order:
            return w.swapaxes(1, 2).reshape(w.shape[0], -1, KERNEL, KERNEL)
        return np.ascontiguousarray(w.reshape(*w.shape[:2], -1).swapaxes(0, 1))

    def step(self) -> None:
        for one in (self.x, self.w, self.b):
            one.grad = None
        layer = generative if self.case.order else operational
        y = layer(self.case, self.x, self.w, self.b)
        self.y = torch.tanh(y) if self.activated else y
        self.y.backward(self.g)

    def results(self) -> Arrays:
        dw = self.w.grad.numpy()
        if self.case.order:
            outer, inner = self.weight_shape[:2]
            dw = dw.reshape(outer, self.case.order, inner, KERNEL, KERNEL).swapaxes(1, 2)
        else:
            dw = dw.swapaxes(0, 1).reshape(self.weight_shape)
        return {
            "y": self.y.detach().numpy(),
            "dx": self.x.grad.numpy(),
            "dw": dw,
            "db": self.b.grad.numpy(),
        }


def exact(case: Case) -> tuple[Arrays, float]:
    """Return the results without tanh in double precision, and how much of ``g`` is left out.

    Beside the results stands ``g``, which is zero wherever the tap that a pool selects nearly ties
    with another: single precision may take either.
    """
    given = arrays(case)
    parts: list[Arrays] = []
    for number in range(len(given["x"])):
        one = {**given, **{name: given[name][number : number + 1] for name in ("x", "g")}}
        layer = TorchLayer(case, one, False, torch.float64)
        if case.pool in ("max", "median"):
            layer.g *= distinct(case, layer)
        layer.step()
        parts.append({**layer.results(), "g": layer.g.numpy().astype(np.float32)})
    found = {name: np.concatenate([part[name] for part in parts]) for name in ("y", "dx", "g")}
    found.update({name: np.sum([part[name] for part in parts], axis=0) for name in ("dw", "db")})
    return found, float(np.mean(found["g"] == 0))


def distinct(case: Case, layer: TorchLayer) -> Any:
    """Return whether in no input map another tap is nearly what an output's pool selects."""
    found = nodal_values(case, layer.x.detach(), layer.w.detach())
    values, _ = torch.sort(found, dim=3)
    at = KERNEL * KERNEL - 1 if case.pool == "max" else (KERNEL * KERNEL - 1) // 2
    near = (values - values[:, :, :, at : at + 1]).abs() < least_gap(case) * values.abs().max()
    return (near.sum(dim=3) == 1).all(dim=1).view_as(layer.g)
