"""Whole training steps on a GPU, and what launching their kernels costs the host."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import nnl_core as nnl
from benchmarks.cpu import workloads
from benchmarks.cpu.arrays import Arrays, batch
from benchmarks.gpu.kernels import (
    Call,
    launches,
    nnl_timer,
    on_device,
    sample,
    torch_timer,
    uncaptured,
)
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.results import GRAPHS, MIB, NNL, TORCH, Bar, Measurement
from benchmarks.timing import Timer
from nnl_core.gpu import blas

TOLERANCES = {"float32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}  # of the first loss
GROWTH = {
    "resnet20": 10,
    "resnet50": 30,
}  # of it from step to step: what training makes of roundings
COMPARED_STEPS = 3
SAMPLE_SECONDS = 0.03
HOST_SECONDS = 0.002  # few enough launches for the driver's queue to take without waiting
WITHIN_GRAPHS = 0.833  # at most a fifth slower than PyTorch's captured step
SHRUNK = {"resnet20": 8, "resnet50": 32}  # to images of this length
SMALL = ("tiny", "lenet")
BARS = {name: [Bar(TORCH, 3.0), Bar(GRAPHS, WITHIN_GRAPHS)] for name in SMALL}


class Step(NamedTuple):
    """NNL's side of a training step, after the steps that are compared."""

    workload: workloads.Training
    values: Arrays  # the parameters that it began with
    losses: list[float]
    first: float  # seconds of building, compiling and doing the first step
    memory: int  # bytes that it holds on the device

    @property
    def bound(self) -> Any:
        """The program of a step."""
        return self.workload.steps[0]._program("step")


def given_for(case: str, smoke: bool) -> Arrays:
    """Return the batch, or a small one of smaller images and shorter texts."""
    given = batch(case)
    if not smoke:
        return given
    few = {name: array[:2] for name, array in given.items()}
    if case == "gpt":
        few = {name: array[:1] for name, array in few.items()}  # as many positions as are learnt
    if case in SHRUNK:
        few["x"] = few["x"][:, :, : SHRUNK[case], : SHRUNK[case]]
    return {name: np.ascontiguousarray(array) for name, array in few.items()}


def measure(machine: Machine, case: str, precision: str, rounds: int, smoke: bool) -> Measurement:
    """Compare the losses of the first steps, then time steps in turn."""
    found = Measurement(step_name(case, precision), bars=BARS.get(case, []))
    given = given_for(case, smoke)
    with _ready(machine, precision):
        step = nnl_step(machine, case, precision, given)
        timers: dict[str, Timer] = {NNL: nnl_timer(machine.device, step.workload.compute)}
        found.details |= {"first step, s": step.first, "memory, MiB": step.memory / MIB}
        if machine.torch is not None:
            peers, memory = torch_steps(machine.torch, case, precision, given, step)
            timers |= {name: torch_timer(machine.torch, one) for name, one in peers.items()}
            found.details["PyTorch, MiB"] = memory / MIB
        elif smoke:
            expected = numpy_losses(case, precision, given, step.values)
            check_losses(case, precision, step.losses, expected)
        found.samples = sample(machine, timers, rounds, SAMPLE_SECONDS)
        rows = step.workload.steps[0].profile(1)
        found.details["on host"] = sum(row.computed_by != "cuda" for row in rows) or None
        found.details["launches"] = launches(step.bound)
    return found


