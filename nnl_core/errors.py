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


class GraphError(NnlError):
    """A graph is built, changed or run in a way that has no meaning."""


class ShapeError(GraphError):
    """Shapes, axes or dtypes of an operation's inputs do not fit together."""


class ClearedError(GraphError):
    """A value was read whose memory an earlier run has released."""


class StaleValueError(GraphError):
    """A value that a backward pass needs was overwritten after the forward pass that used it."""


class NotDifferentiableError(GraphError):
    """A gradient was asked through an operator that has none."""


class OperatorError(NnlError):
    """An operator is defined twice, incompletely, or called with inputs that it cannot take."""


class UnsavedValueError(OperatorError):
    """A gradient rule uses a value that its operator does not save."""


class BackendError(NnlError):
    """A backend cannot be used here; the message repeats its probe's reason."""


class ParameterError(NnlError):
    """A parameter is missing, or its name, shape or dtype clashes with what is there."""


class SolverError(NnlError):
    """A solver is set up or fed in a way that it cannot work with."""


class FileError(NnlError):
    """A file cannot be read or written as asked; what was there before is untouched."""


class PluginWarning(UserWarning):
    """A plugin was left out; the rest goes on without it."""


class DataError(NnlError):
    """A data set is missing, empty, or does not fit the model."""


class ModelError(NnlError):
    """A model function cannot be found or called, or returns what cannot be used."""


class TrainingError(NnlError):
    """A training run cannot begin or go on."""


class NotFiniteError(TrainingError):
    """A loss, or a number that leads to it, is infinite or NaN."""
