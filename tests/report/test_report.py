"""``nnl report``: what is on the page, and that nothing on it does harm."""

from __future__ import annotations

import base64
import json
import re
import sys
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from nnl_core.cli import main
from nnl_core.hooks import Plugin, ReportSectionSpec
from nnl_core.io import load
from nnl_core.report import Html, ReportedRun, ReportSection, parts, picture, render_report, table
from nnl_core.session import Session
from nnl_core.training.runs import summary_of

SECTIONS = [
    "Summary",
    "Learning curves",
    "Confusion matrix",
    "Worst samples",
    "Layers",
    "Parameters",
    "Settings",
    "Environment",
]


@pytest.fixture
def report(trained, read_page, tmp_path, capsys):
    """Write the report of the trained run, with options, and read it."""

    def write(*options: str):
        out = tmp_path / "report.html"
        status = main(["report", str(trained[1]), "-o", str(out), *options])
        printed = capsys.readouterr()
        assert status == 0, printed.err
        assert printed.out.endswith(f"written to {out}\n")
        return read_page(out.read_text("utf-8"))

    return write


def logits(run, images):
    """What the model computes, in float64, by loops over places of the kernel."""
    stored = {name: p.array for name, p in load(run / "parameters.safetensors").parameters.items()}
    kernel, bias = (stored[f"conv/conv/{name}"].astype(np.float64) for name in "Wb")
    weight, offset = (stored[f"out/affine/{name}"].astype(np.float64) for name in "Wb")
    windows = np.lib.stride_tricks.sliding_window_view(
        images[:, 0].astype(np.float64), (3, 3), (1, 2)
    )
    hidden = np.einsum("nijkl,okl->noij", windows, kernel[:, 0]) + bias[:, None, None]
    return np.maximum(hidden, 0).reshape(len(images), -1) @ weight + offset


@pytest.fixture
def answers(trained):
    """Test images, labels, and the model's outputs for them."""
    project, run = trained
    with np.load(project / "bars.npz") as arrays:
        images, labels = arrays["test_x"], arrays["test_y"]
    return images, labels, logits(run, images)


def test_the_page_has_all_sections_in_order(report):
    assert list(report().sections) == SECTIONS


def test_the_page_needs_no_other_file_and_no_network(report, tmp_path):
    page = report()
    text = (tmp_path / "report.html").read_text("utf-8")
    assert [r for r in page.references if not r.startswith(("#", "data:image/"))] == []
    assert re.findall(r"url\((?!#)[^)]*\)|@import", text) == []
    assert not {"script", "link", "iframe", "object"} & set(page.tags)


def test_the_summary_has_the_metrics_of_the_result(report, trained):
    page = report()
    result = json.loads((trained[1] / "result.json").read_text("utf-8"))
    facts = page.rows("Summary")
    assert facts["state"] == ["finished"]
    assert facts["epochs"] == ["2 of 2"]
    last = {name: cells[0] for name, cells in page.rows("Summary", 1).items()}
    assert last == {name: f"{value:.4g}" for name, value in result["metrics"].items()}


def test_the_curves_are_there_as_pictures_and_numbers(report, trained):
    page = report()
    result = json.loads((trained[1] / "result.json").read_text("utf-8"))
    assert page.tags.count("svg") >= 3  # loss, accuracy, confusion
    head, *rows = page.tables["Learning curves"][0]
    losses = [row[head.index("test/loss")] for row in rows]
    assert losses == [f"{metrics['test/loss']:.4g}" for metrics in result["history"]]


def test_mistaken_classes_are_counted(report, answers):
    _, labels, outputs = answers
    page = report()
    predicted = outputs.argmax(axis=1)
    right = int(np.sum(predicted == labels))
    assert f"{right} of 21 samples of the data set test" in page.sections["Confusion matrix"]
    mistaken = {}
    for label, found in zip(labels, predicted, strict=True):
        if label != found:
            mistaken[str(label), str(found)] = mistaken.get((str(label), str(found)), 0) + 1
    rows = page.tables.get("Confusion matrix", [[]])[0][1:]
    assert {(a, b): int(count) for a, b, count in rows} == mistaken


def test_the_worst_samples_are_those_with_the_largest_losses(report, answers):
    _, labels, outputs = answers
    page = report()
    losses = np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(21), labels]
    order = np.argsort(-losses)[:16]
    text = page.sections["Worst samples"]
    assert [int(number) for number in re.findall(r"sample (\d+)loss", text)] == order.tolist()
    shown = [float(number) for number in re.findall(r"loss ([\d.e-]+)target", text)]
    assert shown == pytest.approx(losses[order], rel=2e-3, abs=1e-6)


def test_samples_are_shown_as_images_of_their_values(report, answers):
    images, labels, outputs = answers
    page = report()
    losses = np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(21), labels]
    source = page.images["Worst samples"][0]
    data = base64.b64decode(source.removeprefix("data:image/png;base64,"))
    shown = np.asarray(Image.open(BytesIO(data)), np.float64)
    worst = images[np.argmax(losses), 0].astype(np.float64)
    expected = (worst - worst.min()) / (worst.max() - worst.min()) * 255
    np.testing.assert_allclose(shown, expected, atol=0.51)


