"""Single operations: NNL's program and PyTorch's calls, each replayed from a captured graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any

import numpy as np

import nnl_core as nnl
from benchmarks.cpu.arrays import Array
from benchmarks.gpu.cases import Case, spread
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.results import COPY_CASE, NNL, TORCH, Measurement
from benchmarks.timing import Samples, Timer, interleave
from nnl_core.gpu import blas
from nnl_core.gpu.backend import CudaBackend
from nnl_core.gpu.capture import CapturedGraph
from nnl_core.graph.dtypes import as_dtype
from nnl_core.graph.lower import lower
from nnl_core.graph.program import BoundProgram
from nnl_core.graph.spec import Spec

CALLS = 10  # of an operation in one captured graph, so that starting it does not count
SAMPLE_SECONDS = 0.02

Call = Callable[[], object]


def sample(machine: Machine, timers: dict[str, Timer], rounds: int, seconds: float) -> Samples:
    """Time in turn; of an emulated device, only run."""
    if machine.emulated:
        for one in timers.values():
            one(1)
        return {}
    return interleave(timers, rounds=rounds, sample_seconds=seconds)


def nnl_timer(device: Any, call: Call, each: int = 1) -> Timer:
    """Time calls of NNL's by events on its stream; a call counts as ``each``."""

    def seconds(repeats: int) -> float:
        def work() -> None:
            for _ in range(repeats):
                call()

        return float(device.timed(work)) / repeats / each

    return seconds


