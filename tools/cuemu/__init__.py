"""The CUDA driver on the CPU: PyCUDA runs unchanged kernels, and every access is checked."""

from tools.cuemu.emulator import activate, option, problem, renew, set, stats

__all__ = ["activate", "option", "problem", "renew", "set", "stats"]