def test_parameters_are_described_by_their_values(report, trained):
    rows = report().rows("Parameters")
    stored = load(trained[1] / "parameters.safetensors").parameters
    assert rows.keys() == stored.keys()
    for name, parameter in stored.items():
        values = parameter.array.astype(np.float64)
        expected = [values.mean(), values.std(), np.linalg.norm(values)]
        shape, count, *numbers, _ = rows[name]
        assert shape == "x".join(map(str, values.shape))
        assert int(count.replace(",", "")) == values.size
        assert [float(n) for n in numbers] == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_layers_have_shapes_multiply_adds_and_parameters(report):
    page = report()
    convolution, rectifier, affine = page.tables["Layers"][0][1:]
    # 2 channels of 4 x 4 places, 9 products each; 2 kernels of 9 and 2 biases.
    assert convolution[1:4] == ["1x2x4x4", "288", "20"]
    assert rectifier[1:4] == ["1x2x4x4", "32", ""]
    assert affine[1:4] == ["1x3", "96", "99"]
    assert all(float(row[4]) >= 0 for row in (convolution, rectifier, affine))


def test_settings_are_those_that_the_run_was_made_with(report, trained):
    (trained[0] / "nnl.toml").unlink()
    rows = report().rows("Settings")
    assert rows["solver.alpha"] == ["0.05"]
    assert rows["model.function"] == ["model:small"]


def test_the_environment_names_versions(report):
    assert report().rows("Environment")["numpy"] == [np.__version__]


def test_samples_come_from_the_data_set_that_is_named(report):
    page = report("--data", "train", "--samples", "7")
    assert "the first 7 of 60 samples of the data set train" in page.sections["Worst samples"]


def test_without_a_file_the_page_is_in_the_run_s_folder(trained, capsys):
    project, run = trained
    assert main(["report", str(project)]) == 0
    assert capsys.readouterr().out == f"written to {run / 'report.html'}\n"
    assert (run / "report.html").is_file()


# -------------------------------------------------------------------- what cannot be had


def test_a_run_that_failed_has_a_page_that_says_what_it_lacks(
    write_run, read_page, tmp_path, capsys
):
    run = write_run(tmp_path / "a")
    assert main(["report", str(run)]) == 0
    page = read_page((run / "report.html").read_text("utf-8"))
    assert page.rows("Summary")["state"] == ["failed"]
    for section in ("Confusion matrix", "Worst samples", "Layers", "Parameters"):
        assert "Not available: " in page.sections[section]
        assert "has no parameters" in page.sections[section]
    assert "Learning curves" not in page.sections


def test_a_run_that_has_not_finished_is_shown_as_of_its_newest_checkpoint(report, trained):
    _, run = trained
    for number in (1, 10, 9):
        (run / "checkpoints" / str(number)).mkdir(parents=True)
    (run / "parameters.safetensors").rename(run / "checkpoints" / "10" / "parameters.safetensors")
    (run / "result.json").unlink()
    page = report()
    assert page.rows("Summary")["state"] == ["failed"]
    assert "checkpoints/10/parameters.safetensors" in page.sections["Parameters"]
    assert "21 samples" in page.sections["Worst samples"]


def test_where_the_data_has_gone_the_rest_is_there(report, trained):
    (trained[0] / "bars.npz").unlink()
    page = report()
    assert "bars.npz" in page.sections["Worst samples"]
    assert page.rows("Parameters")


def test_data_that_has_moved_can_be_named(report, trained, tmp_path):
    (trained[0] / "bars.npz").rename(tmp_path / "moved.npz")
    page = report("--set", f"data.test.source={tmp_path / 'moved.npz'}")
    assert "21 samples" in page.sections["Worst samples"]


def test_a_model_of_numbers_has_no_confusion_matrix(report, trained):
    description = json.loads((trained[1] / "run.json").read_text("utf-8"))
    description["settings"]["model"]["loss"] = "model:distance"
    description["settings"]["model"]["metrics"] = []
    with (trained[1] / "source" / "model.py").open("a", encoding="utf-8") as file:
        file.write(
            "\ndef distance(a, b):\n    return (F.mean(a, axis=1, keepdims=True) - b) ** 2\n"
        )
    with np.load(trained[0] / "bars.npz") as arrays:
        found = dict(arrays)
    found["test_y"] = found["test_y"][:, None] + 0.5
    np.savez(trained[0] / "bars.npz", **found)
    (trained[1] / "run.json").write_text(json.dumps(description), "utf-8")
    page = report()
    assert "Confusion matrix" not in page.sections
    assert re.search(
        r"target [\d.]+predicted [-\d.]+, [-\d.]+, [-\d.]+", page.sections["Worst samples"]
    )


