"""Train every network and show how well it denoises: ``python examples/onn_denoise/compare.py``.

Further arguments are those of ``nnl train``, such as ``--set train.epochs=5``. Everything goes to
``runs/compare/``: the runs, ``table.md``, ``curves.png`` and ``pictures.png``.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nnl_core import get_parameters, load_parameters, parameter_scope
from nnl_core.cli import main

HERE = Path(__file__).parent
DEVIATION = 0.2 * 255  # as that of the noise in nnl.toml
SHOWN = (1, 5, 9, 17, 20)  # pictures of the test set


def sets(pool: str, activation: str) -> str:
    return f'{{nodal = "mul", pool = "{pool}", activation = "{activation}"}}'


def operational(*layers: str) -> list[str]:
    return [f"model.arguments.operators=[{', '.join(layers)}]"]


# Of about as many parameters each: 3,897, and Self-ONN 3,886.
NETWORKS = {
    "CNN, tanh": operational(sets("sum", "tanh"), sets("sum", "tanh")),
    "CNN, relu": operational(sets("sum", "relu"), sets("sum", "relu")),
    "ONN, sum and max": operational(
        sets("sum", "relu"),
        f"[{', '.join([sets('sum', 'relu')] * 16 + [sets('max', 'relu')] * 16)}]",
    ),
    "Self-ONN, q = 3": [
        "model.function=model:self_network",
        "model.arguments={maps = [7, 17], order = 3}",
    ],
}


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "runs" / "compare", metavar="FOLDER")
    options, further = parser.parse_known_args()
    if options.out.exists():
        parser.error(f"{options.out} is there already: remove it, or choose another --out")
    runs = {name: train(name, options.out, further) for name in NETWORKS}
    with np.load(HERE / "pictures.npz") as stored:
        clean = stored["test"].astype(np.float32)
    noise = np.random.default_rng(0).normal(scale=DEVIATION, size=clean.shape)
    noisy = options.out / "noisy.npz"
    np.savez(noisy, test=(clean + noise).astype(np.float32))
    images = {"noisy": clean + noise}
    images |= {name: denoised(folder, noisy) for name, folder in runs.items()}
    table = rows(runs, images, clean)
    (options.out / "table.md").write_text(table, "utf-8")
    draw(images, clean).savefig(options.out / "pictures.png", dpi=150)
    curves = str(options.out / "curves.png")
    metrics = ["--metric", "test/psnr", "--metric", "train/loss"]
    finished(main(["plot", *map(str, runs.values()), *metrics, "-o", curves]))
    print(table)


def train(name: str, out: Path, further: list[str]) -> Path:
    """Train one network and return its run's folder."""
    folder = out / re.sub(r"\W+", "-", name)
    settings = [part for one in NETWORKS[name] for part in ("--set", one)]
    project = str(HERE)
    finished(main(["train", project, "--name", name, "--out", str(folder), *settings, *further]))
    return folder


def denoised(run: Path, noisy: Path) -> np.ndarray:
    """Return what a run makes of noisy pictures, in grey levels of 0 to 255."""
    path = run / "denoised.npz"
    source = ["--input", str(noisy), "--data", "test"]
    finished(main(["infer", str(run), *source, "--output", str(path)]))
    with np.load(path) as found:
        return found["output"][:, 0] * 255 + 127.5


def finished(status: int) -> None:
    if status:
        raise SystemExit(status)


def rows(runs: dict[str, Path], images: dict[str, np.ndarray], clean: np.ndarray) -> str:
    """Return a table of each network's parameters, and the mean PSNR and SNR of the pictures."""
    lines = ["| network | parameters | PSNR, dB | SNR, dB |", "| --- | ---: | ---: | ---: |"]
    for name, found in images.items():
        count = f"{parameters(runs[name]):,}" if name in runs else ""
        # As the trainer's metric has it: the power of what the network is to find.
        power = 10 * np.log10(np.square((clean - 127.5) / 255).mean(axis=(1, 2)))
        ratios = psnr(found, clean)
        lines.append(f"| {name} | {count} | {ratios.mean():.2f} | {(ratios + power).mean():.2f} |")
    return "\n".join(lines) + "\n"


def parameters(run: Path) -> int:
    (path,) = run.glob("parameters.*")
    with parameter_scope("counted", {}):
        load_parameters(path)
        return sum(value.size for value in get_parameters().values())


def psnr(found: np.ndarray, clean: np.ndarray) -> np.ndarray:
    return -10 * np.log10(np.square((found - clean) / 255).mean(axis=(1, 2)))


def draw(images: dict[str, np.ndarray], clean: np.ndarray) -> Figure:
    """Draw some test pictures in rows: clean, noisy, and what each network makes of them."""
    shown = [number for number in SHOWN if number < len(clean)]
    columns = {"clean": clean, **images}
    figure = Figure(figsize=(1.7 * len(columns), 1.9 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), len(columns), squeeze=False)
    for line, number in zip(grid, shown, strict=True):
        for axes, (name, found) in zip(line, columns.items(), strict=True):
            axes.imshow(found[number], cmap="gray", vmin=0, vmax=255)
            axes.set_axis_off()
            title = name if number == shown[0] else ""
            if name != "clean":
                title += f"\n{psnr(found[[number]], clean[[number]])[0]:.1f} dB"
            axes.set_title(title.strip(), size="small")
    return figure


if __name__ == "__main__":
    run()
