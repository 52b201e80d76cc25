"""``nnl infer``: what a trained model makes of a file of inputs."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnl_core.cli.project import add_set, chosen_run, open_run
from nnl_core.errors import DataError
from nnl_core.session import Session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="folder of a run, or of a project: its newest"
    )
    parser.add_argument(
        "--input",
        type=Path,
        required=True,
        metavar="FILE",
        help=".npz with an array for each field, or .npy with the field x; prepared like --data",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("predictions.npz"),
        metavar="FILE",
        help="the .npz to write (default: predictions.npz)",
    )
    parser.add_argument(
        "--data",
        default="train",
        metavar="NAME",
        help="data set whose shapes and scales apply to the input (default: train)",
    )
    add_set(parser)


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Write the outputs of the model, an array for each."""
    import numpy as np

    from nnl_core.data.arrays import read_arrays
    from nnl_core.io.atomic import replace_file
    from nnl_core.training import Predictor
    from nnl_core.training.run_folder import read_run

    output: Path = arguments.output
    if output.suffix != ".npz":
        raise DataError(f"--output {output}: the file's name must end in .npz")
    saved = read_run(chosen_run(arguments.run), arguments.overrides)
    with open_run(saved, session) as workbench:
        model = workbench.model()
        model.load(saved.parameters)
        arrays = read_arrays(arguments.input)
        data = workbench.prepared(arrays, arguments.data, str(arguments.input))
        predictions = Predictor(model).run(data)
    with replace_file(output) as file:
        np.savez(file, allow_pickle=False, **predictions)
    for name, array in predictions.items():
        print(f"{name}: {array.dtype} {array.shape}")
    print(f"written to {output}")
    return 0
