"""``nnl bench``: latency, throughput and memory of inference."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, Variable
from nnl_core.cli import main
from nnl_core.training.latency import Inference

FUNCTION = """
from nnl_core import F, PF, Variable

def network(batch):
    return PF.affine(F.tanh(PF.affine(Variable((batch, 3)), 5, name="a")), 2, name="b")

def several(batch):
    y = network(batch)
    return {"scores": y, "best": F.max(y, axis=1)}

def nothing(batch):
    return batch

def broken(batch):
    raise ValueError("no such batch")
"""


def bench(capsys, *arguments):
    assert main(["bench", *map(str, arguments), "--json", "--runs", "4", "--warm-up", "1"]) == 0
    return json.loads(capsys.readouterr().out)


def error_of(capsys, *arguments):
    assert main(["bench", *map(str, arguments)]) == 1
    return capsys.readouterr().err.splitlines()[-1]


@pytest.fixture
def function(project, request):
    """A module in the current folder, and parameters of its own."""
    with open("scores.py", "w", encoding="utf-8") as file:
        file.write(FUNCTION)
    with nnl.parameter_scope("", {}):
        yield


def test_a_project_is_measured_without_training(project, capsys):
    found = bench(capsys, project)
    assert found["model"] == str(project)
    assert (found["backend"], found["runs"], found["warm_up"]) == ("numpy", 4, 1)
    (row,) = found["results"]
    assert row["batch_size"] == 1
    assert 0 < row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"]
    assert row["parameter_bytes"] == 2 * 4  # a slope and an intercept
    assert not (project / "runs").exists()


def test_a_run_is_measured_with_its_own_settings(project, capsys):
    main(["train", str(project), "--set", "train.epochs=1"])
    capsys.readouterr()
    (run,) = (project / "runs").iterdir()
    (project / "nnl.toml").unlink()
    assert bench(capsys, run)["results"][0]["samples_per_second"] > 0


def test_there_is_a_row_for_each_batch_size_also_one_larger_than_the_data(project, capsys):
    found = bench(capsys, project, "--batch", "1", "7", "1000")
    assert [row["batch_size"] for row in found["results"]] == [1, 7, 1000]


def test_a_function_is_called_with_the_batch_size(function, capsys):
    (row,) = bench(capsys, "scores:network", "--batch", "6")["results"]
    assert row["parameter_bytes"] == 4 * (3 * 5 + 5 + 5 * 2 + 2)
    assert row["working_bytes"] >= 6 * 5 * 4


def test_a_function_may_return_several_variables(function, capsys):
    assert len(bench(capsys, "scores:several")["results"]) == 1


def test_the_table_has_units_and_the_backend(function, capsys):
    assert main(["bench", "scores:network", "--runs", "2", "--threads", "1"]) == 0
    backend, head, row, peak = capsys.readouterr().out.splitlines()
    assert backend == "backend numpy, 1 thread"
    assert head.split()[:5] == ["batch", "first", "ms", "p50", "ms"]
    assert len(row.split()) == 9
    assert peak.startswith("the process needed ")


def test_threads_and_backend_are_those_asked_for_and_only_meanwhile(function, capsys):
    before = nnl.current_backend(), os.environ.get("NNL_NUM_THREADS")
    found = bench(capsys, "scores:network", "--threads", "3", "--device", "numpy")
    assert (found["threads"], found["backend"]) == (3, "numpy")
    assert (nnl.current_backend(), os.environ.get("NNL_NUM_THREADS")) == before


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nowhere", "'nowhere' is no folder of a run or a project, nor 'module:function'"),
        ("scores:netwrk", "did you mean 'network'?"),
        ("scores:nothing", "'scores:nothing' returned no variable that something computes"),
        (
            "scores:broken",
            "'scores:broken', called with the batch size 1: ValueError: no such batch",
        ),
    ],
)
def test_a_model_that_is_none_is_one_line(function, capsys, model, message):
    assert message in error_of(capsys, model)


def test_an_unknown_backend_is_named(function, capsys):
    assert "'abacus'" in error_of(capsys, "scores:network", "--device", "abacus")


@pytest.mark.parametrize("option", ["--batch", "--runs", "--threads"])
def test_counts_begin_at_one(function, capsys, option):
    assert main(["bench", "scores:network", option, "0"]) == 2
    assert "0 is not a number from 1 on" in capsys.readouterr().err


def test_inputs_are_leaves_that_are_no_parameters_and_no_constants():
    with nnl.parameter_scope("", {}):
        x, index = Variable((4, 3)), Variable((4,), dtype=np.int32)
        y = PF.affine(x, 2) * Variable.constant(np.ones((4, 2))) + F.reshape(index, (4, 1))
        inference = Inference.of([y])
    assert inference.inputs.keys() == {x, index}


def test_inputs_without_elements_get_some_that_are_valid_indices_where_they_are_whole():
    x, index = Variable((400,)), Variable((4,), dtype=np.int32)
    given = Variable.from_numpy_array(np.ones(400))
    inputs = Inference.of([x * given, index * 2]).inputs
    assert 0.8 < inputs[x].std() < 1.2
    assert not inputs[index].any()
    assert (inputs[given] == 1).all()


def test_a_run_writes_the_inputs_and_keeps_nothing_but_the_outputs():
    x = Variable.from_numpy_array(np.full(3, 2.0))
    h = x * 3
    y = h + 1
    inference = Inference.of([y])
    x.d = 0
    inference.measure(3, runs=1, warm_up=0)
    np.testing.assert_array_equal(y.d, 7)
    assert not h.data.has_value
