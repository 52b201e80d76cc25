"""``nnl config``: what a project file may say, and what one comes to."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from nnl_core.cli.project import add_project, session_of
from nnl_core.hooks import SettingsSpec
from nnl_core.hooks.selection import SECTIONS, Project
from nnl_core.session import Session

if TYPE_CHECKING:
    from pydantic import BaseModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="show all settings of a project, defaults included")
    add_project(show)
    show.add_argument("--json", action="store_true", help="print JSON instead of TOML")
    actions.add_parser("schema", help="print the JSON schema of project files")


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Print the settings, or the schema."""
    if arguments.action == "schema":
        print(json.dumps(schema(session), indent=2))
        return 0
    from nnl_core.io.toml import to_toml
    from nnl_core.settings import open_project

    table = effective(open_project(arguments.project, arguments.overrides), session)
    print(json.dumps(table, indent=2) if arguments.json else to_toml(table), end="")
    if arguments.json:
        print()
    return 0


def effective(project: Project, session: Session) -> dict[str, Any]:
    """Return a project's settings with all defaults, and those of the plugins that it activates."""
    from pydantic import BaseModel

    from nnl_core.settings import check

    settings = check(project.table, project.where)
    table = settings.model_dump(mode="json", by_alias=True, exclude_none=True)
    if settings.train.steps is not None:
        del table["train"]["epochs"]  # the one that does not count
    own = session_of(project, session)
    for record in own.manager.collect(SettingsSpec, only_active=True):
        section, name = _place(record.name)
        found = own.plugin_settings(record.name, BaseModel)
        table[section][name] = found.model_dump(mode="json", by_alias=True, exclude_none=True)
    return table


def schema(session: Session) -> dict[str, Any]:
    """Return the JSON schema of project files, with the tables of all installed plugins."""
    from pydantic import Field, create_model

    from nnl_core.settings import ProjectSettings, Table

    tables: dict[str, dict[str, Any]] = {section: {} for section in ("plugin", *SECTIONS)}
    for record in session.manager.collect(SettingsSpec):
        section, name = _place(record.name)
        model: Any = session.manager.resolve(record)
        field = Field(None, alias=name, description=record.summary)
        tables[section][f"table_{len(tables[section])}"] = (model, field)
    sections: dict[str, Any] = {
        section: (create_model(f"{section}_tables", __base__=Table, **fields), Field(None))
        for section, fields in tables.items()
    }
    whole: type[BaseModel] = create_model("Project", __base__=ProjectSettings, **sections)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **whole.model_json_schema(by_alias=True),
        "title": "NNL project",
    }


def _place(name: str) -> tuple[str, str]:
    """Return the section and the name of a plugin's table."""
    section, dot, rest = name.partition(".")
    return (section, rest) if dot else ("plugin", name)
