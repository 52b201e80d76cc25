from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from nnl_core import S
from nnl_core.errors import ConfigurationError
from nnl_core.session import Session
from nnl_core.training import Trainer
from nnl_core.training.plugins.learning_curve import draw


@pytest.fixture
def run(make_model, line, tmp_path):
    """Train for some epochs with plugins, in an empty folder."""

    def run(*plugins, epochs=2, folder: Path | None = tmp_path, **keywords):
        with Session(plugins, discover=False, environment={}) as session:
            trainer = Trainer(
                make_model(), line, S.Sgd(lr=0.1), epochs=epochs, batch_size=5, session=session,
                folder=folder, **keywords,
            )  # fmt: skip
            return trainer.run()

    return run


def test_nothing_acts_that_is_not_named(run, tmp_path, capsys):
    run()
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


def test_the_log_has_the_loss_of_each_step_and_the_metrics_of_each_epoch(run, line, tmp_path):
    result = run("metrics_log", evaluate={"test": line})
    found = [(entry["step"], entry["name"]) for entry in lines(tmp_path)]
    epoch = ["train/loss", "test/loss"]
    assert found == [
        (1, "loss"),
        (2, "loss"),
        *((2, name) for name in epoch),
        (3, "loss"),
        (4, "loss"),
        *((4, name) for name in epoch),
    ]
    assert lines(tmp_path)[-1]["value"] == result.metrics["test/loss"]
    seconds = [entry["seconds"] for entry in lines(tmp_path)]
    assert seconds == sorted(seconds)


def test_the_log_of_a_run_that_fails_is_kept(run, tmp_path):
    with pytest.raises(Exception, match="the loss is"):
        run("metrics_log", clip_grad_norm=None, weight_decay=-1e38, epochs=9)
    assert lines(tmp_path)


@pytest.mark.parametrize("plugin", ["metrics_log", "learning_curve"])
def test_a_plugin_that_writes_needs_a_folder(run, plugin):
    with pytest.raises(ConfigurationError, match=f"{plugin} writes into a folder"):
        run(plugin, folder=None)


def test_the_learning_curve_is_a_picture(run, tmp_path):
    pytest.importorskip("matplotlib")
    run("learning_curve")
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["learning_curve.png"]


def test_metrics_of_one_kind_share_a_panel(tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure")
    panels = []

    def note(self, path, **keywords):
        panels.extend(
            (axes.get_ylabel(), [line.get_xydata().tolist() for line in axes.lines])
            for axes in self.axes
        )
        path.touch()

    monkeypatch.setattr(figure.Figure, "savefig", note)
    history = [{"train/loss": 3.0, "test/loss": 4.0}, {"train/loss": 1.0, "train/accuracy": 0.5}]
    draw(history, tmp_path / "curve.png")
    assert panels == [("loss", [[[1, 3], [2, 1]], [[1, 4]]]), ("accuracy", [[[2, 0.5]]])]


def test_without_matplotlib_a_line_says_that_there_is_no_picture(
    run, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    run("learning_curve")
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err.splitlines() == [
        "learning_curve: no picture, since matplotlib is not installed"
    ]


def test_where_there_is_no_terminal_progress_is_a_line_for_each_epoch(run, capsys):
    result = run("progress")
    printed = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in printed] == ["epoch 1/2", "epoch 2/2"]
    assert f"train/loss {result.metrics['train/loss']:.4f}" in printed[1]
    assert "samples/s" in printed[0]
    assert printed[1].endswith("0 s left")


def test_a_terminal_without_rich_gets_the_same_lines_and_a_note(run, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run("progress")
    printed = capsys.readouterr().err.splitlines()
    assert printed[0] == "progress: plain lines, since rich is not installed"
    assert len(printed) == 3


def test_a_terminal_gets_a_bar_with_the_numbers(run, monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setattr("nnl_core.training.plugins.progress.INTERVAL", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    run("progress")
    shown = capsys.readouterr().err
    for text in ("epoch 2/2", "100%", "loss ", "samples/s", "left"):
        assert text in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")  # the cursor is back
    assert shown.endswith("\x1b[1A\x1b[2K")  # the bar's line is erased: its numbers are old


def test_the_bar_is_gone_when_a_run_fails(run, monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(Exception, match="the loss is"):
        run("progress", weight_decay=-1e38, epochs=9)
    shown = capsys.readouterr().err
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0
