"""What a worker notes of its trial, and what its nanny reads of it."""

import json

from prefect_tune.optimizers.trials.trial import StepCost
from prefect_tune.tasks.worker import trial_note
from prefect_tune.tasks.worker.trial_note import note_path, note_step, read_note, trial_noted


def test_a_note_lies_beside_the_folder_of_its_worker(tmp_path) -> None:
    path = note_path(str(tmp_path / "worker-1"), 17)
    assert path.parent == tmp_path
    assert "17" in path.name


SERVED = StepCost("impute", 2, 30.0, 0.25, hit=True, key="a" * 64)


def test_a_step_is_added_to_the_note_with_what_those_before_it_took(tmp_path) -> None:
    note = trial_note._Note(tmp_path / "note.json")
    note.write(trial="t", started=1.5)
    token = trial_note._NOTED.set(note)
    try:
        note_step("rescale", 2, lambda: [SERVED])
    finally:
        trial_note._NOTED.reset(token)
    read = dict(read_note(tmp_path / "note.json"))
    assert [StepCost(**cost) for cost in read.pop("steps")] == [SERVED]
    assert read == {"trial": "t", "started": 1.5, "step": "rescale", "fold": 2}


def test_a_note_that_is_not_there_or_half_written_is_empty(tmp_path) -> None:
    assert read_note(tmp_path / "none.json") == {}
    text = json.dumps({"trial": "t"})
    (tmp_path / "half.json").write_text(text[:-3])
    assert read_note(tmp_path / "half.json") == {}


def test_outside_a_worker_nothing_is_noted() -> None:
    with trial_noted():
        note_step("rescale", 0)
        assert trial_note._NOTED.get() is None


def test_a_full_disk_does_not_end_the_trial(tmp_path) -> None:
    trial_note._Note(tmp_path / "no folder" / "note.json").write(trial="t")
