"""What a worker notes of its trial, and what its nanny reads of it."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.tasks.worker import trial_note
from prefect_tune.tasks.worker.trial_note import (
    PLACE_BYTES,
    NoteFile,
    WorkerUnfit,
    note_path,
    note_step,
    read_note,
    trial_noted,
)


def test_a_note_lies_beside_the_folder_of_its_worker(tmp_path) -> None:
    path = note_path(str(tmp_path / "worker-1"), 17)
    assert path.parent == tmp_path
    assert "17" in path.name


SERVED = StepCost("impute", 2, 30.0, 0.25, hit=True, key="a" * 64)


def test_a_step_is_added_to_the_note_with_what_those_before_it_took(tmp_path) -> None:
    note = trial_note._Note(NoteFile(tmp_path / "note"))
    note.write(trial="t", started=1.5)
    token = trial_note._NOTED.set(note)
    try:
        note_step("rescale", 2, lambda: [SERVED])
    finally:
        trial_note._NOTED.reset(token)
    read = dict(read_note(tmp_path / "note"))
    assert [StepCost(**cost) for cost in read.pop("steps")] == [SERVED]
    assert read == {"trial": "t", "started": 1.5, "step": "rescale", "fold": 2}


def test_a_note_that_is_not_there_or_taken_back_is_empty(tmp_path) -> None:
    assert read_note(tmp_path / "none") == {}
    file = NoteFile(tmp_path / "note")
    trial_note._Note(file).write(trial="t")
    assert read_note(file.path) == {"trial": "t"}
    trial_note._take_back(file)
    assert read_note(file.path) == {}


def test_outside_a_worker_nothing_is_noted() -> None:
    with trial_noted():
        note_step("rescale", 0)
        assert trial_note._NOTED.get() is None


class Run:
    id = "trial"
    flow_run_id = "flow run"


@pytest.fixture
def worker(tmp_path, monkeypatch) -> SimpleNamespace:
    """The worker that runs this test as its trial."""
    worker = SimpleNamespace(address="tcp://w", local_directory=str(tmp_path / "worker"))
    context = SimpleNamespace(get=lambda: SimpleNamespace(task_run=Run))
    monkeypatch.setattr(trial_note, "this_worker", lambda: worker)
    monkeypatch.setattr(trial_note, "TaskRunContext", context)
    monkeypatch.setattr(trial_note, "lead_group", lambda: None)
    trial_note._note_file.cache_clear()
    return worker


def test_the_note_of_a_trial_goes_with_it(worker) -> None:
    path = note_path(worker.local_directory, os.getpid())
    for step in ("rescale", "fit model"):
        with trial_noted():
            note_step(step, 0)
            note = read_note(path)
            assert (note["trial"], note["flow_run"], note["step"]) == ("trial", "flow run", step)
        assert read_note(path) == {}


def test_a_trial_that_cannot_be_noted_does_not_start(worker) -> None:
    worker.local_directory = "/proc/no folder/worker"
    with (
        pytest.raises(WorkerUnfit, match=r"worker tcp://w cannot note its trial: .*/proc"),
        trial_noted(),
    ):
        pytest.fail("it has started")


def test_steps_that_cannot_be_noted_leave_the_note_of_their_trial(worker) -> None:
    path = note_path(worker.local_directory, os.getpid())
    with trial_noted():
        note_step(PLACE_BYTES * "long", 0)
        assert read_note(path)["trial"] == "trial"


def test_of_many_steps_the_last_are_noted(worker) -> None:
    path = note_path(worker.local_directory, os.getpid())
    costs = [replace(SERVED, fold=fold) for fold in range(10_000)]
    with trial_noted():
        note_step("rescale", 0, lambda: costs)
        steps = read_note(path)["steps"]
    assert steps[-1]["fold"] == 9_999
    assert len(steps) > 100


def test_a_note_that_cannot_be_taken_back_is_removed(worker, monkeypatch) -> None:
    path = note_path(worker.local_directory, os.getpid())
    with trial_noted():
        monkeypatch.setattr(NoteFile, "_place", refused)
    assert not path.exists()
    monkeypatch.undo()


def refused(*_: object) -> None:
    raise OSError(28, "No space left on device")
