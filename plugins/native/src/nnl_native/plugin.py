"""What this distribution contributes to NNL."""

from __future__ import annotations

from nnl_core.hooks import BackendSpec, Plugin


class NativePlugin(Plugin):
    """Contributes the backend ``native``."""

    name = "native"

    def nnl_backends(self) -> list[BackendSpec]:
        """Name the backend; it is preferred to NumPy where there is a C compiler."""
        return [
            BackendSpec(
                "native",
                "nnl_native.backend:NativeBackend",
                "generated C and oneDNN, a program in one call",
                probe="nnl_native.probe:probe",
                priority=10,
            )
        ]
