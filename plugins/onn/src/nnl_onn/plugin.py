"""What this distribution contributes to NNL."""

from __future__ import annotations

from nnl_core.hooks import CommandSpec, HookspecSpec, LayerSpec, OperatorSet, Plugin
from nnl_onn.hooks import ActivationSpec, NodalSpec, PoolSpec

_NODAL = {
    "mul": "w x, as in a convolution",
    "cubic": "100 w x^3",
    "sine": "sin(100 w x)",
    "harmonic": "sin(w x)",
    "exp": "exp(w x) - 1",
    "sinh": "sinh(w x / 10)",
    "sinc": "sin(1000 w x) / (100 w x)",
    "chirp": "sin(10000 w x^2)",
    "log": "w log(1.543 + 1.175 x)",
    "quadratic": "w x^2",
    "gaussian": "w exp(-w x^2)",
    "derivative_of_gaussian": "w x exp(-w x^2)",
}
_POOLS = {
    "sum": "the sum over all taps",
    "max": "the largest tap",
    "median": "the median tap, the lower of two",
}


class OnnPlugin(Plugin):
    """Contributes operational layers, and the hooks by which others add operators to them."""

    name = "onn"

    def nnl_onn_nodal_operators(self) -> list[NodalSpec]:
        """Name the nodal operators of FastONN and of the papers."""
        return [NodalSpec(name, f"nnl_onn.nodal:{name}", text) for name, text in _NODAL.items()]

    def nnl_onn_pools(self) -> list[PoolSpec]:
        """Name the pools of FastONN."""
        return [PoolSpec(name, f"nnl_onn.pools:{name}_pool", text) for name, text in _POOLS.items()]

    def nnl_hookspecs(self) -> list[HookspecSpec]:
        """Define the hooks for nodal operators, pools and activations."""
        return [HookspecSpec("onn", "nnl_onn.hooks:OnnHooks", "operators of operational layers")]

    def nnl_layers(self) -> list[LayerSpec]:
        """Name the layers."""
        home = "nnl_onn.parametric_functions"
        return [
            LayerSpec("onn.operational", f"{home}:operational", "operational neurons"),
            LayerSpec(
                "onn.transposed_operational",
                f"{home}:transposed_operational",
                "operational neurons of decoders, which enlarge",
            ),
            LayerSpec(
                "onn.self_operational",
                "nnl_onn.self_onn:self_operational",
                "generative neurons: polynomials of the input",
            ),
            LayerSpec(
                "onn.transposed_self_operational",
                "nnl_onn.self_onn:transposed_self_operational",
                "generative neurons of decoders, which enlarge",
            ),
            LayerSpec(
                "onn.super_operational",
                "nnl_onn.super_neurons:super_operational",
                "generative neurons with shifted kernels",
            ),
        ]

    def nnl_commands(self) -> list[CommandSpec]:
        """Name the command that searches for operator sets."""
        return [CommandSpec("onn", "nnl_onn.command", "search for operator sets of a project")]

    def nnl_onn_activations(self) -> list[ActivationSpec]:
        """Name the activations that are no function of ``F``."""
        home = "nnl_onn.operator_sets"
        return [
            ActivationSpec("lincut", f"{home}:lincut", "a tenth, cut at -1 and 1"),
            ActivationSpec("identity", f"{home}:identity", "none"),
        ]

    def nnl_operators(self) -> list[OperatorSet]:
        """Name the operators that layers are made of."""
        return [OperatorSet("onn", "nnl_onn.operators", "operational neurons")]
