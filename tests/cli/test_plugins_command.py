"""``nnl plugins``: all that is installed, with what is wrong beside what is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnl_core.hooks import Plugin, SolverSpec

MAIN = "import sys; from nnl_core.cli import main; sys.exit(main())"


def run(site: Path, folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    paths = [str(site), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def install(site: Path, name: str, source: str, version: str = "1.0") -> None:
    module = f"nnl_{name}_plugin"
    (site / f"{module}.py").write_text(source)
    info = site / f"nnl_{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.3\nName: nnl-{name}\nVersion: {version}\nSummary: the {name}\n"
    )
    (info / "entry_points.txt").write_text(f"[nnl.plugins]\n{name} = {module}:P\n")


GOOD = """
from nnl_core.hooks import Plugin, SolverSpec
class P(Plugin):
    name = {name!r}
    api = "1.0"
    def nnl_solvers(self):
        return [SolverSpec({name!r} + "-solver", "json:dumps", "a solver")]
    def nnl_on_step_end(self, event):
        pass
"""


@pytest.fixture
def site(tmp_path):
    """Two plugins that work and one that does not."""
    folder = tmp_path / "site"
    folder.mkdir()
    for name in ("zest", "apple"):
        install(folder, name, GOOD.format(name=name))
    install(folder, "crumble", "import no_such_module", version="0.3")
    return folder


def test_json_lists_a_broken_plugin_with_its_cause_beside_good_ones(site, tmp_path):
    (tmp_path / "nnl.toml").write_text('plugins = ["zest"]')
    status, out, err = run(site, tmp_path, "plugins", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert status == 0
    assert rows["zest"] == {
        "name": "zest",
        "distribution": "nnl-zest",
        "version": "1.0",
        "entry_point": "nnl_zest_plugin:P",
        "summary": "the zest",
        "state": "active",
        "cause": "",
        "api": "1.0",
        "requires": [],
        "hooks": ["nnl_on_step_end", "nnl_solvers"],
        "components": {"solver": ["zest-solver"]},
        "import_ms": rows["zest"]["import_ms"],
    }
    assert rows["apple"]["state"] == "available"
    assert (rows["crumble"]["state"], rows["crumble"]["version"]) == ("failed", "0.3")
    cause = "target 'nnl_crumble_plugin:P': ModuleNotFoundError: No module named 'no_such_module'"
    assert rows["crumble"]["cause"] == cause
    assert f"nnl: warning: plugin 'crumble' (nnl-crumble 0.3): {cause}; left out\n" in err
    assert "Traceback" not in err


def test_the_table_has_one_line_for_each_plugin(site, tmp_path):
    status, out, _ = run(site, tmp_path, "-p", "no:apple", "plugins")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert status == 0
    assert lines["name"].split() == ["name", "distribution", "version", "state"]
    assert lines["apple"].endswith("disabled   by -p no:apple")
    assert lines["zest"].endswith("available  the zest")
    assert "failed     target 'nnl_crumble_plugin:P'" in lines["crumble"]


def test_verbose_shows_hooks_components_and_import_times(site, tmp_path):
    _, out, _ = run(site, tmp_path, "plugins", "-v")
    block = out.split("zest")[1] + out.split("zest", 1)[1]
    assert "hooks: nnl_on_step_end, nnl_solvers" in block
    assert "solver: zest-solver" in block
    assert " ms" in block


def test_help_works_with_a_broken_plugin_installed(site, tmp_path):
    status, out, err = run(site, tmp_path, "--help")
    assert status == 0
    assert "train " in out
    assert err.count("\n") == err.count("nnl: warning:")


def test_strict_stops_other_commands_and_lets_this_one_explain(site, tmp_path):
    install(
        site,
        "tart",
        "from nnl_core.hooks import CommandSpec, Plugin\n"
        "class P(Plugin):\n    name = 'tart'\n"
        "    def nnl_commands(self): return [CommandSpec('bake', 'json', 'bake')]\n",
    )
    status, _, err = run(site, tmp_path, "bake", NNL_STRICT_PLUGINS="1")
    assert status == 1
    assert err.splitlines()[-1].startswith("nnl: error: plugin ")
    status, out, _ = run(site, tmp_path, "plugins", "--json", NNL_STRICT_PLUGINS="1")
    assert status == 0
    assert {"crumble", "zest"} <= {row["name"] for row in json.loads(out)}


def test_autoload_off_imports_nothing(site, tmp_path):
    _, out, err = run(site, tmp_path, "plugins", "--json", NNL_DISABLE_PLUGIN_AUTOLOAD="1")
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["crumble"]["state"] == "disabled"
    assert rows["crumble"]["cause"] == "plugin autoload is off"
    assert err == ""


def test_doctor_reports_all_problems_with_status_1(site, tmp_path):
    install(
        site,
        "pie",
        GOOD.format(name="pie").replace("json:dumps", "json:dump_it").replace("a solver", "pie"),
    )
    (tmp_path / "nnl.toml").write_text('plugins = ["zset"]')
    status, out, _ = run(site, tmp_path, "plugins", "doctor", "--json")
    problems = json.loads(out)
    by_plugin = {problem["plugin"]: problem["problem"] for problem in problems}
    assert status == 1
    assert by_plugin["plugin 'pie' (nnl-pie 1.0)"].startswith(
        "solver 'pie-solver': target 'json:dump_it': 'json' has no attribute 'dump_it'"
    )
    assert "no_such_module" in by_plugin["plugin 'crumble' (nnl-crumble 0.3)"]
    assert "'zset' (named by nnl.toml) is not installed; did you mean 'zest'" in by_plugin[""]


def test_doctor_names_all_that_the_project_asks_for_and_cannot_have(site, tmp_path):
    (tmp_path / "nnl.toml").write_text(
        'plugins = ["no", "zest"]\nrequired_plugins = ["nnl-zest>=2", "nnl-none", "x=y"]\n'
        "[plugin.zest]\npeel = 1\n[plugin.nobody]\nx = 1\n"
    )
    _, out, _ = run(site, tmp_path, "plugins", "doctor", "--json")
    found = [problem["problem"] for problem in json.loads(out) if not problem["plugin"]]
    assert found == [
        "plugin 'no' (named by nnl.toml) is not installed",
        "plugin 'zest' (nnl-zest 1.0) is installed, but 'nnl-zest>=2' is required",
        "the required plugin 'nnl-none' is not installed",
        "required_plugins: cannot read the version clause '=y'",
        "nnl.toml [plugin.zest]: plugin 'zest' takes no settings",
        "nnl.toml [plugin.nobody]: plugin 'nobody' is not installed",
    ]


def test_json_is_json_whatever_plugins_print(site, tmp_path):
    install(site, "loud", "print('I am here')\n" + GOOD.format(name="loud"))
    _, out, err = run(site, tmp_path, "plugins", "--json")
    assert "loud" in {row["name"] for row in json.loads(out)}
    assert "I am here\n" in err


def test_doctor_finds_nothing_wrong_with_the_core(nnl_run):
    outcome = nnl_run("plugins", "doctor")
    assert outcome.stdout.endswith("no problems\n")
    assert outcome.status == 0


def test_doctor_reports_what_does_not_resolve(nnl_run):
    record = SolverSpec("s", "no_such_module:f", "")
    plugin = type("P", (Plugin,), {"name": "p", "nnl_solvers": lambda self: [record]})
    outcome = nnl_run("plugins", "doctor", plugins=[plugin])
    assert outcome.status == 1
    assert "plugin 'p': solver 's': target 'no_such_module:f': " in outcome.stdout
