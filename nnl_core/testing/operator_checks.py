"""One checker for all that an operator promises: `check_operator`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import numpy as np

from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.backend import Backend
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.operator import Array, Operator, Sample, lookup, registered
from nnl_core.graph.passes import fuse_elementwise
from nnl_core.graph.spec import Spec
from nnl_core.session import current_session
from nnl_core.testing.arrays import (
    LAYOUTS,
    Values,
    cast_floating,
    close,
    copies,
    describe,
    difference,
    garbage,
    integer_variants,
    repeated,
    same_bits,
    variants,
)
from nnl_core.testing.derivatives import check_derivatives
from nnl_core.testing.expressions import ExpressionCase, c_compiler, compile_expressions

__all__ = ["OperatorCheckError", "check_operator", "operators"]


class OperatorCheckError(AssertionError):
    """An operator breaks a promise; the message names operator, sample and check."""


def operators(namespace: str) -> list[Operator]:
    """Return the operators of a namespace, sorted by name, importing the set that defines it.

    Raises `OperatorError` where nothing defines one.
    """
    import_module("nnl_core.functions")
    current_session().load_operators(namespace)
    found = registered(namespace)
    if not found:
        raise OperatorError(f"no operator set defines the namespace {namespace!r}")
    return found


def check_operator(
    operator: Operator | str,
    backend: Backend | str = "numpy",
    *,
    seed: int = 0,
    tolerance: float = 1.0,
    samples: Iterable[Sample] | None = None,
) -> None:
    """Hold an operator to its promises on each of its samples.

    Checked are: inputs stay as they were; outputs share no memory with them; `infer` says what
    comes out, in every floating dtype, and in every integer dtype that it takes and that holds a
    sample's integers; memory layout changes nothing; narrow dtypes agree with ``float64``; the
    gradient, and the gradient's gradient, agree with central differences; the elementwise
    expression agrees (where there is a C compiler); each way in which ``backend`` runs the operator
    (at once, compiled, in place, in a fused group) agrees; all of it gives the same bits twice.
    ``tolerance`` multiplies all allowed differences, for operators whose results are
    ill-conditioned. ``samples`` take the place of the operator's own.

    Raises `OperatorCheckError`.
    """
    import_module("nnl_core.functions")  # gradients are written in it
    checked = lookup(operator) if isinstance(operator, str) else operator
    running = current_session().backend(backend) if isinstance(backend, str) else backend
    if samples is None:
        if not checked.has_samples:
            raise OperatorCheckError(f"{checked.name}: it has no samples; attach them with samples")
        samples = checked.iterate_samples(np.random.default_rng(seed))
    samples = list(samples)
    if not samples:
        raise OperatorCheckError(f"{checked.name}: its samples rule yields none")
    checks = [
        _SampleCheck(checked, running, index, sample, seed, tolerance)
        for index, sample in enumerate(samples)
    ]
    _compile_together(checks, running)
    for check in checks:
        check.run()
    if checked.expression is not None:
        _check_expression(checked, samples, tolerance)


def _compile_together(checks: Sequence[_SampleCheck], backend: Backend) -> None:
    """Compile all that will be run in one graph first: one start of a compiler, where there is one.

    What is wrong with any of it is said where it is checked.
    """
    whole = Graph()
    with suppress(Exception):
        for check in checks:
            for inputs in variants(check.inputs):
                for _, graph in check.graphs(inputs, check.specs(inputs)):
                    _append(whole, graph)
        backend.compile(whole)


def _append(whole: Graph, part: Graph) -> None:
    """Add a graph beside those that a graph holds."""
    first = len(whole.specs)

    def moved(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(v if v == ABSENT else v + first for v in values)

    def instruction(one: Instruction) -> Instruction:
        members = tuple(map(instruction, one.members))
        inputs, outputs = moved(one.inputs), moved(one.outputs)
        return Instruction(one.operator, inputs, outputs, one.attributes, members=members)

    whole.specs += part.specs
    whole.aliases += [len(whole.aliases) + position for position in range(len(part.leaves))]
    whole.leaves += moved(part.leaves)
    whole.constants |= {v + first: array for v, array in part.constants.items()}
    whole.instructions += map(instruction, part.instructions)
    whole.outputs += moved(part.outputs)


class _SampleCheck:
    """All checks of one operator on one sample and one backend."""

    def __init__(
        self,
        operator: Operator,
        backend: Backend,
        index: int,
        sample: Sample,
        seed: int,
        tolerance: float,
    ) -> None:
        self.operator, self.backend, self.sample = operator, backend, sample
        absent = operator.parameters.inputs[len(sample.inputs) :]
        self.inputs: Values = (*sample.inputs, *(None for _ in absent))
        self.label = f"{operator.name}, sample {index} {sample!r}"
        self.attributes = operator.bind_attributes(sample.attributes)
        self.seed, self.tolerance = [seed, index], tolerance

    def run(self) -> None:
        """Check everything."""
        try:
            hash(tuple(self.attributes.values()))
        except TypeError:
            self.fail("attributes", f"they must be hashable: {self.attributes}")
        for inputs in variants(self.inputs):
            expected = self.check_reference(inputs)
            self.check_layouts(inputs, expected)
            self.check_backend(inputs, expected)
        for inputs in integer_variants(self.inputs):
            self.check_integers(inputs)
        check_derivatives(
            self.operator,
            self.inputs,
            self.attributes,
            np.random.default_rng(self.seed),
            self.fail,
            self.tolerance,
        )

    def fail(self, check: str, text: str) -> NoReturn:
        """Raise, naming operator, sample and check."""
        raise OperatorCheckError(f"{self.label}: {check}: {text}")

    # The reference -----------------------------------------------------------------------------

    def reference(self, inputs: Values, what: str = "the reference") -> tuple[Array, ...]:
        """Run the reference on copies, watching over the inputs and the outputs' memory."""
        return self.guarded(
            what,
            inputs,
            lambda *arrays: self.operator.evaluate(arrays, self.attributes),
        )

    def guarded(self, what: str, inputs: Values, function: Callable[..., Any]) -> tuple[Array, ...]:
        """Call a function; fail where it raises, writes to its inputs or returns their memory."""
        before = [None if a is None else a.copy() for a in inputs]
        try:
            with np.errstate(all="ignore"):
                result = function(*inputs)
        except Exception as error:
            self.fail("running", f"{what} raises {type(error).__name__}: {error}")
        results = result if isinstance(result, tuple) else (result,)
        names = self.operator.outputs
        if len(results) != len(names) and not names[0].startswith("*"):
            self.fail("outputs", f"{what} returns {len(results)}, not {names}")
        for position, (array, old) in enumerate(zip(inputs, before, strict=True)):
            if array is None or old is None:
                continue
            if not same_bits(array, old):
                self.fail("inputs", f"{what} writes to input {self.name(position)}")
            if any(np.may_share_memory(array, one) for one in results):
                self.fail("aliasing", f"an output of {what} shares input {self.name(position)}")
        return tuple(np.asarray(one) for one in results)

    def check_reference(self, inputs: Values) -> tuple[Array, ...]:
        """Check the reference in these dtypes and return what all else is compared with.

        That is the reference of the same values in ``float64``, rounded to the outputs' dtypes.
        """
        results = self.reference(copies(inputs))
        specs = self.specs(inputs)
        for name, result, spec in zip(self.output_names(results), results, specs, strict=True):
            if Spec.of(result) != spec:
                self.fail(
                    "infer",
                    f"it says {spec.dtype}{spec.shape} for output {name!r}, which is "
                    f"{result.dtype}{result.shape}, with {describe(inputs)}",
                )
        for first, second in zip(results, self.reference(copies(inputs)), strict=True):
            if not same_bits(first, second):
                self.fail("determinism", f"the reference gives {difference(second, first)}")
        wide = self.reference(cast_floating(inputs, np.float64), "the float64 reference")
        with np.errstate(all="ignore"):
            expected = tuple(one.astype(spec.dtype) for one, spec in zip(wide, specs, strict=True))
        self.compare(f"precision in {describe(inputs)}", results, expected)
        for index, part in self.operator.parts.items():
            absent = [None] * (len(part.parameters.inputs) - len(inputs))
            with np.errstate(all="ignore"):
                attributes = part.bind_attributes(self.attributes)
                alone = part.evaluate([*copies(inputs), *absent], attributes)
            if len(alone) != 1 or not same_bits(alone[0], results[index]):
                self.fail("parts", f"{part.name} does not compute output {index} to the same bits")
        return expected

    def specs(self, inputs: Values) -> tuple[Spec, ...]:
        """Return what `infer` says."""
        given = [None if a is None else Spec.of(a) for a in inputs]
        try:
            specs = self.operator.infer_specs(given, self.attributes)
        except Exception as error:
            self.fail("infer", f"it raises {type(error).__name__}: {error}")
        names = self.operator.outputs
        if len(specs) != len(names) and not names[0].startswith("*"):
            self.fail("infer", f"it gives {len(specs)} specs, not {names}")
        return specs

    def output_names(self, results: Sequence[object]) -> tuple[str, ...]:
        """Return a name for each result."""
        names = self.operator.outputs
        return names if len(names) == len(results) else tuple(names[0] for _ in results)

    def compare(self, check: str, results: Sequence[Array], expected: Sequence[Array]) -> None:
        """Fail where results are further from the expected ones than their dtype allows."""
        for name, result, target in zip(self.output_names(results), results, expected, strict=True):
            if result.shape != target.shape or result.dtype != target.dtype:
                self.fail(
                    check,
                    f"output {name!r} is {result.dtype}{result.shape}, not "
                    f"{target.dtype}{target.shape}",
                )
            if not close(result, target, self.tolerance):
                self.fail(check, f"output {name!r} is {difference(result, target)}")

    # Memory layouts ----------------------------------------------------------------------------

    def check_layouts(self, inputs: Values, expected: Sequence[Array]) -> None:
        """Run on transposed, reversed, sliced and repeated memory."""
        runs: dict[str, Callable[..., Any]] = {}
        runs["the reference"] = lambda *a: self.operator.evaluate(a, self.attributes)
        if self.backend.on_host:
            specs = self.specs(inputs)
            runs[f"backend {self.backend.name!r}"] = lambda *a: self.backend.run(
                self.operator, a, self.attributes, specs
            )
        for layout, arrange in LAYOUTS.items():
            arranged = [a if a is None or not a.ndim else arrange(a) for a in copies(inputs)]
            for what, function in runs.items():
                results = self.guarded(f"{what} on {layout} inputs", arranged, function)
                self.compare(f"{layout} inputs, {what}", results, expected)
        spread = [repeated(a) if a is not None and is_floating(a.dtype) else a for a in inputs]
        plain = [None if a is None else np.array(a, order="C") for a in spread]
        try:
            with np.errstate(all="ignore"):
                self.operator.evaluate(plain, self.attributes)
        except Exception:
            return  # the values must differ along the axis that was repeated
        target = self.reference(plain)
        for what, function in runs.items():
            results = self.guarded(f"{what} on broadcast inputs", spread, function)
            self.compare(f"broadcast inputs, {what}", results, target)

    # Kernels -----------------------------------------------------------------------------------

    def check_backend(self, inputs: Values, expected: Sequence[Array]) -> None:
        """Run at once, and compiled: alone, between neighbours, in a fused group."""
        backend, specs = self.backend, self.specs(inputs)
        self.check_at_once(inputs, expected)
        for what, graph in self.graphs(inputs, specs):
            program = self.compiled(what, graph)

            def in_program(
                *arrays: Array | None, graph: Graph = graph, program: Any = program
            ) -> tuple[Array, ...]:
                leaves = [backend.from_host(a) for a in arrays if a is not None]
                outputs = [backend.from_host(garbage(graph.specs[v])) for v in graph.outputs]
                program.run(leaves, outputs)
                return tuple(np.array(backend.to_host(one)) for one in outputs)

            self.twice(f"backend {backend.name!r}, {what}", copies(inputs), expected, in_program)
        kernel = self.operator.kernels.get("numpy")
        if self.operator.view and callable(kernel) and backend.name == "numpy":
            source = np.array(inputs[0])
            with np.errstate(all="ignore"):
                view = kernel(source, *inputs[1:], out=None, **self.attributes)
            if source.size and view.size and not np.may_share_memory(source, view):
                self.fail("view", "the NumPy kernel without out= returns no view of the input")

    def check_at_once(self, inputs: Values, expected: Sequence[Array]) -> None:
        """Run at once."""
        backend, specs = self.backend, self.specs(inputs)

        def at_once(*arrays: Array | None) -> tuple[Array, ...]:
            buffers = [None if a is None else backend.from_host(a) for a in arrays]
            results = backend.run(self.operator, buffers, self.attributes, specs)
            return tuple(np.asarray(backend.to_host(one)) for one in results)

        self.twice(f"backend {backend.name!r}", copies(inputs), expected, at_once)

    def check_integers(self, inputs: Values) -> None:
        """Check the reference and a run at once, where `infer` takes these dtypes."""
        try:
            self.operator.infer_specs(
                [None if a is None else Spec.of(a) for a in inputs], self.attributes
            )
        except ShapeError:
            return
        self.check_at_once(inputs, self.check_reference(inputs))

    def twice(
        self,
        what: str,
        inputs: Values,
        expected: Sequence[Array],
        function: Callable[..., tuple[Array, ...]],
    ) -> None:
        """Compare a run with what is expected, and another run with it bit by bit."""
        first = self.guarded(what, inputs, function)
        self.compare(what, first, expected)
        for one, again in zip(first, self.guarded(what, inputs, function), strict=True):
            if not same_bits(one, again):
                self.fail("determinism", f"{what} gives {difference(again, one)}")

    def compiled(self, what: str, graph: Graph) -> Any:
        """Let the backend compile a graph."""
        try:
            return self.backend.compile(graph)
        except Exception as error:
            name = self.backend.name
            self.fail("compiling", f"backend {name!r}, {what}: {type(error).__name__}: {error}")

    def graphs(self, inputs: Values, specs: Sequence[Spec]) -> Iterator[tuple[str, Graph]]:
        """Yield the operator alone, and with copies before and after that may share its memory.

        With copies, inputs die at the operator, so that it may be run in place.
        """
        yield "compiled", self.graph(inputs, specs, copied=(), after=False)
        given = tuple(i for i, a in enumerate(inputs) if a is not None)
        chains = [given]
        if self.operator.is_elementwise and len(given) > 1:
            chains += [(position,) for position in given]
        for copied in chains:
            names = ", ".join(self.name(position) for position in copied)
            graph = self.graph(inputs, specs, copied, after=True)
            yield f"compiled after a copy of {names}", graph
            fused = fuse_elementwise(graph)
            if any(i.operator is None for i in fused.instructions):
                yield f"fused with a copy of {names}", fused

    def graph(
        self, inputs: Values, specs: Sequence[Spec], copied: Sequence[int], *, after: bool
    ) -> Graph:
        """Make a graph of one use of the operator, some inputs (and the outputs) copied."""
        graph, copy = Graph(), lookup("nnl::identity")

        def add(
            operator: Operator, operands: tuple[int, ...], results: Sequence[Spec]
        ) -> list[int]:
            values = [graph.new_value(spec) for spec in results]
            attributes = self.attributes if operator is self.operator else {}
            graph.instructions.append(Instruction(operator, operands, tuple(values), attributes))
            return values

        operands = [ABSENT if a is None else graph.add_leaf(Spec.of(a)) for a in inputs]
        for position in copied:
            spec = graph.specs[operands[position]]
            (operands[position],) = add(copy, (operands[position],), [spec])
        results = add(self.operator, tuple(operands), specs)
        if after:
            results = [add(copy, (value,), [graph.specs[value]])[0] for value in results]
        graph.outputs = results
        return graph

    def name(self, position: int) -> str:
        """Return an input's name for an error."""
        return repr(self.operator.input_name(position))


