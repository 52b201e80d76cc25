"""What this distribution contributes to NNL."""

from __future__ import annotations

from nnl_core.hooks import BackendSpec, CommandSpec, Plugin


class NativePlugin(Plugin):
    """Contributes the backend ``native`` and the command ``nnl cache``."""

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

    def nnl_commands(self) -> list[CommandSpec]:
        """Name the command on the cache of compiled kernels."""
        return [
            CommandSpec(
                "cache",
                "nnl_native.cache_command",
                "show or clear the cache of compiled kernels",
                tolerant=True,
            )
        ]
