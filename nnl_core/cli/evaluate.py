"""``nnl eval``: metrics of a trained model."""

from __future__ import annotations

import argparse
import json
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
        "--data",
        metavar="NAME",
        help="data set of the project to evaluate on (default: test, or else validation)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_set(parser)


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Print the loss and the metrics."""
    import numpy as np

    from nnl_core.training import Evaluator
    from nnl_core.training.files import jsonable
    from nnl_core.training.run_folder import read_run

    saved = read_run(chosen_run(arguments.run), arguments.overrides)
    with open_run(saved, session) as workbench:
        model = workbench.model()
        model.load(saved.parameters)
        name = arguments.data or _default(list(workbench.settings.data))
        evaluator = Evaluator(model, workbench.data(name), name=name, session=workbench.session)
        metrics = evaluator.run()
    tables = {key: table.tolist() for key, table in evaluator.tables.items()}
    if arguments.json:
        print(json.dumps(jsonable({**metrics, **tables})))
    else:
        for key, value in metrics.items():
            print(f"{name} {key}: {value:.4f}")
        for key, table in evaluator.tables.items():
            shown = np.array2string(table, formatter={"float_kind": "{:6.4g}".format})
            print(f"{name} {key}:\n{shown}")
    return 0


def _default(known: list[str]) -> str:
    for name in ("test", "validation"):
        if name in known:
            return name
    raise DataError(
        f"the project has neither test nor validation data; say --data ({', '.join(known)})"
    )