def _check_expression(operator: Operator, samples: Sequence[Sample], tolerance: float) -> None:
    """Hold the C expression against the reference in ``float32``."""
    compiler = c_compiler()
    whole = [sample for sample in samples if all(a is not None for a in sample.inputs)]
    if compiler is None or not whole:
        return
    cases, values, targets = [], [], []
    for sample in whole:
        inputs = cast_floating(sample.inputs, np.float32)
        attributes = operator.bind_attributes(sample.attributes)
        (spec,) = operator.infer_specs(
            [None if a is None else Spec.of(a) for a in inputs], attributes
        )
        cases.append(ExpressionCase(operator, attributes, spec))
        values.append(inputs)
        with np.errstate(all="ignore"):
            targets.append(np.asarray(operator.reference(*inputs, **attributes)))
    try:
        functions = compile_expressions(cases, compiler)
    except ValueError as error:
        raise OperatorCheckError(
            f"{operator.name}: expression {operator.expression!r}: {error}"
        ) from None
    for sample, function, inputs, target in zip(whole, functions, values, targets, strict=True):
        result = function(*inputs).astype(target.dtype)
        if result.shape != target.shape or not close(result, target, tolerance):
            raise OperatorCheckError(
                f"{operator.name}, {sample!r}: expression {operator.expression!r}: it gives "
                f"{difference(result, target)}"
            )
