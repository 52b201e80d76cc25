"""What an operation is: one object with its meaning, rules and kernels attached."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args, overload

import numpy as np
import numpy.typing as npt

from nnl_core.errors import NotDifferentiableError, OperatorError, ShapeError
from nnl_core.graph.calls import Call
from nnl_core.graph.dispatch import apply
from nnl_core.graph.dtypes import is_half, widened
from nnl_core.graph.spec import Spec, elementwise_spec

Array: TypeAlias = npt.NDArray[Any]
Rule = TypeVar("Rule", bound=Callable[..., Any])
Precision: TypeAlias = Literal["operands", "half", "full"]


@dataclass(frozen=True)
class KernelSource:
    """Source text of a kernel, as data: importing it needs no compiler and no device.

    ``text`` is C or CUDA, ``entry`` the function to call. ``options`` are for the backend that
    compiles it (launch shape, shared memory, flags), documented there.
    """

    text: str
    entry: str
    options: dict[str, object] = field(default_factory=dict)


KernelRule: TypeAlias = Callable[
    [Sequence[Spec | None], Sequence[Spec], Mapping[str, Any]], KernelSource | None
]
"""Makes the text for one kind of call: of input specs, output specs and attributes. It answers
``None`` for a call that NumPy is to compute."""
Kernel: TypeAlias = KernelSource | Callable[..., Any]


class Sample:
    """One call of an operator, for `check_operator`: input arrays and attributes."""

    def __init__(self, *inputs: Any, **attributes: Any) -> None:
        self.inputs = tuple(None if value is None else np.asarray(value) for value in inputs)
        self.attributes = attributes

    def __repr__(self) -> str:
        shown = [
            "None" if value is None else f"{value.dtype}{list(value.shape)}"
            for value in self.inputs
        ]
        shown += [f"{name}={value!r}" for name, value in self.attributes.items()]
        return f"Sample({', '.join(shown)})"


class Parameters(NamedTuple):
    """How a reference function is called."""

    inputs: tuple[str, ...]
    optional: frozenset[str]
    variadic: str | None
    attributes: dict[str, Any]


class Operator:
    """Definition of an operation: NumPy reference, shape rule, gradient, kernels, samples.

    Made by `defop`. Calling it with variables adds a node to the graph and returns the node's
    output variable, or a tuple of them.
    """

    def __init__(
        self,
        name: str,
        reference: Callable[..., Any],
        *,
        outputs: tuple[str, ...],
        save: tuple[str, ...],
        view: bool,
        precision: Precision,
    ) -> None:
        self.name = name
        self.reference = reference
        self.outputs = outputs
        self.parameters = _parse(name, reference)
        self.module = reference.__module__
        self.view = view
        self.precision = precision
        self.expression: str | None = None
        self.kernels: dict[str, Kernel] = {}
        self.parts: dict[int, Operator] = {}
        self.surrogate: bool | Callable[..., bool] = False
        self.calls: dict[tuple[object, ...], Call] = {}
        """calls made, by specs and attributes; forgotten with a new rule or kernel"""
        self.__doc__ = reference.__doc__
        self.__name__ = name.rpartition("::")[2]
        known = {*self.parameters.inputs, *outputs}
        if self.parameters.variadic:
            known.add(self.parameters.variadic)
        for saved in save:
            if saved not in known:
                raise OperatorError(
                    f"operator {name!r}: save names {saved!r}, which is neither an input nor an "
                    f"output; choose from {sorted(known)}"
                )
        self.save = frozenset(save)
        self._infer: Callable[..., Any] | None = None
        self._vjp: Callable[..., Any] | None = None
        self._samples: Callable[[np.random.Generator], Iterator[Sample]] | None = None
        self._multiply_adds: Callable[..., int] | None = None

    # Attaching rules ---------------------------------------------------------------------------

    def infer(self, rule: Rule) -> Rule:
        """Attach the shape rule ``rule(*specs, **attributes) -> Spec | tuple[Spec, ...]``.

        It raises `ShapeError` with a sentence on what does not fit; the operator's name and the
        shapes are added to it. An absent optional input is ``None``.
        """
        self._infer = rule
        self.calls.clear()
        return rule

    @overload
    def vjp(self, rule: Rule) -> Rule: ...
    @overload
    def vjp(self, *, surrogate: bool | Callable[..., bool]) -> Callable[[Rule], Rule]: ...
    def vjp(
        self, rule: Rule | None = None, *, surrogate: bool | Callable[..., bool] = False
    ) -> Any:
        """Attach the gradient ``rule(g, y, *inputs, **attributes) -> tuple``.

        It is written with NNL functions, and returns one variable or ``None`` per input. With
        several outputs, ``g`` and ``y`` are tuples, and ``g`` holds ``None`` for an output that
        nobody used. Inputs and outputs that ``save`` does not name arrive as their `Spec`.
        ``surrogate=True`` says that it is deliberately not the derivative; a function
        ``surrogate(**attributes) -> bool`` says of which calls.
        """

        def attach(given: Rule) -> Rule:
            self._vjp = given
            self.calls.clear()
            self.surrogate = surrogate
            return given

        return attach if rule is None else attach(rule)

    def elementwise(self, expression: str) -> None:
        """Give one C expression in the inputs' and attributes' names, in float arithmetic.

        Backends that compile C or CUDA make a kernel of it, and any may fuse it with its
        neighbours. Where no `infer` is attached, shapes broadcast and dtypes promote.
        """
        self.expression = expression
        self.calls.clear()

    def kernel(self, backend: str, kernel: Kernel) -> None:
        """Attach a kernel for a backend: source text, or for ``"numpy"`` a function.

        Where the text depends on attributes or shapes, a function ``rule(input specs, output
        specs, attributes)`` makes it, and answers ``None`` for calls that it has no text for.

        A NumPy kernel is called as ``kernel(*arrays, out=arrays_or_None, **attributes)``: it
        fills and returns ``out`` (one array, or a tuple of them for several outputs) where it
        is given, else returns fresh arrays.
        """
        if backend in self.kernels:
            raise OperatorError(f"operator {self.name!r} has a {backend!r} kernel already")
        self.kernels[backend] = kernel
        self.calls.clear()

    def part(self, output: str, operator: Operator) -> None:
        """Name an operator that computes one output by itself, of the same inputs and attributes.

        Programs call it where nobody reads the other outputs.
        """
        if output not in self.outputs:
            raise OperatorError(
                f"operator {self.name!r} has no output {output!r}; it has {', '.join(self.outputs)}"
            )
        self.parts[self.outputs.index(output)] = operator

    def samples(self, rule: Callable[[np.random.Generator], Iterator[Sample]]) -> Any:
        """Attach the generator of calls that every kernel and rule is checked on."""
        self._samples = rule
        return rule

    def multiply_adds(self, rule: Callable[..., int]) -> Callable[..., int]:
        """Attach the arithmetic cost: ``rule(*specs, **attributes) -> int`` multiply-adds."""
        self._multiply_adds = rule
        return rule

    # Using rules -------------------------------------------------------------------------------

    @property
    def is_elementwise(self) -> bool:
        """Whether output elements depend on the input elements at the same place alone."""
        return self.expression is not None

    @property
    def has_vjp(self) -> bool:
        """Whether a gradient rule is attached."""
        return self._vjp is not None

    def is_surrogate(self, attributes: dict[str, Any]) -> bool:
        """Whether the gradient of a call is deliberately not the derivative."""
        return self.surrogate if isinstance(self.surrogate, bool) else self.surrogate(**attributes)

    @property
    def has_samples(self) -> bool:
        """Whether samples are attached."""
        return self._samples is not None

    def input_name(self, position: int) -> str | None:
        """Return the name of the input at a position."""
        inputs = self.parameters.inputs
        return inputs[position] if position < len(inputs) else self.parameters.variadic

    def output_name(self, index: int) -> str:
        """Return the name of the output at a position."""
        return self.outputs[min(index, len(self.outputs) - 1)]

    def infer_specs(
        self, specs: Sequence[Spec | None], attributes: dict[str, Any]
    ) -> tuple[Spec, ...]:
        """Return the outputs' specs; raise `ShapeError` naming operator and shapes."""
        try:
            if self._infer is not None:
                result = self._infer(*specs, **attributes)
            elif self.expression is not None:
                result = elementwise_spec(*(spec for spec in specs if spec is not None))
            else:
                raise OperatorError(
                    f"operator {self.name!r} has no infer rule; attach one with "
                    f"@{self.__name__}.infer"
                )
        except ShapeError as error:
            shapes = ", ".join(str(spec.shape) for spec in specs if spec is not None)
            raise ShapeError(f"{error}: input shapes {shapes}") from None
        return (result,) if isinstance(result, Spec) else tuple(result)

    def evaluate(
        self, inputs: Sequence[Array | None], attributes: dict[str, Any]
    ) -> tuple[Array, ...]:
        """Return the outputs by the reference: what a call means.

        Of half precision that is the reference of ``float32`` values, rounded to what `infer` says.
        """
        result = self.reference(*widened(inputs), **attributes)
        results = tuple(map(np.asarray, result if isinstance(result, tuple) else (result,)))
        if any(array is not None and is_half(array.dtype) for array in inputs):
            given = [None if array is None else Spec.of(array) for array in inputs]
            specs = self.infer_specs(given, attributes)
            pairs = zip(results, specs, strict=True)
            results = tuple(array.astype(spec.dtype, copy=False) for array, spec in pairs)
        return results

    def call_vjp(
        self, gradients: Any, outputs: Any, inputs: Sequence[Any], attributes: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Call the gradient rule and check the form of its answer."""
        if self._vjp is None:
            raise NotDifferentiableError(
                f"operator {self.name!r} has no gradient; stop the gradient before it (need_grad="
                "False on its input or no_grad()), or attach a rule with vjp"
            )
        result = self._vjp(gradients, outputs, *inputs, **attributes)
        if not isinstance(result, tuple) or len(result) != len(inputs):
            raise OperatorError(
                f"the vjp of {self.name!r} must return a tuple of {len(inputs)} gradients, one per "
                f"input, and returned {type(result).__name__}"
            )
        return result

    def iterate_samples(self, generator: np.random.Generator) -> Iterator[Sample]:
        """Yield the attached samples."""
        if self._samples is None:
            raise OperatorError(
                f"operator {self.name!r} has no samples; attach them with @{self.__name__}.samples"
            )
        return self._samples(generator)

    def count_multiply_adds(
        self, specs: Sequence[Spec | None], outputs: Sequence[Spec], attributes: dict[str, Any]
    ) -> int:
        """Return the arithmetic cost of one call, in multiply-adds.

        Without a rule, an elementwise operator counts one per output element, others none.
        """
        if self._multiply_adds is not None:
            return int(self._multiply_adds(*specs, **attributes))
        return outputs[0].size if self.is_elementwise else 0

    def bind_attributes(self, given: dict[str, Any]) -> dict[str, Any]:
        """Complete attributes with defaults; raise `OperatorError` for unknown or missing."""
        declared = self.parameters.attributes
        if not declared and not given:
            return {}
        for name in given:
            if name not in declared:
                raise OperatorError(
                    f"operator {self.name!r} has no attribute {name!r}; it takes "
                    f"{sorted(declared) or 'none'}"
                )
        bound = {**declared, **given}
        for name, value in bound.items():
            if value is inspect.Parameter.empty:
                raise OperatorError(f"operator {self.name!r} needs attribute {name!r}")
            if isinstance(value, list):
                bound[name] = tuple(value)
        return bound

    def __call__(self, *inputs: Any, **given: Any) -> Any:
        """Add a node and return its output variable, or the tuple of them.

        Attributes are given by name; so may inputs be.
        """
        if given:
            others = self.parameters.inputs[len(inputs) :]
            if not given.keys().isdisjoint(others):
                inputs += tuple(given.pop(name, None) for name in others)
        return apply(self, inputs, given)

    def __repr__(self) -> str:
        return f"<Operator {self.name}>"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return lookup, (self.name,)


def _parse(name: str, reference: Callable[..., Any]) -> Parameters:
    inputs: list[str] = []
    optional: set[str] = set()
    variadic = None
    attributes: dict[str, Any] = {}
    for parameter in inspect.signature(reference).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            variadic = parameter.name
        elif parameter.kind is parameter.KEYWORD_ONLY:
            attributes[parameter.name] = parameter.default
        elif parameter.kind is parameter.VAR_KEYWORD:
            raise OperatorError(f"operator {name!r}: name its attributes instead of taking **")
        else:
            inputs.append(parameter.name)
            if parameter.default is None:
                optional.add(parameter.name)
    return Parameters(tuple(inputs), frozenset(optional), variadic, attributes)


_registry: dict[str, Operator] = {}


def defop(
    name: str,
    *,
    save: tuple[str, ...] = (),
    outputs: tuple[str, ...] = ("y",),
    view: bool = False,
    precision: Precision = "operands",
) -> Callable[[Callable[..., Any]], Operator]:
    """Define an operator named ``namespace::name`` from its NumPy reference.

    The reference's positional parameters are the inputs (``= None`` marks an optional one,
    ``*xs`` any number), its keyword-only parameters the attributes, which must be hashable. It
    returns fresh arrays, one per name in ``outputs``, and never writes to its inputs. It is given
    ``float32`` for inputs of half precision.

    Parameters
    ----------
    save
        names of the inputs and outputs whose values the gradient rule reads
    outputs
        names of the results; ``("*ys",)`` is any number of them, as many as `infer` gives specs
    view
        the output's elements are the first input's, seen through another shape or strides
        (so that a compiled program need not copy them)
    precision
        what `mixed_precision` casts floating inputs to: ``"half"`` for products of matrices and
        the like, ``"full"`` (``float32``) for sums, logarithms and whatever needs digits or
        range; ``"operands"`` leaves them as they come

    Raises `OperatorError` where the name is taken or has no namespace.
    """
    namespace, _, short = name.partition("::")
    if not namespace or not short.isidentifier():
        raise OperatorError(f"operator name {name!r} must read 'namespace::identifier'")

    def define(reference: Callable[..., Any]) -> Operator:
        known = _registry.get(name)
        if known is not None and not _is_reload(known, reference):
            raise OperatorError(
                f"operator {name!r} is defined twice: in {known.module} and in "
                f"{reference.__module__}; give one of them another name"
            )
        if precision not in get_args(Precision):
            raise OperatorError(
                f"operator {name!r}: precision {precision!r} is none of {get_args(Precision)}"
            )
        operator = Operator(
            name, reference, outputs=outputs, save=save, view=view, precision=precision
        )
        _registry[name] = operator
        return operator

    return define


def _is_reload(known: Operator, reference: Callable[..., Any]) -> bool:
    """Tell a module that is imported again (after a failed import) from a second definition."""
    return known.module == reference.__module__ and (
        known.module not in sys.modules
        or getattr(known.reference, "__code__", None) is None
        or known.reference.__code__.co_firstlineno == reference.__code__.co_firstlineno
    )


def lookup(name: str) -> Operator:
    """Return the operator of that full name, importing the set that defines it if need be.

    Raises `OperatorError` for a name that no active or installed operator set defines.
    """
    operator = _registry.get(name)
    if operator is None:
        from nnl_core.hooks.loading import did_you_mean
        from nnl_core.session import current_session

        namespace = name.partition("::")[0]
        current_session().load_operators(namespace)
        operator = _registry.get(name)
        if operator is None:
            known = [known for known in sorted(_registry) if known.startswith(f"{namespace}::")]
            advice = did_you_mean(name, known) if known else f"; no plugin defines {namespace}::"
            raise OperatorError(f"no operator is named {name!r}{advice}")
    return operator


def registered(namespace: str | None = None) -> list[Operator]:
    """Return the operators defined so far (of one namespace), sorted by name."""
    return [
        operator
        for name, operator in sorted(_registry.items())
        if namespace is None or name.startswith(namespace + "::")
    ]
