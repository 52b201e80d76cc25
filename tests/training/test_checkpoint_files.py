"""Checkpoints on disk come back bit for bit, or say which file is damaged."""

from __future__ import annotations

import builtins
import errno
import hashlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nnl_core import PF, F, S
from nnl_core.errors import FileError, TrainingError
from nnl_core.hooks import Plugin
from nnl_core.session import Session
from nnl_core.training import Checkpoints, Trainer
from nnl_core.training.checkpoint_files import DIGEST, MANIFEST


@pytest.fixture
def trainer(session, line, make_model):
    solver = S.Adam(0.01)
    solver.keep_average(0.9)
    return Trainer(
        make_model(metrics=["absolute_error"]),
        line,
        solver,
        epochs=3,
        batch_size=4,
        accumulate=2,
        loss_scale=S.DynamicLossScale(8.0),
        evaluate={"test": line},
        session=session,
    )


class Stop:
    """Asks for the end after some steps, and keeps the checkpoints of safe points."""

    def __init__(self, steps):
        self.steps = steps
        self.made = {}

    def nnl_on_step_end(self, event):
        if event.trainer.state.step == self.steps:
            event.trainer.request_stop("enough")

    def nnl_on_safe_point(self, event):
        self.made[event.trainer.state.step] = event.trainer.checkpoint()


@pytest.fixture
def checkpoint(session, trainer):
    """The state of a run in the middle of its second epoch."""
    stop = Stop(4)
    with session.listen(stop):
        trainer.run()
    return stop.made[4]


