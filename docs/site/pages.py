"""Pages of the reference, written while the site is built: one for each function, and the names.

MkDocs calls the ``on_*`` functions. What a page says stands in the function's docstring.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from nnl_core import PF, F, S
from nnl_core.testing.docstrings import read_page

ROOT = Path(__file__).parents[2]

MODULES = {
    "Graph": [
        "nnl_core.graph.variable.Variable",
        "nnl_core.graph.array.NdArray",
        "nnl_core.graph.autodiff.grad",
        "nnl_core.graph.execute.forward_all",
        "nnl_core.graph.modes",
        "nnl_core.graph.backend",
    ],
    "Operators": ["nnl_core.graph.operator", "nnl_core.graph.spec", "nnl_core.testing"],
    "Parameters": [
        "nnl_core.parameters",
        "nnl_core.module",
        "nnl_core.initializers",
        "nnl_core.random",
    ],
    "Data": ["nnl_core.data"],
    "Training": ["nnl_core.training", "nnl_core.settings"],
    "Hooks": ["nnl_core.hooks"],
    "Errors": ["nnl_core.errors"],
}
"""Pages of modules and classes that are described in one go."""

FROM_THE_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
}
"""Pages that stand elsewhere in the repository."""


class Entry(NamedTuple):
    """A public name: where its page is, and what it documents."""

    namespace: str
    name: str
    documented: Callable[..., Any]

    @property
    def module(self) -> str:
        """The module that defines it (of an operator: its reference)."""
        return str(getattr(self.documented, "module", self.documented.__module__))

    @property
    def family(self) -> str:
        """The last part of its module's name."""
        return self.module.rpartition(".")[2]

    @property
    def page(self) -> str:
        """The file of its page."""
        return f"reference/{self.namespace}/{self.name}.md"

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return read_page(self.documented).text.partition("\n")[0]


def entries(namespace: str, module: ModuleType) -> list[Entry]:
    """Everything that users call in ``F``, ``PF`` or ``S``."""
    found = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return [
        Entry(namespace, name, value) for name, value in sorted(found.items()) if callable(value)
    ]


def public() -> dict[str, list[Entry]]:
    """The entries of each namespace."""
    return {name: entries(name, module) for name, module in (("F", F), ("PF", PF), ("S", S))}


def page_of(entry: Entry) -> str:
    """What mkdocstrings makes of the docstring, under the name that users call."""
    title = f"{entry.namespace}.{entry.name}"
    options = f"    options: {{heading: {title}, toc_label: {title}, heading_level: 1}}"
    return f"::: {entry.module}.{entry.name}\n{options}\n"


def by_family(namespace: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Entries by the module that defines them, in the order of the modules' names."""
    families: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in namespace:
        families[entry.family].append(entry)
    return dict(sorted(families.items()))


def index_of(title: str, namespace: Iterable[Entry]) -> str:
    """Say in a line what each function does, family by family."""
    lines = [f"# {title}"]
    for family, members in by_family(namespace).items():
        about = (sys.modules[members[0].module].__doc__ or "").strip().partition("\n")[0]
        lines += [
            "",
            f"## {family.replace('_', ' ')}",
            "",
            about,
            "",
            "| name | |",
            "| --- | --- |",
        ]
        lines += [
            f"| [{entry.name}]({entry.name}.md) | {cell(entry.summary)} |" for entry in members
        ]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Write text so that it stays in its cell; between backticks a bar does."""
    outside, *rest = text.split("`")
    parts = [part.replace("|", "\\|") if i % 2 else part for i, part in enumerate(rest)]
    return "`".join([outside.replace("|", "\\|"), *parts])


def names(everything: dict[str, list[Entry]]) -> str:
    """Write what each is called in nnabla, PyTorch and ONNX, or why it is not."""
    lines = [
        "---",
        "hide: [toc]",
        "---",
        "",
        "# Names",
        "",
        "What is called what elsewhere. Where another library has no such function, the cell says",
        "how one writes it there.",
    ]
    for namespace, members in everything.items():
        lines += ["", f"## {namespace}", "", "| nnabla | NNL | PyTorch | ONNX |"]
        lines += ["| --- | --- | --- | --- |"]
        for entry in members:
            elsewhere = read_page(entry.documented).elsewhere
            nnabla, torch, onnx = (
                told(elsewhere.get(library)) for library in ("nnabla", "PyTorch", "ONNX")
            )
            link = f"[`{namespace}.{entry.name}`]({namespace}/{entry.name}.md)"
            lines.append(f"| {nnabla} | {link} | {torch} | {onnx} |")
    return "\n".join(lines) + "\n"


def told(counterpart: tuple[str, str] | None) -> str:
    """Write a counterpart, or why there is none."""
    if counterpart is None:
        return ""
    name, note = counterpart
    return cell(", ".join(part for part in (f"`{name}`" if name else "none", note) if part))


def pages() -> dict[str, str]:
    """The text of every generated page, by its file."""
    everything = public()
    found = {entry.page: page_of(entry) for members in everything.values() for entry in members}
    titles = {"F": "Functions", "PF": "Parametric functions", "S": "Solvers"}
    for namespace, members in everything.items():
        found[f"reference/{namespace}/index.md"] = index_of(titles[namespace], members)
    for title, modules in MODULES.items():
        directives = "".join(f"\n::: {module}\n" for module in modules)
        found[f"reference/{title.lower()}.md"] = f"# {title}\n{directives}"
    found["reference/names.md"] = names(everything)
    return found | {page: of_the_site(file) for file, page in FROM_THE_ROOT.items()}


def of_the_site(file: str) -> str:
    """A page of the repository, its links leading to the pages of the site."""
    text = (ROOT / file).read_text("utf-8").replace("](docs/", "](")
    for source, page in FROM_THE_ROOT.items():
        text = text.replace(f"]({source}", f"]({page}")
    return text


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the reference into the navigation."""
    everything = public()
    sections: list[Any] = []
    for title, namespace in (("Functions", "F"), ("Parametric functions", "PF"), ("Solvers", "S")):
        families = [
            {family.replace("_", " "): [{entry.name: entry.page} for entry in members]}
            for family, members in by_family(everything[namespace]).items()
        ]
        sections.append({title: [f"reference/{namespace}/index.md", *families]})
    sections += [{title: f"reference/{title.lower()}.md"} for title in MODULES]
    sections.append({"Names": "reference/names.md"})
    for item in config.nav or []:
        if "Reference" in item:
            item["Reference"] = sections
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
