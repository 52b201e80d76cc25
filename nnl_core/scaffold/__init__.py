"""Starting a plugin: templates that work and pass their own tests, filled in with names."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from string import Template

from nnl_core import __version__
from nnl_core.builtin import COMMANDS, OPERATORS, PLUGINS, CorePlugin
from nnl_core.errors import ConfigurationError

TEMPLATES = Path(__file__).parent / "templates"
SUFFIX = ".template"
KINDS = {
    "callback": "a callback of training runs",
    "command": "a command of nnl",
    "explainer": "an explainer of a model's output",
    "layers": "layers",
    "operators": "operators",
}
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_LONGEST = 28  # with which the lines of all templates keep to their length
_TAKEN = {
    CorePlugin.name,
    *(name for name, _, _ in PLUGINS),
    *(record.name for record in (*COMMANDS, *OPERATORS)),
}


def create(name: str, kind: str, directory: Path) -> Path:
    """Write the plugin ``name`` into a new folder of ``directory``, and return that folder.

    Raises ConfigurationError where the name will not do or the folder exists. The folder appears
    when all of it is written, or not at all.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST or name.startswith(("nnl-", "nnl_")):
        raise ConfigurationError(
            f"{name!r} will not do as the name of a plugin: {_LONGEST} small letters and digits at "
            "most, with single '-' or '_' between, and without 'nnl-' in front"
        )
    plugin = name.replace("-", "_")
    if plugin in _TAKEN:
        raise ConfigurationError(f"{name!r} is the name of something in nnl-core; choose another")
    if kind not in KINDS:
        raise ConfigurationError(f"there is no kind {kind!r} of plugin; use {', '.join(KINDS)}")
    names = {
        "plugin": plugin,
        "package": f"nnl_{plugin}",
        "distribution": f"nnl-{name.replace('_', '-')}",
        "class_name": "".join(part.capitalize() for part in plugin.split("_")),
        "what": KINDS[kind],
        "core_versions": _compatible_versions(),
    }
    folder = directory / names["distribution"]
    if folder.exists():
        raise ConfigurationError(
            f"{folder} exists already; remove it or choose another --directory"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=directory))
    except OSError as error:
        raise ConfigurationError(f"cannot write into {directory}: {error}") from error
    try:
        for part in ("common", kind):
            _fill(TEMPLATES / part, draft, names)
        draft.chmod(0o755)  # a temporary folder is for its owner only
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return folder


def _fill(source: Path, folder: Path, names: dict[str, str]) -> None:
    for path in sorted(source.rglob(f"*{SUFFIX}")):
        place = path.relative_to(source).as_posix().removesuffix(SUFFIX)
        target = folder / place.replace("PACKAGE", names["package"])
        target.parent.mkdir(parents=True, exist_ok=True)
        text = Template(path.read_text("utf-8")).substitute(names)
        target.write_text(text, "utf-8")


def _compatible_versions() -> str:
    """Return the versions of nnl-core that the plugin is made for: this minor version."""
    major, minor = (int(part) for part in __version__.split(".")[:2])
    return f">={major}.{minor},<{major}.{minor + 1}"
