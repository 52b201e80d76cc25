"""What this distribution contributes to NNL."""

from __future__ import annotations

from nnl_core.hooks import OperatorSet, Plugin


class PowersPlugin(Plugin):
    """Contributes the operators of the namespace ``powers``."""

    name = "powers"

    def nnl_operators(self) -> list[OperatorSet]:
        """Name the module that defines them; it is imported when one is used."""
        return [OperatorSet("powers", "nnl_powers.operators", "integer powers")]
