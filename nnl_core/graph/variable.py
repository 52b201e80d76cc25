"""An array with gradient and history: what users compute with."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from nnl_core.errors import ClearedError, GraphError, OperatorError, ShapeError, UnsavedValueError
from nnl_core.graph.array import CLEARED, EMPTY, READY, NdArray
from nnl_core.graph.dtypes import DEFAULT_DTYPE, as_dtype, is_floating, is_real
from nnl_core.graph.spec import Spec
from nnl_core.graph.structure import Structure, topological

if TYPE_CHECKING:
    from nnl_core.graph.node import Node

Operand: TypeAlias = Any  # Variable, array or Python scalar


@functools.cache
def functions() -> ModuleType:
    """Return `nnl_core.functions`, which is written in terms of this module."""
    return importlib.import_module("nnl_core.functions")


class Variable:
    """An array that knows its gradient and the node that computes it.

    Parameters
    ----------
    shape
        length of each axis
    need_grad
        whether `backward` fills the gradient; ``None`` means no for a leaf, and for an output that
        it follows from its inputs
    dtype
        element type; assignments convert to it

    Attributes
    ----------
    is_constant
        whether the elements of a leaf never change
    is_steady
        whether they seldom do, as a parameter's: programs may keep what follows from such leaves
        alone for as long as their versions stay
    """

    __slots__ = (
        "__weakref__",
        "_grad",
        "_index",
        "_need_grad",
        "_persistent",
        "_plans",
        "_storage",
        "is_constant",
        "is_steady",
        "name",
        "parent",
    )

    def __init__(
        self,
        shape: Iterable[int] = (),
        need_grad: bool | None = None,
        dtype: npt.DTypeLike = DEFAULT_DTYPE,
    ) -> None:
        try:
            lengths = tuple(int(length) for length in shape)
        except TypeError:
            found = repr(shape) if isinstance(shape, (int, tuple)) else type(shape).__name__
            raise ShapeError(
                f"a shape is a tuple of whole numbers, such as (2, 3), not {found}; of an array, "
                "Variable.from_numpy_array makes a variable"
            ) from None
        if any(length < 0 for length in lengths):
            raise ShapeError(f"a variable of shape {lengths} has a negative axis")
        element = as_dtype(dtype)
        if not is_real(element):
            raise ShapeError(f"a variable cannot hold {element} elements; give a real dtype")
        self._setup(NdArray(Spec(lengths, element)), need_grad)

    def _setup(self, data: NdArray, need_grad: bool | None = None) -> None:
        self._storage = data  # of a leaf; an output's is its node's
        self._grad: NdArray | None = None
        self._need_grad = need_grad
        self._index = 0
        self._plans: dict[str, Any] = {}
        self.parent: Node | None = None
        self.is_constant = self.is_steady = False
        self._persistent = False
        self.name = ""

    @classmethod
    def _of_node(cls, node: Node, index: int) -> Variable:
        variable = Variable.__new__(Variable)
        variable._setup(node.storages[index])
        variable.parent = node
        variable._index = index
        return variable

    @classmethod
    def from_numpy_array(
        cls, data: npt.ArrayLike, grad: npt.ArrayLike | None = None, need_grad: bool | None = None
    ) -> Self:
        """Make a leaf with a copy of ``data``, keeping its dtype."""
        array = NdArray.from_numpy_array(data)
        variable = cls(array.shape, need_grad, array.dtype)
        variable._storage = array
        if grad is not None:
            variable.g = grad
        return variable

    @classmethod
    def on(cls, storage: NdArray, need_grad: bool | None = None) -> Variable:
        """Make a leaf whose elements are in an existing storage."""
        variable = Variable.__new__(Variable)
        variable._setup(storage, need_grad)
        return variable

    @classmethod
    def constant(cls, value: npt.ArrayLike | Spec) -> Variable:
        """Make a leaf that never changes, so that programs may compute with it beforehand."""
        if isinstance(value, Spec):
            raise UnsavedValueError(
                "a gradient rule uses a value that was not saved; add its name to save= in the "
                "defop that the rule belongs to"
            )
        refuse_variables_in(value)
        variable = Variable.from_numpy_array(value)
        variable.is_constant = True
        return variable

    @property
    def _data(self) -> NdArray:
        return self._storage if self.parent is None else self.parent.storages[self._index]

    # What it is ---------------------------------------------------------------------------------

    @property
    def spec(self) -> Spec:
        """Shape and dtype."""
        return self._data.spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self._data.spec.shape

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        return self._data.spec.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._data.spec.size

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._data.spec.shape)

    @property
    def need_grad(self) -> bool:
        """Whether a gradient reaches this variable."""
        if self._need_grad is not None:
            return self._need_grad
        if self.parent is None or not is_floating(self.spec.dtype):
            return False
        return _follows_need_grad(self.parent)

    @need_grad.setter
    def need_grad(self, value: bool | None) -> None:
        if value != self._need_grad:
            self._need_grad = value
            Structure.version += 1

    @property
    def persistent(self) -> bool:
        """Whether the elements stay when a run releases intermediates."""
        return self._persistent

    @persistent.setter
    def persistent(self, value: bool) -> None:
        if value != self._persistent:
            self._persistent = value
            Structure.version += 1

    @property
    def recompute(self) -> bool:
        """Whether the node that makes this runs again for the backward pass, to save memory."""
        return self.parent is not None and self.parent.recompute

    @recompute.setter
    def recompute(self, value: bool) -> None:
        if self.parent is not None and self.parent.recompute != value:
            self.parent.recompute = value
            Structure.version += 1

    # Elements -----------------------------------------------------------------------------------

    @property
    def data(self) -> NdArray:
        """Storage of the elements."""
        return self._data

    @data.setter
    def data(self, storage: NdArray) -> None:
        if storage.spec != self.spec:
            raise ShapeError(f"cannot put {storage!r} in a variable of {self.spec}")
        if self.parent is None:
            self._storage = storage
        else:
            self.parent.storages[self._index] = storage
        Structure.version += 1

    @property
    def grad(self) -> NdArray:
        """Storage of the gradient; zero until a backward pass fills it."""
        if self._grad is None or self._grad.spec != self.spec:
            self._grad = NdArray(self.spec)
            self._grad.zero()
        return self._grad

    @grad.setter
    def grad(self, storage: NdArray) -> None:
        if storage.spec != self.spec:
            raise ShapeError(f"cannot put {storage!r} as the gradient of a variable of {self.spec}")
        self._grad = storage

    @property
    def d(self) -> npt.NDArray[Any]:
        """The elements as a NumPy view; assigning copies into it, broadcasting.

        Reading an output that was never computed computes it; a leaf that was never assigned is
        zero. Raises `ClearedError` where an earlier run released the memory.
        """
        return self._ready_data().data

    @d.setter
    def d(self, value: npt.ArrayLike) -> None:
        self._data.write(value.d if isinstance(value, Variable) else value)

    @property
    def g(self) -> npt.NDArray[Any]:
        """The gradient as a NumPy view; assigning copies into it, broadcasting."""
        return self.grad.data

    @g.setter
    def g(self, value: npt.ArrayLike) -> None:
        self.grad.write(value.d if isinstance(value, Variable) else value)

    def _ready_data(self) -> NdArray:
        data = self._data
        if data.state is READY:
            return data
        if data.state is EMPTY and self.parent is not None:
            self.forward()
        elif data.state is CLEARED:
            label = self.name or (self.parent.name if self.parent else "variable")
            raise ClearedError(
                f"{label!r} was released by clear_buffer; run forward again, or set "
                "persistent=True on it before the run"
            )
        return self._data

    # Running ------------------------------------------------------------------------------------

    def forward(
        self,
        clear_buffer: bool = False,
        clear_no_need_grad: bool = False,
        function_pre_hook: Callable[[Node], None] | None = None,
        function_post_hook: Callable[[Node], None] | None = None,
    ) -> None:
        """Compute this variable and everything it depends on.

        ``clear_buffer`` releases every intermediate that is not ``persistent``;
        ``clear_no_need_grad`` releases those that `backward` will not read. The hooks are called
        with each node before and after it runs, and switch fusion off.
        """
        from nnl_core.graph.execute import forward

        forward((self,), clear_buffer, clear_no_need_grad, function_pre_hook, function_post_hook)

    def backward(
        self,
        grad: npt.ArrayLike | NdArray | Variable | None = 1,
        clear_buffer: bool = False,
        function_pre_hook: Callable[[Node], None] | None = None,
        function_post_hook: Callable[[Node], None] | None = None,
    ) -> None:
        """Propagate a gradient from this variable to everything it depends on.

        Leaves that need a gradient accumulate into ``g``; intermediates are overwritten, and
        released with ``clear_buffer``. ``grad=None`` starts from the ``g`` already here. Raises
        `StaleValueError` where a needed value was overwritten since `forward`, and
        `NotDifferentiableError` where an operator on the way has no gradient.
        """
        from nnl_core.graph.execute import backward

        backward(self, grad, clear_buffer, function_pre_hook, function_post_hook)

    # Graph --------------------------------------------------------------------------------------

    def apply(self, **attributes: Any) -> Self:
        """Set several of ``need_grad``, ``persistent``, ``name``, ``recompute``, ``d``, ``g``."""
        for name, value in attributes.items():
            if name not in ("need_grad", "persistent", "name", "recompute", "d", "g"):
                raise GraphError(f"a variable has no settable attribute {name!r}")
            setattr(self, name, value)
        return self

    def get_unlinked_variable(self, need_grad: bool | None = None) -> Variable:
        """Return a leaf that shares data and gradient with this variable, without its history."""
        variable = self.on(self._data, self.need_grad if need_grad is None else need_grad)
        variable._grad = self.grad
        variable.name, variable.is_steady = self.name, self.is_steady
        return variable

    @property
    def unlinked(self) -> Variable:
        """Same as `get_unlinked_variable`."""
        return self.get_unlinked_variable()

    def visit(self, function: Callable[[Node], object]) -> None:
        """Call ``function`` with each node this variable depends on, producers first."""
        for node in topological((self,)):
            function(node)

    def visit_check(self, function: Callable[[Node], bool]) -> bool:
        """Whether ``function`` is true for some node this variable depends on."""
        return any(function(node) for node in topological((self,)))

    def rewire_on(self, variable: Variable) -> None:
        """Make this variable what ``variable`` is, so that its consumers use that history.

        Raises `ShapeError` where shapes differ, `GraphError` where it would make a cycle.
        """
        if variable.shape != self.shape:
            raise ShapeError(
                f"cannot rewire a variable of shape {self.shape} on one of {variable.shape}"
            )
        if any(v is self for node in topological((variable,)) for v in node.inputs):
            raise GraphError("cannot rewire a variable on one that depends on it")
        self.parent, self._index = variable.parent, variable._index
        if self.parent is not None:
            self.parent.represent(self)
        self._storage, self._grad = variable._data, variable.grad
        self._need_grad = variable._need_grad
        self.is_constant, self.is_steady = variable.is_constant, variable.is_steady
        Structure.version += 1

    def reset_shape(self, shape: Iterable[int], force: bool = False) -> None:
        """Give a leaf another shape; graphs on it infer theirs again at the next run.

        Without ``force`` the number of elements must stay, and so do the elements; with it the
        elements become zero if the number changes.
        """
        lengths = tuple(int(length) for length in shape)
        if lengths == self.shape:
            return
        if self.parent is not None:
            raise GraphError("only a leaf can be given another shape; reshape makes a new variable")
        spec = self.spec.with_shape(lengths)
        if spec.size != self.size and not force:
            raise ShapeError(
                f"reset_shape from {self.shape} to {lengths} changes the number of elements; pass "
                "force=True to drop the old ones"
            )
        keep = spec.size == self.size and self._data.has_value
        self._storage = NdArray(spec, self._data.read().reshape(lengths) if keep else None)
        self._grad = None
        Structure.version += 1

    def reshape(self, shape: Iterable[int], unlink: bool = False) -> Variable:
        """Return the same elements in another shape; ``unlink`` drops the history."""
        source = self.get_unlinked_variable() if unlink else self
        result: Variable = functions().reshape(source, tuple(shape))
        return result

    def clear_all_graph_links(self) -> None:
        """Drop the history of this variable and of everything it depends on."""
        for node in topological((self,)):
            for output in node.outputs:
                output._storage = output._data
                output.parent = None
        Structure.version += 1

    # Operators ----------------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Variable:
        return _call("add", self, other)

    def __radd__(self, other: Operand) -> Variable:
        return _call("add", other, self)

    def __sub__(self, other: Operand) -> Variable:
        return _call("sub", self, other)

    def __rsub__(self, other: Operand) -> Variable:
        return _call("sub", other, self)

    def __mul__(self, other: Operand) -> Variable:
        return _call("mul", self, other)

    def __rmul__(self, other: Operand) -> Variable:
        return _call("mul", other, self)

    def __truediv__(self, other: Operand) -> Variable:
        return _call("div", self, other)

    def __rtruediv__(self, other: Operand) -> Variable:
        return _call("div", other, self)

    def __pow__(self, other: Operand) -> Variable:
        return _call("pow", self, other)

    def __rpow__(self, other: Operand) -> Variable:
        return _call("pow", other, self)

    def __matmul__(self, other: Operand) -> Variable:
        return _call("matmul", self, other)

    def __rmatmul__(self, other: Operand) -> Variable:
        return _call("matmul", other, self)

    def __neg__(self) -> Variable:
        return _call("neg", self)

    def __pos__(self) -> Variable:
        return self

    def __abs__(self) -> Variable:
        return _call("abs", self)

    def __eq__(self, other: Operand) -> Variable:  # type: ignore[override]  # elementwise, as NumPy
        return _compare("equal", self, other)

    def __ne__(self, other: Operand) -> Variable:  # type: ignore[override]  # elementwise, as NumPy
        return _compare("not_equal", self, other)

    def __lt__(self, other: Operand) -> Variable:
        return _compare("less", self, other)

    def __le__(self, other: Operand) -> Variable:
        return _compare("less_equal", self, other)

    def __gt__(self, other: Operand) -> Variable:
        return _compare("greater", self, other)

    def __ge__(self, other: Operand) -> Variable:
        return _compare("greater_equal", self, other)

    def __getitem__(self, key: Any) -> Variable:
        return _call("getitem", self, key)

    # Python -------------------------------------------------------------------------------------

    __hash__ = object.__hash__
    __array_ufunc__ = None  # so that array + variable asks the variable

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("an array of a variable is a copy; its elements in place are in .d")
        return np.array(self.d, dtype)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle holds: elements and gradient, no history."""
        if self.parent is not None:
            raise GraphError(
                f"the output {self.name or self.parent.name!r} of a graph cannot be copied or "
                "pickled; take its .unlinked variable, or the elements in .d"
            )
        data, grad = self._storage, self._grad
        return {
            "spec": self.spec,
            "data": data.read().copy() if data.has_value else None,
            "grad": None if grad is None or not grad.has_value else grad.read().copy(),
            "need_grad": self._need_grad,
            "is_constant": self.is_constant,
            "persistent": self._persistent,
            "name": self.name,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        spec: Spec = state["spec"]
        self._setup(NdArray(spec, state["data"]), state["need_grad"])
        if state["grad"] is not None:
            self._grad = NdArray(spec, state["grad"])
        self.is_constant, self.name = state["is_constant"], state["name"]
        self._persistent = state["persistent"]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-d variable has no length")
        return self.shape[0]

    def __iter__(self) -> Any:
        return iter(functions().split(self) if len(self) else ())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise GraphError(
                f"the truth of a variable of shape {self.shape} is ambiguous; reduce it first"
            )
        return bool(self.d.reshape(())[()])

    def __float__(self) -> float:
        if self.size != 1:
            raise ShapeError(f"a variable of shape {self.shape} is not one number")
        return float(self.d.reshape(())[()])

    def __repr__(self) -> str:
        label = f" {self.name!r}" if self.name else ""
        source = f" from {self.parent.name}" if self.parent is not None else ""
        return f"<Variable{label} {self.shape} {self.dtype}{source}>"


def refuse_variables_in(value: object) -> None:
    """Raise `OperatorError` for a list of variables: an array of it would have no history."""
    if isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, Variable):
                raise OperatorError(
                    f"a {type(value).__name__} of variables is no input; give them one by one, as "
                    "in F.concatenate(a, b), or make one variable of them with F.stack(a, b)"
                )
            refuse_variables_in(item)


def _call(name: str, *arguments: Operand) -> Variable:
    result: Variable = getattr(functions(), name)(*arguments)
    return result


def _compare(name: str, left: Variable, right: Operand) -> Variable:
    if isinstance(right, (Variable, np.ndarray, np.generic, bool, int, float, list, tuple)):
        return _call(name, left, right)
    result: Variable = NotImplemented
    return result


def _follows_need_grad(node: Node) -> bool:
    """Whether a gradient flows through a node, looking back without recursion."""
    seen = {node}
    stack = [node]
    while stack:
        current = stack.pop()
        if current.detached:
            continue
        for variable in current.inputs:
            if variable is None or variable._need_grad is False:
                continue
            if variable._need_grad:
                return True
            parent = variable.parent
            if parent is not None and parent not in seen and is_floating(variable.dtype):
                seen.add(parent)
                stack.append(parent)
    return False
