"""The benchmarks measure what they say: how often a case is called, and what a line of code is."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from benchmarks import lines, run, timing
from benchmarks.report import Report

RESULTS = Path(__file__).parents[2] / "benchmarks" / "RESULTS.md"


def test_every_case_is_timed_once_a_round():
    ticks = itertools.count().__next__
    called = []
    cases = {"a": lambda: called.append("a"), "b": lambda: called.append("b")}
    timers = {name: timing.timer(call, ticks) for name, call in cases.items()}
    samples = timing.interleave(timers, rounds=3, sample_seconds=1)
    assert samples == {"a": [1.0] * 3, "b": [1.0] * 3}
    rounds = called[-6:]
    assert [sorted(rounds[start : start + 2]) for start in (0, 2, 4)] == [["a", "b"]] * 3


def test_a_ratio_is_taken_between_neighbours():
    samples = {"a": [1.0, 10.0, 100.0], "b": [2.0, 20.0, 100.0]}
    name, median, _, unit, ratio, _ = timing.timing_row("b", samples, baseline="a", description="")
    assert (name, median, unit, ratio) == ("b", 20.0, "s", 2.0)


def test_blank_lines_comments_and_docstrings_are_no_code():
    source = '''"""Module."""

# comment
def f(
    x,  # an argument
):
    """Function.

    More.
    """
    text = """
a string is code"""
    return x, text
'''
    assert lines.code_lines(source) == 6


def test_a_report_reads_the_same_as_text_and_as_json():
    report = Report("Title", ("name", "value"), [("x", 1.25), ("y", None)], ["A note."])
    assert "| x    |  1.25 |\n| y    |     - |" in report.as_text()
    parsed = json.loads(report.as_json())
    assert parsed["rows"] == [{"name": "x", "value": 1.25}, {"name": "y", "value": None}]
    assert (parsed["title"], parsed["notes"]) == ("Title", ["A note."])


def test_an_unknown_benchmark_is_refused_with_the_names_of_those_there_are(capsys):
    with pytest.raises(SystemExit) as exit_:
        run.main(["nonsense"])
    assert exit_.value.code == 2
    message = capsys.readouterr().err
    assert all(name in message for name in run.BENCHMARKS)


def test_every_benchmark_has_its_last_result_on_the_page():
    page = RESULTS.read_text("utf-8")
    assert [name for name in run.BENCHMARKS if f"python -m benchmarks.run {name}" not in page] == []
