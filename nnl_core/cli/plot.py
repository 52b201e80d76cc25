"""``nnl plot``: what runs measured, as a picture."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnl_core.errors import DataError
from nnl_core.session import Session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="folders of runs, or of projects: all their runs",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("curves.png"),
        metavar="FILE",
        help="the .png to write (default: curves.png)",
    )
    parser.add_argument(
        "--metric",
        dest="metrics",
        action="append",
        metavar="NAME",
        help="draw test/accuracy, or accuracy of all data; may be repeated (default: everything)",
    )
    parser.add_argument(
        "--mean",
        action="store_true",
        help="draw runs that differ in their seeds alone as a mean, and a band of one deviation",
    )


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Draw the picture; runs without any epoch are left out."""
    from nnl_core.io import replace_file
    from nnl_core.report.curves import draw_curves, each_alone, repeated
    from nnl_core.training.runs import list_runs

    path: Path = arguments.output
    if path.suffix != ".png":
        raise DataError(f"--output {path}: the file's name must end in .png")
    runs = [found for place in arguments.runs for found in list_runs(place)]
    groups = repeated(runs) if arguments.mean else each_alone(runs)
    figure = draw_curves(groups, arguments.metrics, foreground="black")
    with replace_file(path) as file:
        figure.savefig(file, format="png", dpi=120, metadata={"Software": None})
    print(f"{len(groups)} {'curve' if len(groups) == 1 else 'curves'} in {path}")
    return 0