def test_a_model_that_has_nothing_for_single_samples_is_said_to_have_none(
    tmp_path, read_page, capsys, monkeypatch
):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "model.py").write_text(
        "from nnl_core import F, PF\n\n\n"
        "def net(x):\n    return {'loss': F.mean(PF.affine(x, 1) ** 2)}\n",
        "utf-8",
    )
    (tmp_path / "nnl.toml").write_text(
        '[model]\nfunction = "model:net"\n[data.train]\nsource = "x.npz"\n[solver]\nname = "Sgd"\n'
        "[train]\nepochs = 1\n",
        "utf-8",
    )
    np.savez(tmp_path / "x.npz", x=np.ones((5, 2), np.float32))
    assert main(["train", str(tmp_path)]) == 0
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 0
    assert "warning" not in capsys.readouterr().err
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "not a row for each: there is nothing to say of single samples" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no folder nowhere"),
        (["bars", "--samples", "0"], "look at one sample at least"),
        (["broken"], "cannot read"),
        (["bars", "-o", "nowhere/r.html"], "nowhere/r.html: cannot be written"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(trained, tmp_path, capsys, arguments, message):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{", "utf-8")
    assert main(["report", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


# -------------------------------------------------------------------- what does no harm

HARM = "<script>alert('&\"')</script>"


def test_what_a_run_says_is_text_on_its_page(write_run, read_page, tmp_path):
    run = write_run(
        tmp_path / "a",
        [{f"test/{HARM}": 1.0}],
        name=HARM,
        settings={"model": {HARM: HARM}, HARM: 1},
        stopped=HARM,
    )
    assert main(["report", str(run)]) == 0
    page = read_page((run / "report.html").read_text("utf-8"))
    assert "script" not in page.tags
    assert page.title == HARM
    assert page.rows("Summary")["stopped"] == [HARM]
    assert page.rows("Summary", 1).keys() == {f"test/{HARM}"}
    assert page.rows("Settings")[f"model.{HARM}"] == [HARM]


def test_cells_and_labels_are_escaped(read_page):
    text = table((HARM,), [(HARM,)]) + picture(np.eye(4), f'"{HARM}')
    assert "<script" not in text
    assert read_page(text).tags.count("img") == 1


def test_names_are_no_formulas_for_the_curves(write_run, read_page, tmp_path):
    run = write_run(tmp_path / "a", [{"test/$\\frac{1": 1.0}], name="$x_{$")
    assert main(["report", str(run)]) == 0
    page = read_page((run / "report.html").read_text("utf-8"))
    assert "$\\frac{1" in page.sections["Learning curves"]
    assert "svg" in page.tags


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_what_is_not_installed_is_named(write_run, tmp_path, monkeypatch, capsys, module):
    run = write_run(tmp_path / "a", [{"test/loss": 1.0}])
    monkeypatch.setattr("nnl_core.report.parts.find_spec", {module: None}.get)
    parts._environment.cache_clear()
    command = "report" if module == "jinja2" else "plot"
    assert main([command, str(run), "-o", str(tmp_path / "out.png")]) == 1
    assert f"this needs {module}; install it, or nnl-core[standard]" in capsys.readouterr().err


# -------------------------------------------------------------------- sections of plugins


class GalleryPlugin(Plugin):
    name = "gallery"

    def nnl_report_sections(self):
        yield ReportSectionSpec("gallery", f"{__name__}:gallery", "a plugin's own")


class BrokenPlugin(Plugin):
    name = "broken"

    def nnl_report_sections(self):
        yield ReportSectionSpec("broken", f"{__name__}:broken", "one that fails")


def gallery(run: ReportedRun):
    loss = run.summary.metrics["test/loss"]
    return ReportSection("Gallery", [f"<loss> {loss}", Html("<b>bold</b>")])


def broken(run: ReportedRun):
    raise RuntimeError(HARM)


def rendered(run, plugin, *, active=True):
    """The page about a run with a plugin, and what was complained of."""
    complaints = []
    with Session(environment={}) as session:
        session.manager.register(plugin, active=active)
        reported = ReportedRun(summary_of(run), session, "not opened")
        return render_report(reported, complaints.append), complaints


def test_a_plugin_s_section_comes_after_the_core_s(write_run, read_page, tmp_path):
    run = write_run(tmp_path / "a", [{"test/loss": 0.25}])
    text, complaints = rendered(run, GalleryPlugin)
    page = read_page(text)
    assert list(page.sections)[-1] == "Gallery"
    assert "<loss> 0.25" in page.sections["Gallery"]
    assert "<b>bold</b>" in text
    assert complaints == []


def test_a_plugin_that_is_not_active_has_no_section(write_run, read_page, tmp_path):
    text, _ = rendered(
        write_run(tmp_path / "a", [{"test/loss": 0.25}]), GalleryPlugin, active=False
    )
    assert "Gallery" not in read_page(text).sections


def test_a_section_that_fails_is_named_and_leaves_the_rest(write_run, read_page, tmp_path):
    text, complaints = rendered(write_run(tmp_path / "a", [{}]), BrokenPlugin)
    page = read_page(text)
    assert "report section 'broken' of plugin 'broken'" in page.sections["Broken"]
    assert "RuntimeError" in complaints[0]
    assert "Environment" in page.sections
    assert "script" not in page.tags
