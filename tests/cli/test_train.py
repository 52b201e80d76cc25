from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

from nnl_core.cli import main


def result_of(run):
    return json.loads((run / "result.json").read_text("utf-8"))


def run_of(project, number=1):
    return sorted((project / "runs").iterdir())[number - 1]


def last_error(capsys):
    return capsys.readouterr().err.splitlines()[-1]


def test_training_prints_the_test_metrics_and_leaves_a_run(project, capsys):
    assert main(["train", str(project)]) == 0
    run = run_of(project)
    names = {path.name for path in run.iterdir()}
    assert names == {
        ".lock",
        "checkpoints",
        "run.json",
        "source",
        "parameters.safetensors",
        "result.json",
        "metrics.jsonl",
    }
    metrics = result_of(run)["metrics"]
    names = ["train/loss", "train/distance", "test/loss", "test/distance"]
    assert capsys.readouterr().out.splitlines() == [
        *(f"{name.replace('/', ' ')}: {metrics[name]:.4f}" for name in names),
        f"saved in {run}",
    ]


def test_a_run_says_what_it_was_made_with(project):
    main(["train", str(project), "--set", "train.epochs=1"])
    run = json.loads((run_of(project) / "run.json").read_text("utf-8"))
    assert run["settings"]["train"]["epochs"] == 1
    assert run["project"] == str(project / "nnl.toml")
    assert run["plugins"].keys() == {"core", "metrics_log"}
    assert {"nnl-core", "numpy", "python"} <= run["versions"].keys()
    assert run["environment"].keys() >= {"platform", "processor", "cores", "threads", "commit"}


def test_a_run_is_called_like_its_project_or_as_wished(project):
    main(["train", str(project), "--set", "train.epochs=1"])
    main(["train", str(project), "--set", "train.epochs=1", "--name", "a/b: wide <net>"])
    names = {
        re.sub(r"\d", "0", run.name): json.loads((run / "run.json").read_text("utf-8"))["name"]
        for run in (project / "runs").iterdir()
    }
    assert names == {
        "00000000-000000-project": "project",
        "00000000-000000-a-b-wide-net": "a/b: wide <net>",
    }


def test_the_line_is_found(project):
    main(["train", str(project), "--set", "train.epochs=60"])
    metrics = result_of(run_of(project))["metrics"]
    assert metrics["test/loss"] < 1e-4
    assert metrics["test/distance"] < 1e-2


def test_the_same_seed_gives_the_same_run(project):
    for _ in range(2):
        main(["train", str(project)])
    first, second = (result_of(run_of(project, number)) for number in (1, 2))
    assert first["history"] == second["history"]


def test_results_go_to_a_folder_of_one_s_own_choice(project, tmp_path):
    assert main(["train", str(project), "--out", str(tmp_path / "mine")]) == 0
    assert (tmp_path / "mine" / "result.json").is_file()


def test_a_plugin_of_the_command_line_is_active_in_the_project(project, capsys):
    assert main(["-p", "progress", "-p", "no:metrics_log", "train", str(project)]) == 0
    assert "epoch 3/3" in capsys.readouterr().err
    assert not (run_of(project) / "metrics.jsonl").exists()


def install_broken_plugin(site, name):
    info = site / f"nnl_{name}-0.3.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nnl-{name}\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text(f"[nnl.plugins]\n{name} = not_there:Plugin\n")


@pytest.mark.filterwarnings("ignore::nnl_core.errors.PluginWarning")
def test_a_run_does_not_start_without_a_plugin_that_it_names(
    project, tmp_path, monkeypatch, capsys
):
    install_broken_plugin(tmp_path / "site", "fragile")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert main(["train", str(project)]) == 0
    assert main(["-p", "fragile", "train", str(project)]) == 1
    error = last_error(capsys)
    assert all(part in error for part in ("fragile", "nnl-fragile 0.3", "not_there"))
    assert len(list((project / "runs").iterdir())) == 1


@pytest.mark.filterwarnings("ignore::nnl_core.errors.PluginWarning")
def test_a_run_does_not_start_without_its_project_s_nnlfile(project, capsys):
    (project / "nnlfile.py").write_text("import no_such_module", "utf-8")
    assert main(["train", str(project)]) == 1
    assert "nnlfile" in (error := last_error(capsys)) and "no_such_module" in error


INTERRUPTING = """
import signal

def nnl_on_step_end(event):
    if event.step == 9:
        signal.raise_signal(signal.SIGINT)
"""


def test_ctrl_c_finishes_the_step_saves_and_gives_130(project, capsys):
    (project / "nnlfile.py").write_text(INTERRUPTING, "utf-8")
    assert main(["train", str(project)]) == 130
    run = run_of(project)
    assert (result_of(run)["steps"], result_of(run)["stopped"]) == (10, "interrupted")
    assert (run / "parameters.safetensors").is_file()
    assert "stopped after 10 steps: interrupted" in capsys.readouterr().out


