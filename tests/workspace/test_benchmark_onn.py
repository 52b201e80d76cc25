"""The benchmark of operational layers compares the same layers, and holds them to its bars."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from benchmarks.onn import compare
from benchmarks.onn.cases import CASES, GENERATIVE, OPERATIONAL, Case, small
from benchmarks.onn.nnl_worker import NnlLayer

MIB = compare.MIB


def measured(case, ratio, memory=100.0):
    times = {"NNL": 1.0, "PyTorch": ratio}
    return compare.Measured(case, times, ratio, {"NNL": MIB, "PyTorch": round(memory * MIB)})


def windows(x):
    """Return what each tap of a 3x3 kernel sees: (batch, channels, places, places, 3, 3)."""
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))


def results(case):
    given = small(case, 0)
    with nnl.backend_scope("numpy"):
        layer = NnlLayer(case, given, True)
        layer.step()
        return given, {name: np.array(value) for name, value in layer.results().items()}


def test_operational_layers_sum_pooled_taps_and_subtract_the_bias_inside_tanh():
    given, found = results(Case("i", "sinh", "median"))
    values = np.sinh(0.1 * windows(given["x"])[:, np.newaxis] * given["w"][:, :, None, None])
    pooled = np.median(values.reshape(*values.shape[:-2], 9), axis=-1)
    expected = np.tanh(pooled.sum(axis=2) - given["b"][:, None, None])
    assert found["y"] == pytest.approx(expected, rel=1e-5)
    assert found["db"] == pytest.approx(-(given["g"] * (1 - expected**2)).sum((0, 2, 3)), rel=1e-4)


def test_generative_layers_convolve_powers_and_add_the_bias_inside_tanh():
    given, found = results(Case("i", order=3))
    powers = np.stack([windows(given["x"]) ** q for q in (1, 2, 3)], axis=2)
    summed = np.einsum("ncqijkl,mcqkl->nmij", powers, given["w"])
    expected = np.tanh(summed + given["b"][:, None, None])
    assert found["y"] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_every_layer_is_there_once():
    assert len(set(CASES)) == len(CASES) == 4 * 7 * 3 + 3 * 3


def test_options_choose_layers():
    options = compare.parse(["--size", "i", "--nodal", "sine", "--nodal", "self", "--pool", "max"])
    assert compare.chosen(options) == [
        Case("i", "sine", "max"),
        *(Case("i", order=order) for order in (3, 5, 7)),
    ]


def test_what_single_precision_does_not_explain_is_no_agreement():
    sine, chirp = Case("i", "sine", "sum"), Case("i", "chirp", "sum")
    assert compare.disagreement(sine, (1e-6, 1e-5)) == ""
    assert "its output is 0.0001 from double precision" in compare.disagreement(sine, (1e-4, 0.0))
    assert compare.disagreement(chirp, (1e-4, 1e-4)) == ""
    assert "gradient" in compare.disagreement(sine, (0.0, float("nan")))


def test_differences_are_over_the_largest_and_infinite_where_nothing_finite_is_found(tmp_path):
    right = {"y": [2.0, -4.0], "dx": [1.0], "dw": [1.0], "db": [8.0]}
    np.savez(tmp_path / "right.npz", **right)
    np.savez(tmp_path / "near.npz", **{**right, "y": [2.0, -5.0], "db": [7.0]})
    np.savez(tmp_path / "none.npz", **{**right, "dw": [np.nan]})
    assert compare.differences(tmp_path / "near.npz", tmp_path / "right.npz") == (0.25, 0.125)
    assert compare.differences(tmp_path / "none.npz", tmp_path / "right.npz") == (0.0, np.inf)


def test_bars_leave_out_the_small_layers_and_name_what_misses_them():
    found = [
        measured(OPERATIONAL[0], 20.0),
        measured(OPERATIONAL[1], 80.0, memory=30.0),
        measured(Case("iii, first", "mul", "sum"), 2.0, memory=1.0),
        measured(GENERATIVE[0], 1.25),
        measured(GENERATIVE[1], 3.0),
    ]
    assert compare.bars(found) == [
        "Geometric mean of 2 ratios, without size (iii, first): 40; bar 25: reached.",
        "Least ratio: 20 (i: mul, sum); bar 8: reached.",
        "Least memory ratio: 30 (i: mul, max); bar 40: missed.",
        "Geometric mean of size (iii, first), which has no bar: 2.",
        "Least ratio of Self-ONN: 1.25 (i: Self-ONN, q = 3); bar 1.5: missed.",
    ]


def test_a_layer_that_disagrees_has_no_time_and_a_note_that_says_why():
    wrong = compare.Measured(OPERATIONAL[0], errors={"NNL": (1.0, 0.0)}, problem="NNL: its output")
    report = compare.report([wrong], "numpy")
    assert report.rows[0][:4] == ("i", "mul, sum", None, None)
    assert any("i: mul, sum: NNL: its output." in note for note in report.notes)
