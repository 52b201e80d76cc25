"""Forward and backward over variables: plans, their cache, and what they leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nnl_core.errors import StaleValueError
from nnl_core.graph.array import NdArray
from nnl_core.graph.autodiff import Key, flowing_nodes, key_of
from nnl_core.graph.backend import Backend, current_backend
from nnl_core.graph.backward import BackwardPlan, Read, check_wanted, plan_backward, reads_of
from nnl_core.graph.dispatch import run_node
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.lower import lower
from nnl_core.graph.node import Node
from nnl_core.graph.observe import NodeHook, backward_observer, forward_observer
from nnl_core.graph.program import BoundProgram, Observer
from nnl_core.graph.structure import Structure, topological
from nnl_core.graph.variable import Variable
from nnl_core.session import current_session

if TYPE_CHECKING:
    import numpy.typing as npt


class ForwardPlan(BoundProgram):
    """How a set of variables is computed, and what is kept of the way there.

    ``keep`` is ``"all"`` intermediates, those ``"gradients"`` will read, or only what is
    ``"asked"``; persistent variables stay in any case.
    """

    is_usable = True  # what it reads it computes; a backward plan depends on what others left

    def __init__(
        self, outputs: Sequence[Variable], backend: Backend, keep: str, *, optimize: bool
    ) -> None:
        self.nodes = topological(outputs)
        for node in self.nodes:
            node.refresh_specs()
        asked = {(v.parent, v._index) for v in outputs}
        saved = _saved_storages(self.nodes) if keep == "gradients" else set()
        kept: list[tuple[Variable, NdArray]] = []
        self.released: list[NdArray] = []
        for node in self.nodes:
            for index, storage in enumerate(node.storages):
                variable = node.output(index)
                if (
                    (node, index) in asked
                    or variable.persistent
                    or id(storage) in saved
                    or (keep == "all" and not node.recompute)
                ):
                    kept.append((variable, storage))
                else:
                    self.released.append(storage)
        self._noting: Sequence[Node] = self.nodes
        self._is_detached = all(node.detached for node in self.nodes)
        super().__init__(lower(kept), backend, optimize=optimize)

    def run(self, observer: Observer | None = None) -> None:
        """Compute, note which writes were read, and release what is not kept."""
        super().run(observer)
        for storage in self.released:
            storage.clear()  # even what is clear already: it stands for this run's value now
        for node in self._noting:
            node.note_versions(self.lowered.overwritten.get(node, ()))
        if self._is_detached:
            self._noting = ()  # no gradient will ever ask: once says that the nodes have run


def _saved_storages(order: list[Node]) -> set[int]:
    """Return ids of the storages that gradient rules will read."""
    saved: set[int] = set()
    for node in flowing_nodes(order, None):
        if node.recompute:
            continue
        operator = node.operator
        for position, variable in enumerate(node.inputs):
            if variable is not None and operator.input_name(position) in operator.save:
                saved.add(id(variable._data))
        for index, name in enumerate(operator.outputs):
            if name in operator.save:
                saved.add(id(node.storages[index]))
    return saved


def forward(
    outputs: Sequence[Variable],
    clear_buffer: bool = False,
    clear_no_need_grad: bool = False,
    pre_hook: NodeHook | None = None,
    post_hook: NodeHook | None = None,
) -> None:
    """Compute variables; see `Variable.forward`."""
    computed = [variable for variable in outputs if variable.parent is not None]
    if not computed:
        return
    backend = current_backend()
    keep = "asked" if clear_buffer else "gradients" if clear_no_need_grad else "all"
    observe = forward_observer(pre_hook, post_hook)
    plan: ForwardPlan = _cached_plan(
        computed[0],
        ("forward", keep, observe is None, backend, *map(key_of, computed[1:])),
        lambda: ForwardPlan(computed, backend, keep, optimize=observe is None),
    )
    plan.run(None if observe is None else observe(plan.lowered))


def forward_all(
    variables: Sequence[Variable], clear_buffer: bool = False, clear_no_need_grad: bool = False
) -> None:
    """Compute several variables in one pass, what they share only once.

    The options are those of `Variable.forward`.
    """
    forward(tuple(variables), clear_buffer, clear_no_need_grad)


def _cached_plan(root: Variable, key: Any, make: Callable[[], Any]) -> Any:
    version = (Structure.version, current_session().graph_version)
    known = root._plans.get(key)
    if known is None or known[0] != version or not known[1].is_usable:
        known = root._plans[key] = (version, make())
    return known[1]


def _check_versions(reads: Iterable[Read]) -> None:
    """Raise where a value that is about to be read was overwritten since the forward pass."""
    for node, position in reads:
        if node.input_versions is None:
            continue  # it has not run: all it needs is computed now
        if position < 0:
            variable: Variable | None = node.output(len(node.storages) + position)
            version = node.output_versions[position]
        else:
            variable, version = node.inputs[position], node.input_versions[position]
        assert variable is not None
        if version != variable._data.version:
            origin = variable.parent.name if variable.parent else f"of shape {variable.shape}"
            raise StaleValueError(
                f"variable {variable.name or origin!r} was written after the forward pass of "
                f"{node.name!r}, whose gradient needs the value it had; call forward again "
                "before backward"
            )


def run_gradients(
    outputs: Sequence[Variable], wanted: set[Key], gradients: Sequence[Variable]
) -> None:
    """Run the nodes of gradients in a dynamic graph, on what its nodes computed."""
    missing = [
        node
        for node in topological(gradients)
        if not all(storage.has_value for storage in node.storages)
    ]
    given = {id(v._data) for node in missing for v in node.inputs if v is not None}
    _check_versions(reads_of(flowing_nodes(topological(outputs), wanted), set(), given))
    for node in missing:
        run_node(node)


def backward(
    root: Variable,
    grad: npt.ArrayLike | NdArray | Variable | None = 1,
    clear_buffer: bool = False,
    pre_hook: NodeHook | None = None,
    post_hook: NodeHook | None = None,
) -> None:
    """Propagate gradients; see `Variable.backward`."""
    root._ready_data()
    if root.parent is not None and not is_floating(root.dtype):
        check_wanted(root, topological((root,)))
        return
    if grad is not None:
        root.g = grad.read() if isinstance(grad, NdArray) else _value(grad, root.dtype)
    if root.parent is None:
        return
    backend = current_backend()
    observe = backward_observer(pre_hook, post_hook)
    plan: BackwardPlan = _cached_plan(
        root,
        ("backward", clear_buffer, observe is None, backend),
        lambda: plan_backward(
            root, backend, keep_intermediates=not clear_buffer, optimize=observe is None
        ),
    )
    _check_versions(plan.reads)
    plan.seed.write(root.grad.read())
    if observe is None:
        plan.run()
    else:
        observer, finish = observe(plan.lowered, plan.flow)
        plan.run(observer)
        finish()
    if clear_buffer:
        _release_intermediates(root)


def _value(grad: npt.ArrayLike | Variable, dtype: np.dtype) -> npt.ArrayLike:
    if isinstance(grad, int) and -256 <= grad <= 256:
        return np.asarray(grad, dtype)  # exact in every floating dtype: no need to look
    return grad.d if isinstance(grad, Variable) else np.asarray(grad)


def _release_intermediates(root: Variable) -> None:
    for node in topological((root,)):
        for variable in node.outputs:
            if variable is not root and not variable.persistent:
                variable._data.clear()