def same(one, other):
    """Whether two values are equal, arrays in them bit for bit."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_checkpoint_comes_back_as_it_was(tmp_path, monkeypatch, checkpoint, suffix):
    if suffix == ".npz":
        monkeypatch.setattr("nnl_core.training.checkpoint_files.find_spec", lambda name: None)
    checkpoint.plugins["mine"] = {"count": 3, "seen": np.arange(3), "by step": {4: (1, 2)}}
    checkpoint.history.append({"train/loss": float("inf")})
    files = Checkpoints(tmp_path / "checkpoints")
    place = files.save(checkpoint)
    assert {path.suffix for path in place.iterdir()} == {suffix, ".json", ".sha256"}
    found = files.load(4)
    assert (found.state.epoch, found.state.batch, found.state.step) == (1, 1, 4)
    for name, value in vars(checkpoint).items():
        assert same(value, getattr(found, name)), name
    assert "average" in found.solver["fit/affine/W"].pstate


def test_the_manifest_lists_the_digest_of_each_file_and_has_one_itself(tmp_path, checkpoint):
    place = Checkpoints(tmp_path).save(checkpoint)
    manifest = json.loads((place / MANIFEST).read_text("utf-8"))
    for name, entry in manifest["files"].items():
        content = (place / name).read_bytes()
        assert entry == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    checked = subprocess.run(["sha256sum", "-c", DIGEST], cwd=place, check=False)
    assert checked.returncode == 0
    assert {*manifest["files"], MANIFEST, DIGEST} == {path.name for path in place.iterdir()}
    assert manifest["made_with"]["versions"].keys() == {"nnl-core", "numpy", "python"}
    assert manifest["made_with"]["backend"] == "numpy"
    assert "core" in manifest["made_with"]["plugins"]


def test_a_run_goes_on_from_the_middle_of_an_epoch_bit_for_bit(session, line, make_model, tmp_path):
    def make():
        return Trainer(
            make_model(noisy, metrics=["absolute_error"]),
            line,
            S.Adam(0.01),
            epochs=3,
            batch_size=3,
            evaluate={"test": line},
            session=session,
        )

    whole, stop = make(), Stop(0)
    with session.listen(stop):
        expected = whole.run()
    assert sorted(stop.made) == list(range(1, 13))
    for step, made in stop.made.items():
        files = Checkpoints(tmp_path / str(step))
        files.save(made)
        again = make()
        again.restore(files.load(step))
        result = again.run()
        assert result.history == expected.history
        assert result.best == expected.best
        for name, parameter in whole.model.parameters.items():
            assert parameter.d.tobytes() == again.model.parameters[name].d.tobytes()


def noisy(x, training):
    return PF.affine(F.dropout(x, 0.5) if training else F.dropout(x, 0.1), 1, name="fit")


def test_the_states_of_metrics_make_an_epoch_report_the_same_numbers(
    session, line, make_model, tmp_path
):
    stop = Stop(2)
    trainer = Trainer(make_model(), line, S.Sgd(0.0), epochs=1, batch_size=4, session=session)
    with session.listen(stop):
        trainer.run()
    again = Trainer(make_model(), line, S.Sgd(0.0), epochs=1, batch_size=4, session=session)
    again.restore(stop.made[2])
    # Without updates, the epoch's loss is that of all samples together.
    y = line.arrays["y"].astype(np.float64)
    assert again.run().metrics["train/loss"] == pytest.approx(np.mean(y**2), rel=1e-6)


def test_frozen_parameters_stay_so(session, line, make_model):
    def make():
        return Trainer(make_model(), line, S.Sgd(), epochs=1, session=session)

    first = make()
    first.model.parameters["fit/affine/W"].need_grad = False
    second = make()
    second.restore(first.checkpoint())
    parameters = second.model.parameters
    assert [parameters[f"fit/affine/{name}"].need_grad for name in "Wb"] == [False, True]


# -------------------------------------------------------------------- damage


def test_every_flipped_bit_is_noticed_and_its_file_named(tmp_path, checkpoint):
    files = Checkpoints(tmp_path)
    place = files.save(checkpoint)
    rng = np.random.default_rng(0)
    for path in sorted(place.iterdir()):
        content = path.read_bytes()
        for bit in rng.integers(8 * len(content), size=12):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << (bit % 8)
            path.write_bytes(changed)
            with pytest.raises(FileError, match="damaged") as error:
                files.load(4)
            assert path.name in str(error.value)
        path.write_bytes(content)
    files.load(4)


def test_every_truncated_or_missing_file_is_named(tmp_path, checkpoint):
    files = Checkpoints(tmp_path)
    place = files.save(checkpoint)
    for path in sorted(place.iterdir()):
        content = path.read_bytes()
        for length in (0, 1, len(content) - 1):
            path.write_bytes(content[:length])
            with pytest.raises(FileError, match=path.name):
                files.load(4)
        path.unlink()
        with pytest.raises(FileError, match=f"{path.name}: cannot be read"):
            files.load(4)
        path.write_bytes(content)


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(tmp_path, checkpoint):
    files = Checkpoints(tmp_path)
    files.save(checkpoint)
    checkpoint.state.step = 7
    (files.save(checkpoint) / "state.json").write_bytes(b"{}")
    said = []
    assert files.newest(said.append).state.step == 4
    assert len(said) == 1
    assert "state.json" in said[0] and said[0].endswith("the checkpoint before it, of step 4")


def test_where_all_are_damaged_the_last_error_is_raised(tmp_path, checkpoint):
    files = Checkpoints(tmp_path)
    (files.save(checkpoint) / "state.json").unlink()
    with pytest.raises(FileError, match=r"state\.json"):
        files.newest(lambda text: None)
    with pytest.raises(FileError, match="there is no checkpoint"):
        Checkpoints(tmp_path / "nothing").newest(lambda text: None)


def test_a_checkpoint_of_a_newer_version_is_refused(tmp_path, checkpoint):
    files = Checkpoints(tmp_path)
    place = files.save(checkpoint)
    manifest = json.loads((place / MANIFEST).read_text("utf-8")) | {"format": 99}
    text = json.dumps(manifest)
    (place / MANIFEST).write_text(text, "utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    (place / DIGEST).write_text(f"{digest}  {MANIFEST}\n", "utf-8")
    with pytest.raises(FileError, match="another version of nnl-core"):
        files.load(4)


def test_a_step_without_a_checkpoint_is_refused_with_those_there_are(tmp_path, checkpoint):
    files = Checkpoints(tmp_path)
    files.save(checkpoint)
    with pytest.raises(FileError, match="no checkpoint of step 5; it has 4"):
        files.load(5)


# -------------------------------------------------------------------- writing


class FailingSystem:
    """Calls on the file system of which the n-th fails, as on a full disk."""

    NAMES = ("fsync", "mkdir", "rename", "replace", "open")

    def __init__(self, monkeypatch, number):
        self.left = number
        for name in self.NAMES:
            monkeypatch.setattr(os, name, self.watched(getattr(os, name)))
        real = os.fdopen

        def fdopen(*arguments, **keywords):
            file = real(*arguments, **keywords)
            return FailingFile(file, self) if arguments[1:] == ("wb",) else file

        monkeypatch.setattr(os, "fdopen", fdopen)

    def watched(self, function):
        def call(*arguments, **keywords):
            self.count()
            return function(*arguments, **keywords)

        return call

    def count(self):
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")


class FailingFile:
    def __init__(self, file, system):
        self.file, self.system = file, system

    def write(self, data):
        self.system.count()
        return self.file.write(data)

    def __enter__(self):
        self.file.__enter__()
        return self

    def __exit__(self, *error):
        return self.file.__exit__(*error)

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_full_disk_at_any_moment_leaves_the_old_checkpoint_and_one_clear_error(
    tmp_path, checkpoint
):
    files = Checkpoints(tmp_path / "checkpoints")
    files.save(checkpoint)
    checkpoint.state.step = 7
    messages = []
    for number in range(1, 200):
        with pytest.MonkeyPatch.context() as patch:
            system = FailingSystem(patch, number)
            try:
                files.save(checkpoint)
            except FileError as error:
                messages.append(str(error))
        if system.left > 0:
            break
        assert files.load(4).state.step == 4
        hidden = [path.name for path in files.folder.iterdir() if path.name.startswith(".")]
        assert hidden == []
        if files.place(7).exists():  # renamed, and only then not synchronised
            assert files.load(7).state.step == 7
            files.remove([7])
    assert files.load(7).state.step == 7
    assert len(messages) > 20
    assert set(messages) == {
        f"{files.place(7)}: the checkpoint cannot be written: No space left on device; "
        "checkpoint 4 is unchanged"
    }


def test_a_limit_of_the_system_on_files_is_an_error_like_a_full_disk(tmp_path):
    limit = f"""
