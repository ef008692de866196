"""Who led when, from the events of a study."""

from reports.told_trials import PLAN, broken, documents, ended, told

from prefect_tune.flows.reporting.progress import Lead, ProgressPass, SearchProgress
from prefect_tune.storage import Ledger


def found(store, *trials) -> SearchProgress:
    progress = ProgressPass(PLAN)
    for document in documents(trials):
        progress.add(document)
    result = progress.found(Ledger(store.database), "s")
    store.close()
    return result


def test_trials_stand_in_the_order_in_which_they_ended(tmp_path) -> None:
    a, c = ended(0, 5.0), broken(2, "no")
    b = ended(1, 7.0, fidelity={"folds": 1})
    store = told(tmp_path, (b, 1.0, 1), (a, 2.5, 0), (c, 4.0, 0))
    progress = found(store, a, b, c)
    assert list(progress.number) == [1, 0, 2]
    assert list(progress.seconds) == [1.0, 2.5, 4.0]
    assert list(progress.loss) == [7.0, 5.0, None]
    assert list(progress.state) == ["stopped", "complete", "failed"]
    assert list(progress.fidelity) == ["folds 1 of 3", "", ""]
    assert set(progress.phase) == {"first"}
    leads = [Lead(1.0, 1, 1, 7.0, "folds 1 of 3"), Lead(2.5, 2, 0, 5.0)]
    assert progress.leads == leads  # as the method said it, and of what each loss is


def test_who_led_is_what_the_method_had_chosen_even_if_its_loss_is_larger(tmp_path) -> None:
    a, b = ended(0, 5.0), ended(1, 6.0)
    progress = found(told(tmp_path, (a, 1.0, 0), (b, 2.0, 1)), a, b)
    assert [lead.trial for lead in progress.leads] == [0, 1]


def test_a_trial_that_ran_again_is_where_it_ended_last(tmp_path) -> None:
    failed, other, again = broken(0, "no"), ended(1, 5.0), ended(0, 3.0)
    store = told(tmp_path, (failed, 1.0, None), (other, 2.0, 1), (again, 3.0, 0))
    progress = found(store, again, other)
    assert list(progress.number) == [1, 0]
    leads = [(lead.trial, lead.seconds, lead.told) for lead in progress.leads]
    assert leads == [(1, 2.0, 1), (0, 3.0, 2)]  # each at its own place among the trials


def test_of_trials_that_ended_at_the_same_time_the_one_told_last_is_last(tmp_path) -> None:
    failed, other, again = broken(0, "no"), ended(1, 5.0), ended(0, 3.0)
    store = told(tmp_path, (failed, 3.0, None), (other, 3.0, 1), (again, 3.0, 0))
    assert list(found(store, again, other).number) == [1, 0]


def test_who_does_not_lead_by_what_the_method_says_does_not(tmp_path) -> None:
    a, b = ended(0, 5.0), ended(1, 6.0)
    progress = found(told(tmp_path, (a, 1.0, None), (b, 2.0, 1)), a, b)
    assert [lead.trial for lead in progress.leads] == [1]


def test_seconds_that_a_killed_session_forgot_do_not_run_backwards(tmp_path) -> None:
    a, b = ended(0, 5.0), ended(1, 4.0)
    progress = found(told(tmp_path, (a, 8.0, 0), (b, 6.0, 1)), a, b)
    assert list(progress.seconds) == [8.0, 8.0]
