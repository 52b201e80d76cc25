"""The GPU's benchmark runs through on any device, and calls no time of an emulated one a figure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import correctness, kernels, machine, measure, results, training
from benchmarks.gpu.cases import memory_cases
from benchmarks.gpu.results import COPY, COPY_CASE, NNL, TORCH, Bar, Measurement, Results
from benchmarks.run import main

RUN = Path(measure.__file__).with_name("run.sh")


def of(seconds, **more):
    return Measurement("a case", {NNL: [seconds] * 3}, **more)


def measured(*arguments):
    return measure.run(2, ["--smoke", *arguments])


# Running through ----------------------------------------------------------------------------------


def test_an_operation_is_captured_and_agrees_with_numpy():
    report = measured("--sections", "memory", "--only", "softmax 4 x 64")
    assert [row[0] for row in report.rows] == ["softmax 4 x 64"]
    assert "problem" not in report.columns


def test_a_training_step_agrees_with_numpy_and_is_computed_on_the_device():
    report = measured("--sections", "small", "--only", "tiny, a training step, bf16")
    (row,) = [dict(zip(report.columns, row, strict=True)) for row in report.rows]
    assert row["launches"] > 0
    assert "problem" not in report.columns
    assert "on host" not in report.columns


def test_launches_are_counted_with_and_without_a_captured_graph():
    report = measured("--sections", "launches", "--only", "tiny")
    assert len(report.rows) == 4
    assert "problem" not in report.columns


def test_no_time_of_an_emulated_device_is_told(tmp_path):
    if not machine.is_emulated():
        pytest.skip("the device is real")
    file = tmp_path / "gpu.json"
    report = measured("--sections", "memory", "--only", COPY_CASE, "--save", str(file))
    assert "EMULATED" in report.title
    assert list(report.columns) == ["case"]
    saved = json.loads(file.read_text())
    assert saved["emulated"] is True
    assert saved["measurements"][COPY_CASE]["samples"] == {}


def test_results_of_a_real_device_are_not_mixed_with_those_of_an_emulated_one(tmp_path):
    file = tmp_path / "gpu.json"
    other = Results(emulated=not machine.is_emulated())
    other.add(of(1.0))
    other.save(file)
    with pytest.raises(SystemExit, match="another kind of device"):
        measured("--sections", "memory", "--only", COPY_CASE, "--save", str(file))


def test_a_case_that_goes_wrong_says_so_in_its_row():
    def job():
        raise ValueError("no such thing\nand more")

    (found,) = measure.attempt(measure.Job("a job", job))
    assert (found.case, found.problem) == ("a job", "ValueError: no such thing")


def test_a_result_that_differs_is_no_result():
    case = next(memory_cases(smoke=True))
    right = kernels.computed_by_numpy(case, case.arrays())
    kernels.check(case, right, right)
    with pytest.raises(AssertionError, match=r"output 0 differs by 0\.01 of its norm"):
        kernels.check(case, [1.01 * right[0]], right)


def test_a_training_step_with_another_loss_is_not_timed():
    training.check_losses("tiny", "float32", [1.0, 0.5], [1.0005, 0.5])
    with pytest.raises(AssertionError, match=r"the loss of step 2 is 0\.51; expected is 0\.5"):
        training.check_losses("tiny", "float32", [1.0, 0.51], [1.0, 0.5])


def test_without_a_gpu_the_benchmark_ends_in_one_line(monkeypatch):
    monkeypatch.setattr(machine, "probe", lambda: "there is no driver; install one")
    with pytest.raises(SystemExit) as ended:
        main(["gpu"])
    assert ended.value.code == "no GPU can be measured here: there is no driver; install one"


def test_an_unknown_section_is_refused_with_those_there_are(capsys):
    with pytest.raises(SystemExit):
        measure.parse(["--sections", "memory,nonsense"])
    assert "unknown section 'nonsense'; there are memory, products" in capsys.readouterr().err


def test_a_stage_of_the_prepared_run_that_fails_stops_no_other(tmp_path):
    command = [str(RUN), "--python", "false", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    failed = [line.split()[1] for line in done.stdout.splitlines() if "failed with" in line]
    stages = ["versions:", "operators:", *(f"{name}:" for name in measure.SECTIONS), "tests:"]
    assert sorted(failed) == sorted(stages)
    assert done.returncode == 1


# Figures ------------------------------------------------------------------------------------------


def test_a_bar_of_a_peer_is_met_where_the_peer_takes_that_share_of_the_time():
    one = of(2.0, bars=[Bar(TORCH, 0.8)])
    one.samples[TORCH] = [1.7] * 3
    assert Results().verdict(one, one.bars[0]) == "0.8 x PyTorch: met (0.85)"
    one.samples[TORCH] = [1.5] * 3
    assert Results().verdict(one, one.bars[0]) == "0.8 x PyTorch: MISSED (0.75)"


def test_a_share_is_of_the_bytes_that_a_copy_moves_in_the_same_time():
    found = Results()
    found.add(Measurement(COPY_CASE, {NNL: [1.0] * 3}, moved=1000))
    one = of(2.0, moved=1800, bars=[Bar(COPY, 0.85)])
    assert found.share_of_copy(one) == pytest.approx(0.9)
    assert found.verdict(one, one.bars[0]) == "0.85 of copy: met (0.9)"


def test_a_bar_without_a_figure_is_neither_met_nor_missed():
    assert Results().verdict(of(1.0), Bar(TORCH, 0.8)) == "0.8 x PyTorch: not measured"


def test_saved_results_come_back(tmp_path):
    found = Results(machine={"device": "a device"})
    found.add(of(0.5, moved=7, bars=[Bar(TORCH, 1.0)], details={"launches": 3}))
    found.save(tmp_path / "gpu.json")
    assert Results.load(tmp_path / "gpu.json") == found


def test_the_last_line_counts_the_bars(tmp_path, monkeypatch, capsys):
    found = Results()
    one = of(1.0, bars=[Bar(TORCH, 0.8), Bar(TORCH, 3.0), Bar(COPY, 0.85)])
    one.samples[TORCH] = [1.0] * 3
    found.add(one)
    found.save(tmp_path / "gpu.json")
    monkeypatch.setattr(sys, "argv", ["results", str(tmp_path / "gpu.json")])
    with pytest.raises(SystemExit) as ended:
        results.main()
    assert not ended.value.code
    assert capsys.readouterr().out.endswith("bars: 1 met, 1 missed, 1 without a figure\n")


# Operators ----------------------------------------------------------------------------------------

WORKER = """
import json, sys, time
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    name = json.loads(line)
    if name == "dies":
        sys.exit(7)
    if name == "hangs":
        time.sleep(600)
    wrong = name == "wrong"
    answer = {"name": name, "problem": "it differs" if wrong else None, "broken": False}
    print(json.dumps({**answer, "computed_by": "cuda", "seconds": 0.0}), flush=True)