import resource, sys
import numpy as np
from nnl_core import PF, S
from nnl_core.data import ArraySource
from nnl_core.errors import FileError
from nnl_core.training import Checkpoints, Model, Trainer

data = ArraySource({{"x": np.ones((2, 300)), "y": np.ones((2, 100))}})
model = Model(lambda x: PF.affine(x, 100), loss="squared_error")
trainer = Trainer(model, data, S.Adam(), epochs=1)
files = Checkpoints(__import__("pathlib").Path({str(tmp_path)!r}))
files.save(trainer.checkpoint())
trainer.state.step = 1
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, {resource.RLIM_INFINITY}))
try:
    files.save(trainer.checkpoint())
except FileError as error:
    print(error)
print(files.steps(), files.load(0).state.step)
"""
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", limit],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        check=False,
    )
    assert done.stdout.splitlines() == [
        f"{tmp_path / '1'}: the checkpoint cannot be written: File too large; checkpoint 0 is "
        "unchanged",
        "[0] 0",
    ], done.stderr


def test_a_checkpoint_of_the_same_step_is_left_as_it_is(tmp_path, checkpoint):
    files = Checkpoints(tmp_path)
    before = (files.save(checkpoint) / MANIFEST).read_bytes()
    checkpoint.state.batch += 1
    assert (files.save(checkpoint) / MANIFEST).read_bytes() == before


def test_leftovers_of_a_killed_process_are_swept_and_never_taken_for_checkpoints(
    tmp_path, checkpoint
):
    files = Checkpoints(tmp_path)
    files.save(checkpoint)
    for name in (".draft-7", ".old-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_bytes(b"half")
    assert files.steps() == [4]
    files.sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["4"]


def test_nothing_in_a_checkpoint_is_pickled(tmp_path, checkpoint, monkeypatch):
    def forbidden(name, *rest, real=builtins.__import__, **keywords):
        if name in ("pickle", "marshal", "shelve"):
            raise AssertionError(name)
        return real(name, *rest, **keywords)

    monkeypatch.setattr(builtins, "__import__", forbidden)
    files = Checkpoints(tmp_path)
    files.save(checkpoint)
    files.load(4)


# -------------------------------------------------------------------- plugins


class Counting(Plugin):
    name = "counting"

    def __init__(self, state=None):
        self.state = {"count": 0} if state is None else state

    def nnl_on_step_end(self, event):
        self.state["count"] += 1

    def nnl_on_checkpoint_save(self, event):
        event.checkpoint.plugins[self.name] = dict(self.state)

    def nnl_on_checkpoint_load(self, event):
        self.state = dict(event.checkpoint.plugins[self.name])


def with_plugins(*plugins):
    return Session(plugins, discover=False, environment={})


def test_a_plugin_s_state_belongs_to_the_moment_of_the_checkpoint(make_model, line, tmp_path):
    with with_plugins(Counting()) as session:
        trainer = Trainer(make_model(), line, S.Sgd(), epochs=2, batch_size=4, session=session)
        stop = Stop(4)
        with session.listen(stop):
            trainer.run()
    assert {step: made.plugins["counting"]["count"] for step, made in stop.made.items()} == {
        1: 1, 2: 2, 3: 3, 4: 4,
    }  # fmt: skip
    plugin = Counting()
    with with_plugins(plugin) as session:
        again = Trainer(make_model(), line, S.Sgd(), epochs=2, batch_size=4, session=session)
        again.restore(stop.made[4])
        again.run()
    assert plugin.state == {"count": 6}


def test_a_plugin_that_keeps_what_no_file_can_hold_is_named(make_model, line, tmp_path):
    with with_plugins(Counting({"count": 0, "seen": {1}})) as session:
        trainer = Trainer(make_model(), line, S.Sgd(), epochs=1, session=session)
        with pytest.raises(TrainingError, match=r"plugin 'counting'.*its state/seen is a set"):
            Checkpoints(tmp_path).save(trainer.checkpoint())
    assert Checkpoints(tmp_path).steps() == []


def test_the_state_of_a_plugin_that_is_not_active_is_not_dropped(make_model, line, session):
    with with_plugins(Counting()) as other:
        made = Trainer(make_model(), line, S.Sgd(), epochs=1, session=other).checkpoint()
    trainer = Trainer(make_model(), line, S.Sgd(), epochs=1, session=session)
    with pytest.raises(TrainingError, match=r"plugin 'counting'.*not active; .*-p counting"):
        trainer.restore(made)


def test_a_checkpoint_of_another_solver_or_dtype_is_refused(make_model, line, session):
    made = Trainer(make_model(), line, S.Sgd(), epochs=1, session=session).checkpoint()
    other = Trainer(make_model(), line, S.Adam(), epochs=1, session=session)
    with pytest.raises(TrainingError, match="states of solver 'Sgd', not of 'Adam'"):
        other.restore(made)
    same = Trainer(make_model(), line, S.Sgd(), epochs=1, session=session)
    made.parameters = {name: array.astype(np.float64) for name, array in made.parameters.items()}
    with pytest.raises(TrainingError, match="is float64 in the checkpoint, float32 in the model"):
        same.restore(made)
