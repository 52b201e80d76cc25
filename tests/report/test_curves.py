"""The curves of runs: which lines are drawn, and through which numbers."""

from __future__ import annotations

import math
import struct

import pytest

from nnl_core.cli import main
from nnl_core.errors import DataError
from nnl_core.report.curves import draw_curves, each_alone, panels_of, repeated
from nnl_core.training.runs import list_runs


def history(*losses, part="test"):
    return [{f"{part}/loss": loss} for loss in losses]


def seeded(seed, **train):
    return {"train": {"epochs": 3, "seed": seed, **train}}


def test_the_same_number_of_two_data_sets_shares_a_panel(write_run, tmp_path):
    write_run(tmp_path / "a", [{"train/loss": 2.0, "test/loss": 3.0, "test/accuracy": 0.5}])
    panels = panels_of(each_alone(list_runs(tmp_path)))
    assert {kind: [line.part for line in lines] for kind, lines in panels.items()} == {
        "loss": ["train", "test"],
        "accuracy": ["test"],
    }


def test_a_line_goes_through_the_epochs_that_have_the_number(write_run, tmp_path):
    write_run(tmp_path / "a", [{"test/loss": 3.0}, {}, {"test/loss": 1.0}])
    (line,) = panels_of(each_alone(list_runs(tmp_path)))["loss"]
    assert line.epochs.tolist() == [1, 3]
    assert line.values.tolist() == [3.0, 1.0]
    assert line.spread is None


def test_runs_that_differ_in_their_seeds_are_one_line_with_mean_and_deviation(write_run, tmp_path):
    write_run(tmp_path / "a", history(1.0, 4.0), settings=seeded(0))
    write_run(tmp_path / "b", history(3.0, 4.0), settings=seeded(1))
    (line,) = panels_of(repeated(list_runs(tmp_path)))["loss"]
    assert line.values.tolist() == [2.0, 4.0]
    # Of two values, one apart from their mean: the root of (1 + 1) / (2 - 1).
    assert line.spread.tolist() == pytest.approx([math.sqrt(2), 0.0])
    assert line.label == "digits (2 runs)"


def test_a_mean_ends_where_the_first_of_its_runs_ends(write_run, tmp_path):
    write_run(tmp_path / "a", history(1.0, 2.0, 3.0), settings=seeded(0))
    write_run(tmp_path / "b", history(1.0, 2.0), settings=seeded(1))
    (line,) = panels_of(repeated(list_runs(tmp_path)))["loss"]
    assert line.epochs.tolist() == [1, 2]


def test_runs_that_differ_otherwise_are_not_mixed(write_run, tmp_path):
    write_run(tmp_path / "a", history(1.0), settings=seeded(0))
    write_run(tmp_path / "b", history(3.0), settings=seeded(1, batch_size=8))
    labels = [line.label for line in panels_of(repeated(list_runs(tmp_path)))["loss"]]
    assert labels == ["a", "b"]


def test_runs_of_one_name_are_called_like_their_folders(write_run, tmp_path):
    for folder, name in (("a", "digits"), ("b", "digits"), ("c", "letters")):
        write_run(tmp_path / folder, history(1.0), name=name)
    assert [group.label for group in each_alone(list_runs(tmp_path))] == ["a", "b", "letters"]


def test_a_run_without_an_epoch_is_left_out(write_run, tmp_path):
    write_run(tmp_path / "a", history(1.0))
    write_run(tmp_path / "b")
    assert len(each_alone(list_runs(tmp_path))) == len(repeated(list_runs(tmp_path))) == 1


def test_where_no_epoch_is_over_there_is_nothing_to_draw(write_run, tmp_path):
    write_run(tmp_path / "a")
    with pytest.raises(DataError, match="nothing to draw"):
        draw_curves(each_alone(list_runs(tmp_path)))


def drawn(figure):
    return [[line.get_ydata().tolist() for line in axes.get_lines()] for axes in figure.axes]


def test_a_metric_is_chosen_with_or_without_its_data_set(write_run, tmp_path):
    write_run(tmp_path / "a", [{"train/loss": 2.0, "test/loss": 3.0, "test/accuracy": 0.5}])
    groups = each_alone(list_runs(tmp_path))
    assert drawn(draw_curves(groups, ["loss"])) == [[[2.0], [3.0]]]
    assert drawn(draw_curves(groups, ["test/loss"])) == [[[3.0]]]


def test_a_metric_that_no_run_has_is_an_error_with_the_nearest(write_run, tmp_path):
    write_run(tmp_path / "a", [{"test/accuracy": 0.5}])
    with pytest.raises(DataError, match="no metric 'test/acuracy'; did you mean 'test/accuracy'"):
        draw_curves(each_alone(list_runs(tmp_path)), ["test/acuracy"])


def test_a_mean_has_a_band_of_one_deviation(write_run, tmp_path):
    write_run(tmp_path / "a", history(1.0), settings=seeded(0))
    write_run(tmp_path / "b", history(3.0), settings=seeded(1))
    (axes,) = draw_curves(repeated(list_runs(tmp_path))).axes
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((2 - math.sqrt(2), 2 + math.sqrt(2)))


def test_several_runs_have_a_colour_each_and_data_sets_a_style(write_run, tmp_path):
    for folder in "ab":
        write_run(tmp_path / folder, [{"train/loss": 2.0, "test/loss": 3.0}])
    (axes,) = draw_curves(each_alone(list_runs(tmp_path))).axes
    looks = {
        line.get_label(): (line.get_color(), line.get_linestyle()) for line in axes.get_lines()
    }
    assert looks["a train"][0] == looks["a test"][0] != looks["b train"][0]
    assert looks["a train"][1] == looks["b train"][1] != looks["a test"][1]


def test_many_runs_have_one_legend_beside_the_panels(write_run, tmp_path):
    names = "abcdefghijklmnopqrst"
    for folder in names:
        write_run(tmp_path / folder, [{"train/loss": 2.0, "test/loss": 3.0}], name=folder)
    figure = draw_curves(each_alone(list_runs(tmp_path)))
    (axes,) = figure.axes
    (legend,) = figure.legends
    assert axes.get_legend() is None
    assert [text.get_text() for text in legend.get_texts()] == [*names, "train", "test"]
    assert len({line.get_color() for line in axes.get_lines()}) == len(names)


def test_the_command_writes_a_png(write_run, tmp_path, capsys):
    write_run(tmp_path / "runs" / "a", history(1.0, 0.5))
    out = tmp_path / "curves.png"
    assert main(["plot", str(tmp_path / "runs"), "-o", str(out)]) == 0
    content = out.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert width > height > 200
    assert capsys.readouterr().out == f"1 curve in {out}\n"


def test_the_picture_is_put_here_unless_said_otherwise(write_run, tmp_path, monkeypatch):
    write_run(tmp_path / "a", history(1.0, 0.5))
    monkeypatch.chdir(tmp_path)
    assert main(["plot", "a"]) == 0
    assert (tmp_path / "curves.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs", "-o", "curves.jpg"], "the file's name must end in .png"),
        (["runs", "-o", "curves.png", "--metric", "x"], "no metric 'x'"),
        (["nowhere", "-o", "curves.png"], "no folder nowhere"),
        (["runs", "-o", "nowhere/curves.png"], "nowhere/curves.png: cannot be written"),
    ],
)
def test_what_is_wrong_with_a_picture_is_said_in_one_line(
    write_run, tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a", history(1.0))
    assert main(["plot", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not list(tmp_path.glob("curves.*"))
