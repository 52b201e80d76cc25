"""Layers of plugins as functions of ``PF``."""

from __future__ import annotations

from nnl_core.hooks import LayerSpec
from nnl_core.hooks.loading import did_you_mean
from nnl_core.session import current_session


def contributed_layer(name: str) -> object:
    """Return the layer of a plugin by its name without that of the plugin: ``plugin.name``.

    Raises `AttributeError` where no plugin has one, or two have.
    """
    manager = current_session().manager
    records = {record.name: record for record in manager.collect(LayerSpec)}
    found = [full for full in records if full.rpartition(".")[2] == name]
    if len(found) > 1:
        raise AttributeError(
            f"PF.{name} may be {' or '.join(found)}: import it from the one that is meant"
        )
    if not found:
        from nnl_core import parametric_functions

        known = [*parametric_functions.__all__, *(full.rpartition(".")[2] for full in records)]
        raise AttributeError(
            f"PF has no {name!r}, nor has a plugin such a layer{did_you_mean(name, known)}"
        )
    return manager.resolve(records[found[0]])
