"""Which kernel of an operator a backend runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nnl_core.graph.spec import Spec
from nnl_core.session import current_session

if TYPE_CHECKING:
    from nnl_core.graph.operator import Operator

_chosen: dict[tuple[object, ...], Any] = {}


def select_kernel(
    operator: Operator,
    backend: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, object],
) -> Any:
    """Return what a plugin selects (`nnl_select_kernel`), else what is attached, else ``None``.

    ``inputs`` are arrays or specs, or ``None`` for an absent one. For each operator, backend,
    attributes and input specs, a plugin is asked once; before that, the kernels are imported that
    active plugins have for the operator.
    """
    session = current_session()
    version = session.graph_version
    if not version:  # no active plugin has anything to do with graphs
        return operator.kernels.get(backend)
    specs = tuple(None if it is None else Spec(it.shape, it.dtype) for it in inputs)
    key = (version, operator, backend, specs, tuple(attributes.items()))
    if key not in _chosen:
        from nnl_core.hooks import KernelRequest

        session.load_kernels(operator.name, backend)
        request = KernelRequest(operator, backend, specs, attributes)
        selected = session.manager.select_kernel(request)
        _chosen[key] = operator.kernels.get(backend) if selected is None else selected
    return _chosen[key]