def torch_timer(torch: Any, call: Call, each: int = 1) -> Timer:
    """Time calls of PyTorch's by events on its stream."""

    def seconds(repeats: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / repeats / each

    return seconds


# One case -----------------------------------------------------------------------------------------


def measure_copy(machine: Machine, size: int, rounds: int) -> Measurement:
    """Measure the bandwidth that shares are of: a copy from one place on the device to another."""
    device = machine.device
    source, target = (device.buffer(Spec((size,), np.dtype(np.uint8))) for _ in range(2))
    device.write(source, spread((size // 4,)).view(np.uint8))
    copy = nnl_timer(device, lambda: device.copy(target.address, source.address, size))
    samples = sample(machine, {NNL: copy}, rounds, SAMPLE_SECONDS)
    return Measurement(COPY_CASE, samples, moved=2 * size)


def measure(machine: Machine, case: Case, rounds: int, smoke: bool) -> Measurement:
    """Check that both compute the same, then time them in turn."""
    found = Measurement(case.name, moved=case.moved, operations=case.operations, bars=case.bars)
    arrays = case.arrays()
    calls = 2 if smoke else CALLS
    products = without_cublas(machine.device) if case.own else nullcontext()
    with products, on_device(machine, case.precision):
        outputs, seed = graph_of(case, arrays)
        bound = BoundProgram(lower([(y, y.data) for y in outputs]), nnl.current_backend())
        bound.run()
        ours = [np.asarray(y.d, np.float32) for y in outputs]
        host = sum(row.computed_by != "cuda" for row in bound.profile(1))
        found.details["on host"] = host or None
        timers: dict[str, Timer] = {}
        if host:  # such a program cannot be captured as a whole
            timers[NNL] = nnl_timer(machine.device, bound.run)
        else:
            timers[NNL] = nnl_timer(machine.device, replayed(machine.device, bound, calls), calls)
        if machine.torch is not None:
            timer, theirs, layout = torch_side(machine.torch, case, arrays, seed, calls)
            timers[TORCH] = timer
            found.details["layout"] = layout
            check(case, ours, theirs)
        elif smoke:
            check(case, ours, computed_by_numpy(case, arrays))
        found.samples = sample(machine, timers, rounds, SAMPLE_SECONDS)
    return found


@contextmanager
def on_device(machine: Machine, precision: str) -> Iterator[None]:
    """Give a case a backend of its own; let both libraries round operands to tf32, or not."""
    rounds = precision == "tf32"
    if machine.torch is not None:
        machine.torch.backends.cuda.matmul.allow_tf32 = rounds
        machine.torch.backends.cudnn.allow_tf32 = rounds
    with nnl.backend_scope(CudaBackend(machine.device.index)):
        with nnl.allow_tf32() if rounds else nullcontext():
            yield


@contextmanager
def without_cublas(device: Any) -> Iterator[None]:
    """Let NNL multiply by its own kernels."""
    known = blas.find(device)
    blas._handles[device.index] = None
    try:
        yield
    finally:
        blas._handles[device.index] = known


def graph_of(case: Case, arrays: list[Array]) -> tuple[list[nnl.Variable], Array]:
    """Return the outputs of a case in NNL, and what gradients begin with."""
    dtype = as_dtype(case.dtype)
    variables = [
        nnl.Variable.from_numpy_array(array.astype(dtype, copy=False), need_grad=True)
        for array in arrays
    ]
    y = case.nnl(*variables)
    seed = spread(y.shape, len(arrays)) if case.gradient else np.zeros(())
    if not case.gradient:
        return [y], seed
    start = nnl.Variable.from_numpy_array(seed.astype(y.dtype))
    return [y, *nnl.grad(y, variables, start)], seed


def computed_by_numpy(case: Case, arrays: list[Array]) -> list[Array]:
    """Return the outputs of a case as the backend computes them that defines them."""
    with nnl.backend_scope("numpy"):
        outputs, _ = graph_of(case, arrays)
        nnl.forward_all(outputs)
        return [np.asarray(y.d, np.float32) for y in outputs]


def check(case: Case, ours: list[Array], theirs: list[Array]) -> None:
    """Raise unless all outputs agree in norm."""
    for position, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        a = a.reshape(b.shape)
        difference = float(np.linalg.norm((a - b).ravel())) / float(np.linalg.norm(b.ravel()))
        if not difference <= case.tolerance:  # nor is NaN an agreement
            raise AssertionError(
                f"output {position} differs by {difference:.2g} of its norm; allowed are "
                f"{case.tolerance:g}"
            )


# Replaying ----------------------------------------------------------------------------------------


def uncaptured(bound: BoundProgram) -> Call:
    """Return what runs a program launch by launch, as its first run does."""
    program: Any = bound.program

    def run() -> None:
        for frame in program._frames.values():
            frame.runs = 0
        bound.run()

    return run


def launches(bound: BoundProgram) -> int:
    """Return what one run of a program enqueues: launches and calls of libraries."""
    program: Any = bound.program
    frame = next(reversed(program._frames.values()))
    return sum(len(section.enqueue) for section in frame.sections)


def replayed(device: Any, bound: BoundProgram, calls: int) -> Call:
    """Return what runs a program several times in one captured graph."""
    run = uncaptured(bound)
    graph = CapturedGraph(device)

    def several() -> None:
        for _ in range(calls):
            run()

    with device:
        graph.capture(several)

    def launch() -> None:
        with device:
            graph.launch()

    return launch


def torch_side(
    torch: Any, case: Case, arrays: list[Array], seed: Array, calls: int
) -> tuple[Timer, list[Array], str | None]:
    """Return the timer of PyTorch's side, in the faster layout where there are two; its results."""
    layouts = {"channels first": torch.contiguous_format}
    if case.layouts:
        layouts["channels last"] = torch.channels_last
    best: tuple[float, Timer, list[Array], str] | None = None
    for name, layout in layouts.items():
        call = torch_call(torch, case, arrays, seed, layout)
        results = [y.detach().float().contiguous().cpu().numpy() for y in call()]
        timer = torch_timer(torch, torch_replayed(torch, call, calls), calls)
        timer(1)
        seconds = median(timer(1) for _ in range(3))
        if best is None or seconds < best[0]:
            best = seconds, timer, results, name
    assert best is not None
    return best[1], best[2], best[3] if case.layouts else None


def torch_call(
    torch: Any, case: Case, arrays: list[Array], seed: Array, layout: Any
) -> Callable[[], tuple[Any, ...]]:
    """Return what computes a case in PyTorch."""
    dtype = getattr(torch, case.dtype)

    def tensor(array: Array) -> Any:
        found = torch.from_numpy(array).cuda().to(dtype)
        return found.contiguous(memory_format=layout) if found.ndim == 4 else found

    tensors = [tensor(array) for array in arrays]
    if not case.gradient:

        def forward() -> tuple[Any, ...]:
            with torch.no_grad():
                return (case.torch(torch, *tensors),)

        return forward
    start = tensor(seed)
    for one in tensors:
        one.requires_grad_()

    def both() -> tuple[Any, ...]:
        y = case.torch(torch, *tensors)
        return (y, *torch.autograd.grad(y, tensors, start))

    return both


def torch_replayed(torch: Any, call: Call, calls: int) -> Call:
    """Return what replays several calls of PyTorch's, captured as it recommends."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()

    def replay(kept: Call = call) -> None:  # whose tensors the graph reads
        graph.replay()

    return replay
