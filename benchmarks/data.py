"""How fast batches arrive: image files streamed in the background, against arrays in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from time import perf_counter, thread_time

import numpy as np
from PIL import Image

import nnl_core as nnl
from benchmarks.report import Report
from benchmarks.timing import TIMING_COLUMNS, Timer, interleave, timing_row
from nnl_core import PF, F, S
from nnl_core.data import ArraySource, Batch, DataIterator, DataSource, ImageFolder

SAMPLES = 2048
BATCH = 128
MEMORY = "memory"
GROUPS = ("train", "CPU", "read")


def run(rounds: int) -> Report:
    """Time epochs of training steps, and of reading alone, over the same images."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        write_images(Path(folder))
        images = ImageFolder(Path(folder))
        memory = ArraySource(images.take(np.arange(SAMPLES)), "memory")
        step = training_step()

        def iterator(source: DataSource, workers: int = 0, kind: str = "process") -> DataIterator:
            made = DataIterator(
                source,
                BATCH,
                last_batch="drop",
                workers=workers,
                worker_kind="thread" if kind == "thread" else "process",
            )
            return stack.enter_context(closing(made))

        sources = {
            MEMORY: (iterator(memory), "arrays, taken by the reader"),
            "files": (iterator(images), "PNG files, read by the reader"),
            "files, 2 threads": (iterator(images, 2, "thread"), "read ahead by two threads"),
            "files, 2 processes": (iterator(images, 2), "read ahead by two processes"),
        }
        expected = [batch.arrays for batch in sources[MEMORY][0].epoch()]
        for name, (source, _) in sources.items():
            for batch, arrays in zip(source.epoch(), expected, strict=True):
                if any(not np.array_equal(batch[field], arrays[field]) for field in arrays):
                    raise AssertionError(f"{name!r} gives other batches than {MEMORY!r}")

        cases: dict[str, Timer] = {}
        descriptions = {}
        for name, (source, description) in sources.items():
            for case, timer, about in (
                (f"train, {name}", epoch_timer(source, step), ""),
                (
                    f"CPU, {name}",
                    epoch_timer(source, step, thread_time),
                    "of the reader's thread: ",
                ),
                (f"read, {name}", epoch_timer(source, None), "without a step: "),
            ):
                cases[case] = timer
                descriptions[case] = about + description
        samples = interleave(cases, rounds=rounds, sample_seconds=0.0)
    rows = [
        timing_row(
            name,
            samples,
            baseline=f"{name.partition(',')[0]}, {MEMORY}",
            description=descriptions[name],
        )
        for name in sorted(cases, key=lambda name: GROUPS.index(name.partition(",")[0]))
    ]
    notes = [
        f"{SAMPLES} PNG files of 32 x 32 pixels and 3 colours, batches of {BATCH}; times are those "
        "of one batch.",
        "CPU is that of the reader's thread: its time where the workers have cores of their own.",
        "A step: two convolutions of 16 and 32 channels with pooling, one affine layer, Adam.",
    ]
    return Report("Streaming data", TIMING_COLUMNS, rows, notes)


def write_images(folder: Path) -> None:
    """Write images of ten classes that compress about as much as photographs do."""
    rng = np.random.default_rng(0)
    for number in range(SAMPLES):
        coarse = rng.integers(0, 256, (8, 8, 3), np.uint8).repeat(4, 0).repeat(4, 1)
        pixels = coarse ^ rng.integers(0, 32, (32, 32, 3), np.uint8)
        inside = folder / str(number % 10)
        inside.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(inside / f"{number:05}.png")


def training_step() -> Callable[[Batch], None]:
    """Return what trains a small convolutional network on a batch."""
    x, t = nnl.Variable((BATCH, 3, 32, 32)), nnl.Variable((BATCH, 1))
    h = F.max_pooling(F.relu(PF.convolution(x, 16, (3, 3), pad=(1, 1), name="a")), (2, 2))
    h = F.max_pooling(F.relu(PF.convolution(h, 32, (3, 3), pad=(1, 1), name="b")), (2, 2))
    loss = F.mean(F.softmax_cross_entropy(PF.affine(h, 10, name="c"), t))
    solver = S.Adam(0.001)
    solver.set_parameters(nnl.get_parameters())
    compiled = nnl.compile_step(loss, solver)

    def run_step(batch: Batch) -> None:
        x.d = batch["x"] / np.float32(255)
        t.d = batch["y"][:, np.newaxis]
        compiled.run()

    return run_step


def epoch_timer(
    iterator: DataIterator,
    step: Callable[[Batch], None] | None,
    clock: Callable[[], float] = perf_counter,
) -> Timer:
    """Time whole epochs, which begin with nothing taken ahead, and return seconds for a batch.

    Workers are there before the first is timed.
    """

    def seconds(repeats: int) -> float:
        start = clock()
        for epoch in range(repeats):
            for batch in iterator.epoch(epoch):
                if step is not None:
                    step(batch)
        return (clock() - start) / repeats / len(iterator)

    return seconds


if __name__ == "__main__":
    print(run(5).as_text())
