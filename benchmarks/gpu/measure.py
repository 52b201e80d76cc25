"""The benchmark ``gpu``: sections of cases, each measured for itself and kept when it is known."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.gpu import machine as machines
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.results import COPY_CASE, Measurement, Results
from benchmarks.report import Report

PRECISIONS = ("float32", "tf32", "bf16")


class Job(NamedTuple):
    """Cases that are measured together."""

    name: str
    measure: Callable[[], Measurement | list[Measurement]]


Section = Callable[[Machine, int, bool], Iterator[Job]]  # from rounds, and whether to be short


def memory(machine: Machine, rounds: int, smoke: bool) -> Iterator[Job]:
    """What memory bounds, beside a copy."""
    from benchmarks.gpu import cases, kernels

    size = 1 << (16 if smoke else 30)
    yield Job(COPY_CASE, partial(kernels.measure_copy, machine, size, rounds))
    for case in cases.memory_cases(smoke):
        yield Job(case.name, partial(kernels.measure, machine, case, rounds, smoke))


def products(machine: Machine, rounds: int, smoke: bool) -> Iterator[Job]:
    """Products of matrices."""
    from benchmarks.gpu import cases, kernels

    for case in cases.product_cases(smoke):
        yield Job(case.name, partial(kernels.measure, machine, case, rounds, smoke))


def convolutions(machine: Machine, rounds: int, smoke: bool) -> Iterator[Job]:
    """Convolutions of 3 x 3."""
    from benchmarks.gpu import cases, kernels

    for case in cases.convolution_cases(smoke):
        yield Job(case.name, partial(kernels.measure, machine, case, rounds, smoke))


def training(networks: Sequence[str], machine: Machine, rounds: int, smoke: bool) -> Iterator[Job]:
    """Training steps of some networks, in every precision."""
    from benchmarks.gpu import training

    for network in networks:
        if machine.emulated and network == "resnet50":
            continue  # minutes for its 25 million parameters, and nothing that resnet20 has not
        for precision in PRECISIONS:
            yield Job(
                training.step_name(network, precision),
                partial(training.measure, machine, network, precision, rounds, smoke),
            )


def launches(machine: Machine, rounds: int, smoke: bool) -> Iterator[Job]:
    """What enqueuing costs the host, with and without a captured graph."""
    from benchmarks.gpu import training

    for network in training.SMALL:
        yield Job(
            f"host: {network}",
            partial(training.measure_launches, machine, network, rounds, smoke),
        )


SECTIONS: dict[str, Section] = {
    "memory": memory,
    "products": products,
    "convolutions": convolutions,
    "small": partial(training, ("tiny", "mlp", "lenet", "gpt")),
    "residual": partial(training, ("resnet20", "resnet50")),
    "launches": launches,
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the options that this benchmark has beyond everyone's."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run gpu")
    parser.add_argument(
        "--sections", default=",".join(SECTIONS), help="separated by commas (default %(default)s)"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds it")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="add to the results that this file holds"
    )
    options = parser.parse_args(arguments)
    options.sections = options.sections.split(",")
    for name in options.sections:
        if name not in SECTIONS:
            parser.error(f"unknown section {name!r}; there are {', '.join(SECTIONS)}")
    return options


def run(rounds: int, arguments: Sequence[str] = ()) -> Report:
    """Measure case by case; what goes wrong with one is said in its row."""
    options = parse(arguments)
    machine = machines.find()
    results = Results.load(options.save) if options.save else Results()
    if results.measurements and results.emulated != machine.emulated:
        raise SystemExit(f"{options.save} holds results of another kind of device; name another")
    results.emulated = machine.emulated
    results.machine = machines.describe(machine)
    if machine.torch is None:
        results.machine["torch"] = f"not measured beside NNL: {machine.without_torch}"
    for name in options.sections:
        for job in SECTIONS[name](machine, rounds, options.smoke):
            if options.only not in job.name:
                continue
            print(f"measuring {job.name}", file=sys.stderr, flush=True)
            results.measurements.pop(job.name, None)  # where the job failed before
            for found in attempt(job):
                results.add(found)
                if found.problem:
                    print(f"FAILED {found.case}: {found.problem}", file=sys.stderr, flush=True)
            if options.save:
                results.save(options.save)
    return results.report()


def attempt(job: Job) -> list[Measurement]:
    """Return what a job measures, or what went wrong."""
    try:
        found = job.measure()
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return [Measurement(job.name, problem=f"{type(error).__name__}: {lines[0]}")]
    return found if isinstance(found, list) else [found]