"""


def checks(names, program=WORKER):
    return correctness.Checks(names, (sys.executable, "-c", program))


def test_a_wrong_operator_and_one_that_ends_its_process_stop_nobody():
    found = checks(["a", "dies", "wrong", "b"])
    found.run(1, 60)
    assert {one["name"]: one["problem"] for one in found.answers} == {
        "a": None,
        "dies": "its process ended with status 7",
        "wrong": "it differs",
        "b": None,
    }
    assert found.left() == []


def test_an_operator_that_hangs_is_told_of_when_the_time_is_over():
    found = checks(["a", "hangs", "b"])
    found.run(1, 1)
    assert "hangs" in found.left()
    assert any(line.startswith("not checked: ") for line in correctness.summary(found))


def test_processes_that_do_not_start_say_why():
    found = checks(["a"], "raise SystemExit('there is no GPU')")
    found.run(1, 60)
    assert correctness.summary(found)[0] == "a process did not start: there is no GPU"


def test_operators_are_checked_in_a_process_of_their_own(monkeypatch):
    if machine.is_emulated():
        monkeypatch.setenv(machine.EMULATED, "1")
    found = correctness.Checks(["nnl::relu"])
    found.run(1, 120)
    assert [(one["problem"], one["computed_by"]) for one in found.answers] == [(None, "cuda")]