def measure_launches(machine: Machine, case: str, rounds: int, smoke: bool) -> list[Measurement]:
    """Time the host alone, as it enqueues a step captured, launch by launch, and in PyTorch."""
    given = given_for(case, smoke)
    names = [
        f"host: {case}, a step, one captured graph",
        f"host: {case}, a step, launch by launch",
        f"host: {case}, each launch of these",
        f"{case}, float32, launch by launch",
    ]
    found = [Measurement(name) for name in names]
    with _ready(machine, "float32"):
        step = nnl_step(machine, case, "float32", given)
        device, bound = machine.device, step.bound
        slow = uncaptured(bound)
        peers: dict[str, Call] = {}
        timers = {
            names[0]: _host_timer(step.workload.compute, device.synchronize),
            names[1]: _host_timer(slow, device.synchronize),
        }
        if machine.torch is not None:
            peers, _ = torch_steps(machine.torch, case, "float32", given, step)
            wait = machine.torch.cuda.synchronize
            timers |= {name: _host_timer(one, wait) for name, one in peers.items()}
        samples = sample(machine, timers, rounds, HOST_SECONDS)
        slow()
        count = launches(bound)
        found[3].samples = sample(machine, {NNL: nnl_timer(device, slow)}, rounds, SAMPLE_SECONDS)
    if samples:
        theirs = {name: samples[name] for name in peers}
        found[0].samples = {NNL: samples[names[0]], **theirs}
        found[1].samples = {NNL: samples[names[1]], **theirs}
        found[2].samples = {NNL: [seconds / count for seconds in samples[names[1]]]}
    for one in found[1:]:
        one.details["launches"] = count
    return found


def step_name(case: str, precision: str) -> str:
    """Return what the case of a training step is called."""
    return f"{case}, a training step, {precision}"


@contextmanager
def _ready(machine: Machine, precision: str) -> Iterator[None]:
    """As `on_device`, with an empty cache of compiled code."""
    before = os.environ.get("NNL_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NNL_CACHE_DIR"] = folder
        try:
            with on_device(machine, precision):
                yield
        finally:
            if before is None:
                del os.environ["NNL_CACHE_DIR"]
            else:
                os.environ["NNL_CACHE_DIR"] = before


def nnl_step(machine: Machine, case: str, precision: str, given: Arrays) -> Step:
    """Build a workload on the backend in use, and do the steps that are compared."""
    device = machine.device
    blas.find(device)  # whose workspace counts for no network
    before = device.memory[0]
    start = perf_counter()
    workload = build(case, precision, given)
    values = workload.parameters()
    # Reading the loss waits for the device.
    workload.step()
    losses = [workload.loss()]
    first = perf_counter() - start
    for _ in range(COMPARED_STEPS - 1):
        workload.compute()
        losses.append(workload.loss())
    return Step(workload, values, losses, first, device.memory[0] - before)


def build(
    case: str, precision: str, given: Arrays, values: Arrays | None = None
) -> workloads.Training:
    """Return a workload of `benchmarks.cpu` on the backend in use."""
    with nnl.mixed_precision("bfloat16" if precision == "bf16" else None):
        built = workloads.build(case, values, given=given)
    assert isinstance(built, workloads.Training)
    return built


def numpy_losses(case: str, precision: str, given: Arrays, values: Arrays) -> list[float]:
    """Return the losses on the backend that defines what operators mean."""
    with nnl.backend_scope("numpy"):
        workload = build(case, precision, given, values)
        losses = []
        for _ in range(COMPARED_STEPS):
            workload.step()
            losses.append(workload.loss())
    return losses


def torch_steps(
    torch: Any, case: str, precision: str, given: Arrays, step: Step
) -> tuple[dict[str, Call], int]:
    """Return PyTorch's steps, eager and captured, and the bytes of the eager ones at their peak."""
    peers = import_module("benchmarks.gpu.torch_training")
    make = partial(peers.Eager, case, given, step.values, precision == "bf16")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    eager = make()
    losses = []
    for _ in range(COMPARED_STEPS):
        eager.step()
        losses += eager.result()
    memory = torch.cuda.max_memory_allocated() - before
    check_losses(case, precision, step.losses, losses)
    return {TORCH: eager.step, GRAPHS: peers.Replayed(make()).step}, int(memory)


def check_losses(case: str, precision: str, ours: list[float], theirs: list[float]) -> None:
    """Raise unless the losses agree, the first of them most closely."""
    growth = GROWTH.get(case, 1)
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not abs(a - b) <= TOLERANCES[precision] * growth**number * abs(b):
            raise AssertionError(f"the loss of step {number + 1} is {a:.6g}; expected is {b:.6g}")


def _host_timer(call: Call, wait: Call) -> Timer:
    """Time how long enqueuing takes, from an idle device on."""

    def seconds(repeats: int) -> float:
        wait()
        start = perf_counter()
        for _ in range(repeats):
            call()
        taken = perf_counter() - start
        wait()
        return taken / repeats

    return seconds