def test_a_second_ctrl_c_ends_at_once(project):
    text = INTERRUPTING.replace("signal.raise_signal(signal.SIGINT)", "two()")
    two = "def two():\n    for _ in range(2):\n        signal.raise_signal(signal.SIGINT)\n"
    (project / "nnlfile.py").write_text(text + two, "utf-8")
    assert main(["train", str(project)]) == 130
    assert not (run_of(project) / "result.json").exists()


def test_a_run_that_fails_is_not_taken_for_a_finished_one(project, capsys):
    assert main(["train", str(project), "--set", "solver.lr=1e30"]) == 1
    assert "the loss is" in last_error(capsys)
    run = run_of(project)
    assert not (run / "result.json").exists()
    assert main(["eval", str(run)]) == 1
    assert "has no parameters: the run has not finished, or failed" in last_error(capsys)
    failure = json.loads((run / "failure.json").read_text("utf-8"))
    assert failure["error"].startswith("the loss is")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train.epohcs=3", "nnl.toml: train.epohcs: unknown key; did you mean 'epochs'?"),
        ("train.epochs=0", "nnl.toml: train.epochs = 0: input should be greater than 0"),
        ("model.function=model:lin", "no attribute 'lin'; did you mean 'line'?"),
        ("model.function=modle:line", "No module named 'modle'"),
        (
            "model.loss=square_error",
            "model.loss = 'square_error': unknown loss; did you mean 'squared_error'",
        ),
        ("model.metrics=['acuracy']", "unknown metric 'acuracy'; did you mean 'accuracy'"),
        ("solver.name=Sdg", "unknown solver 'Sdg'; did you mean 'Sgd'"),
        ("solver.alpha=1", "solver.alpha: Sgd takes no 'alpha'"),
        ("solver.lr=-1", "learning rate=-1 is outside"),
        ("data.train.source=nothing.npz", "nothing.npz"),
        ("data.train.source=nothing.abc", "nothing opens the data source"),
        ("data.train.fields.x=train_z", "no array 'train_z'; did you mean"),
        ("data.train.fields.x.shape=[2]", "shape [2] does not fit array 'train_x'"),
        ("train.evaluate=tset", "there is no [data.tset]; did you mean 'test'?"),
        ("backend=abacus", "abacus"),
        ("plugins=['progres']", "did you mean 'progress'?"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_anything_is_made(
    project, capsys, change, message
):
    assert main(["train", str(project), "--set", change]) == 1
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 1
    assert message in printed[0]
    assert not (project / "runs").exists()


def test_a_project_without_training_data_is_refused(project, capsys):
    text = (project / "nnl.toml").read_text("utf-8").replace("data.train", "data.other")
    (project / "nnl.toml").write_text(text, "utf-8")
    assert main(["train", str(project)]) == 1
    assert "nnl.toml: there is no [data.train]; it has other, test" in last_error(capsys)


def test_a_model_that_raises_is_named_with_its_line(project, capsys):
    (project / "model.py").write_text("def line(x):\n    return x.nothing", "utf-8")
    assert main(["train", str(project), "--set", "model.metrics=[]"]) == 1
    assert "model 'line', line 2: AttributeError" in last_error(capsys)


def test_without_safetensors_parameters_are_an_npz(project, monkeypatch):
    monkeypatch.setattr("nnl_core.training.run_folder.find_spec", lambda name: None)
    main(["train", str(project)])
    with np.load(run_of(project) / "parameters.npz") as arrays:
        assert len(arrays.files) >= 2
    assert main(["eval", str(run_of(project))]) == 0


def test_settings_of_a_plugin_that_is_not_named_are_warned_of(project, capsys):
    settings = ["--set", "train.epochs=1", "--set", "plugin.gradient_watch.every=2"]
    assert main(["train", str(project), *settings]) == 0
    assert capsys.readouterr().err == (
        "nnl: warning: nnl.toml [plugin.gradient_watch] has no effect: the plugin is not active; "
        "name it in plugins, or by -p\n"
    )
    for choice in ("gradient_watch", "no:gradient_watch"):
        assert main(["-p", choice, "train", str(project), *settings]) == 0
    assert capsys.readouterr().err == ""


# -------------------------------------------------------------------- what runs are good for


@pytest.fixture
def run(project, capsys):
    main(["train", str(project)])
    capsys.readouterr()
    return run_of(project)


def test_evaluating_a_run_gives_what_training_printed(run, capsys):
    assert main(["eval", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    recorded = result_of(run)["metrics"]
    assert found == pytest.approx({name: recorded[f"test/{name}"] for name in found})


def test_a_run_that_keeps_averages_saves_and_tests_them(project, capsys):
    losses = []
    for number, average in enumerate(["", "0.5"], 1):
        options = ["--set", f"solver.average={average}"] if average else []
        assert main(["train", str(project), *options]) == 0
        run = run_of(project, number)
        capsys.readouterr()
        assert main(["eval", str(run), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["loss"]
        assert found == pytest.approx(result_of(run)["metrics"]["test/loss"])
        losses.append(found)
    assert losses[0] != losses[1]


def test_of_a_project_the_newest_run_is_evaluated_and_named(run, project, capsys):
    assert main(["eval", str(project), "--json"]) == 0
    assert capsys.readouterr().err == f"of {run}:\n"


def test_any_data_set_of_the_project_can_be_evaluated(run, capsys):
    assert main(["eval", str(run), "--data", "train"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "train loss",
        "train distance",
    ]


def test_a_run_is_evaluated_with_the_model_that_it_was_trained_with(run, project, capsys):
    (project / "model.py").write_text("what is this?", "utf-8")
    assert main(["eval", str(run)]) == 0


@pytest.mark.parametrize("part", ["project", "run"])
def test_a_run_works_after_it_was_moved(run, project, tmp_path, capsys, part):
    moved = tmp_path / "elsewhere"
    shutil.move(project if part == "project" else run, moved)
    assert main(["eval", str(run_of(moved) if part == "project" else moved)]) == 0


def test_inference_prepares_its_input_as_training_does(run, project, tmp_path, capsys):
    with np.load(project / "points.npz") as points:
        x = points["test_x"]
    np.savez(tmp_path / "in.npz", x=x)
    out = tmp_path / "out.npz"
    assert main(["infer", str(run), "--input", str(tmp_path / "in.npz"), "--output", str(out)]) == 0
    from nnl_core.io import load

    stored = load(run / "parameters.safetensors").parameters
    weight, bias = (float(entry.array.reshape(())) for entry in stored.values())
    with np.load(out) as found:
        np.testing.assert_allclose(found["output"][:, 0], weight * x / 10 + bias, rtol=1e-5)
    assert capsys.readouterr().out.splitlines()[0] == "output: float32 (13, 1)"


def test_the_input_may_be_one_npy_file(run, tmp_path, capsys):
    np.save(tmp_path / "in.npy", np.zeros(3))
    assert main(["infer", str(run), "--input", str(tmp_path / "in.npy")]) == 0
    with np.load("predictions.npz") as found:
        assert found["output"].shape == (3, 1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.zeros(3), "w": np.zeros(3)}, "has no such field"),
        ({"x": np.zeros((3, 2))}, "does not fit"),
        ({"x": np.zeros((0,))}, "is empty"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(run, tmp_path, capsys, arrays, message):
    np.savez(tmp_path / "in.npz", **arrays)
    assert main(["infer", str(run), "--input", str(tmp_path / "in.npz")]) == 1
    assert message in last_error(capsys)


def test_a_folder_that_is_not_there_is_named(run, tmp_path, capsys):
    np.save(tmp_path / "in.npy", np.zeros(3))
    out = tmp_path / "nowhere" / "out.npz"
    assert main(["infer", str(run), "--input", str(tmp_path / "in.npy"), "--output", str(out)]) == 1
    assert last_error(capsys) == f"nnl: error: {out}: cannot be written: No such file or directory"


def test_a_profile_has_a_row_for_each_node_of_the_step(project, capsys):
    assert main(["profile", str(project), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    costs = {"seconds", "bytes", "multiply_adds"}
    assert rows[0].keys() == {"name", "operator", "computed_by", "shape", *costs}
    # Weights against a batch of 8, forward, and their gradient, backward.
    assert sum(row["multiply_adds"] for row in rows) >= 16
    assert any("affine" in row["name"] for row in rows)


def test_a_profile_is_a_table_with_sums(project, capsys):
    assert main(["profile", str(project), "--repeats", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == "node operator by shape ms % kB multiply-adds".split()
    assert printed[-1].split()[0] == "total"


def test_test_data_that_is_not_there_is_said_before_training(project, capsys):
    assert main(["train", str(project), "--set", "data.test.source=gone.npz"]) == 1
    assert "data.test.source = 'gone.npz': no file" in last_error(capsys)
    assert not (project / "runs").exists()


def test_a_run_that_fails_after_its_last_step_says_why(project, capsys, monkeypatch):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nnl_core.training.run_folder.save_parameters", fail)
    assert main(["train", str(project)]) == 1
    failure = json.loads((run_of(project) / "failure.json").read_text("utf-8"))
    assert "No space left on device" in failure["error"]
    assert "No space left on device" in last_error(capsys)


def test_a_model_behind_a_link_is_kept_with_the_run(project, tmp_path, capsys):
    elsewhere = tmp_path / "shared.py"
    (project / "model.py").rename(elsewhere)
    (project / "model.py").symlink_to(elsewhere)
    assert main(["train", str(project)]) == 0
    elsewhere.unlink()
    assert (run_of(project) / "source" / "model.py").is_file()
    assert main(["eval", str(run_of(project))]) == 0
