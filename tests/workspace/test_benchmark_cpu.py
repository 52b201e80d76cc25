"""The benchmark of whole training steps gives everyone the same, and tells of what differs."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from benchmarks.cpu import agreement, arrays, compare, workers, workloads


@pytest.fixture(autouse=True)
def numpy_backend():
    with nnl.backend_scope("numpy"):
        yield


def perceptron(x, values):
    """Return the scores of `tiny`, computed by NumPy alone."""
    for number in range(3):
        x = np.tanh(x) if number else x
        x = x @ values[f"layers/{number}/affine/W"] + values[f"layers/{number}/affine/b"]
    return x


def test_the_loss_is_the_cross_entropy_of_the_batch():
    workload = workloads.build("tiny", dtype="f8")
    given, values = arrays.batch("tiny"), workload.parameters()
    scores = perceptron(given["x"].astype("f8"), values)
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    workload.step()
    expected = -np.log(np.take_along_axis(chances, given["y"], 1)).mean()
    assert workload.loss() == pytest.approx(expected, rel=1e-12)


def test_a_step_trains():
    workload = workloads.build("mlp")
    losses = []
    for _ in range(5):
        workload.step()
        losses.append(workload.loss())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("case", arrays.CASES)
def test_a_batch_is_the_same_whenever_it_is_made(case):
    first, second = arrays.batch(case), arrays.batch(case)
    assert all((first[name] == second[name]).all() for name in first)


def test_first_values_of_a_parameter_do_not_depend_on_the_others():
    shape = (3, 4)
    alone = arrays.first_values({"a/affine/W": shape})
    among = arrays.first_values({"b/affine/W": shape, "a/affine/W": shape})
    assert (alone["a/affine/W"] == among["a/affine/W"]).all()
    assert (among["a/affine/W"] != among["b/affine/W"]).any()


def test_a_backend_agrees_with_itself():
    assert agreement.differences(("numpy", "numpy"), ["tiny"], steps=3) == {"tiny": 0.0}


def test_what_is_not_finite_is_no_agreement():
    good, bad = np.array([1.0]), np.array([np.nan])
    assert agreement.difference(good, bad) == agreement.difference(bad, bad) == np.inf


def test_a_difference_names_workload_and_peer():
    compare.check("mlp", "PyTorch", [[2.0005]], [[2.0]])
    with pytest.raises(AssertionError, match=r"mlp: PyTorch computes 2\.01, and NNL 2"):
        compare.check("mlp", "PyTorch", [[2.01]], [[2.0]])


def test_a_worker_answers_with_its_results_and_with_its_errors(tmp_path):
    workload = workloads.build("tiny")
    values = tmp_path / "values.npz"
    np.savez(values, **workload.parameters())
    workload.step()
    with workers.Worker("NNL", tmp_path, "numpy") as worker:
        answer = worker.ask("first", "tiny", str(values))
        assert answer["result"] == [pytest.approx(workload.loss(), rel=1e-6)]
        assert worker.ask("memory") > 0
        with pytest.raises(workers.PeerUnavailableError, match="KeyError: 'huge'"):
            worker.ask("first", "huge", str(values))


def test_an_unknown_workload_is_refused_with_those_there_are(capsys):
    with pytest.raises(SystemExit):
        compare.parse(["--cases", "mlp,vgg"])
    assert "unknown 'vgg'; there are tiny, mlp" in capsys.readouterr().err
