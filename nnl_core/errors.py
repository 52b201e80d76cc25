"""The errors that NNL raises at its public edges, all under :class:`NnlError`."""

from __future__ import annotations


class NnlError(Exception):
    """Base of every error that a user of NNL is meant to read.

    The command line prints it as one line; its message names the thing, the value found and the
    remedy.
    """


class ConfigurationError(NnlError):
    """A setting (project file, environment, command line) is missing, unknown or wrong."""


class PluginError(NnlError):
    """A plugin, or something that it contributes, cannot be used."""


class PluginLoadError(PluginError):
    """A plugin failed to import, or is not something that NNL can register."""


class PluginVersionError(PluginError):
    """A plugin was made for another version of NNL's plugin interface, or of nnl-core."""


class PluginConflictError(PluginError):
    """Two plugins claim the same name, or the same exclusive hook."""


class HookError(PluginError):
    """A hook is unknown, misused, or its result is not what its specification says."""


class TargetError(PluginError):
    """An import string does not lead to the object that it names."""


class UnknownComponentError(PluginError):
    """Nothing of the asked kind is registered under the asked name."""
