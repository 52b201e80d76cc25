"""``nnl bench``: how fast a model infers, and what memory it takes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from nnl_core.cli.project import add_set, open_run, open_workbench
from nnl_core.cli.table import print_table
from nnl_core.errors import ConfigurationError, DataError, ModelError, NnlError
from nnl_core.hooks.loading import describe, target_problem
from nnl_core.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from nnl_core.training.latency import Inference, Latency
    from nnl_core.training.model import Model
    from nnl_core.training.project import Workbench

COLUMNS = (
    "batch", "first ms", "p50 ms", "p90 ms", "p99 ms", "samples/s", "working MB", "prepared MB",
    "parameters MB",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a run, a project as it stands (untrained), or module:function, which is called with "
        "a batch size and returns a variable, or several",
    )
    parser.add_argument(
        "--batch",
        dest="batches",
        type=_count,
        nargs="+",
        default=[1],
        metavar="N",
        help="samples of a run; several numbers: one row for each (default: 1)",
    )
    parser.add_argument(
        "--runs", type=_count, default=50, metavar="N", help="runs to time (default: 50)"
    )
    parser.add_argument(
        "--warm-up",
        type=int,
        default=5,
        metavar="N",
        help="runs before these, besides the first (default: 5)",
    )
    parser.add_argument(
        "--threads", type=_count, metavar="N", help="threads (default: NNL_NUM_THREADS, or cores)"
    )
    parser.add_argument(
        "--data",
        default="train",
        metavar="NAME",
        help="data set of the project whose samples are the input (default: train)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_set(parser)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return number


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Print latency, throughput and memory for each batch size."""
    from nnl_core.cpu.threads import thread_count, use_threads
    from nnl_core.graph.backend import current_backend

    with ExitStack() as stack:
        if arguments.threads is not None:
            stack.enter_context(use_threads(arguments.threads))
        build = stack.enter_context(_opened(arguments, session))
        rows = [
            build(size).measure(size, runs=arguments.runs, warm_up=max(0, arguments.warm_up))
            for size in arguments.batches
        ]
        backend, threads, peak = current_backend().name, thread_count(), _peak()
    if arguments.json:
        found = {
            "model": arguments.model,
            "backend": backend,
            "threads": threads,
            "runs": arguments.runs,
            "warm_up": arguments.warm_up,
            "process_peak_bytes": peak,
            "results": [row._asdict() for row in rows],
        }
        print(json.dumps(found, indent=2))
    else:
        _show(rows, backend, threads, peak)
    return 0


@contextmanager
def _opened(
    arguments: argparse.Namespace, session: Session
) -> Iterator[Callable[[int], Inference]]:
    """Yield what makes a model's graph for a batch size."""
    place = Path(arguments.model)
    if place.exists():
        with _workbench(place, arguments.overrides, session) as (workbench, parameters):
            model = workbench.model()
            if parameters is not None:
                model.load(parameters)
            yield lambda size: _of_project(workbench, model, arguments.data, size)
    elif target_problem(arguments.model) is None and ":" in arguments.model:
        from nnl_core.graph.backend import backend_scope
        from nnl_core.settings import override

        session.check()
        device = override({}, arguments.overrides).get("backend")
        with session, backend_scope(str(device)) if device else nullcontext():
            yield lambda size: _of_function(arguments.model, size)
    else:
        raise ConfigurationError(
            f"{arguments.model!r} is no folder of a run or a project, nor 'module:function'"
        )


@contextmanager
def _workbench(
    place: Path, overrides: Sequence[str], session: Session
) -> Iterator[tuple[Workbench, Path | None]]:
    """Open a run, with the file of its parameters, or a project."""
    from nnl_core.settings import open_project
    from nnl_core.training.run_folder import read_run

    if (place / "run.json").is_file():
        saved = read_run(place, overrides)
        with open_run(saved, session) as workbench:
            yield workbench, saved.parameters
    else:
        with open_workbench(open_project(place, overrides), session) as workbench:
            yield workbench, None


def _of_project(workbench: Workbench, model: Model, data: str, size: int) -> Inference:
    """Make the network for a batch of the first samples, from the beginning again if too few."""
    import numpy as np

    from nnl_core.data import Batch
    from nnl_core.data.source import take_at
    from nnl_core.training.feeding import feed
    from nnl_core.training.latency import Inference

    source = workbench.data(data)
    if not len(source):
        raise DataError(f"{source.name} has no samples to measure with")
    ids = np.arange(size, dtype=np.int64) % len(source)
    network = model.build(source.fields, size, training=False)
    feed(network, Batch(take_at(source, ids, 0, 0), ids))
    return Inference.of([one for name, one in network.outputs.items() if name != "loss"])


def _of_function(target: str, size: int) -> Inference:
    from nnl_core.graph.variable import Variable
    from nnl_core.training.latency import Inference
    from nnl_core.training.project import import_from

    function = import_from(Path.cwd(), target, "nnl bench")
    if not callable(function):
        raise ModelError(f"{target!r} is no function")
    try:
        returned = function(size)
    except Exception as error:
        text = str(error) if isinstance(error, NnlError) else describe(error)
        raise ModelError(f"{target!r}, called with the batch size {size}: {text}") from error
    several = list(returned.values()) if isinstance(returned, Mapping) else returned
    outputs = [several] if isinstance(several, Variable) else several
    if not (
        isinstance(outputs, (list, tuple))
        and outputs
        and all(isinstance(one, Variable) and one.parent is not None for one in outputs)
    ):
        raise ModelError(f"{target!r} returned no variable that something computes")
    return Inference.of(outputs)


def _peak() -> int | None:
    """Return the largest memory that this process had, where the system tells."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _show(rows: list[Latency], backend: str, threads: int, peak: int | None) -> None:
    print(
        f"backend {backend}, {threads} threads" if threads > 1 else f"backend {backend}, 1 thread"
    )
    lines = []
    for row in rows:
        memory = (row.working_bytes, row.prepared_bytes, row.parameter_bytes)
        lines.append(
            (
                str(row.batch_size),
                *(f"{ms:.3f}" for ms in (row.first_ms, row.p50_ms, row.p90_ms, row.p99_ms)),
                f"{row.samples_per_second:,.1f}",
                *(f"{count / 1e6:,.1f}" for count in memory),
            )
        )
    print_table(COLUMNS, lines, right=COLUMNS)
    if peak is not None:
        print(f"the process needed {peak / 1e6:,.0f} MB at its peak")
