"""Methods within a study: closed, reopened, resumed, and ended with a model."""

from contextlib import suppress

import pytest
from finished.searched import searched
from inputs import write_table

from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import METHODS, Budget, NotYet, Optimizer, Query, Trial

pytestmark = pytest.mark.slow


def next_of(optimizer: Optimizer) -> list[Query]:
    """Return up to three queries without telling results."""
    queries: list[Query] = []
    with suppress(NotYet):
        while len(queries) < 3:
            queries += [optimizer.ask(Budget(trials_left=3 - len(queries)))]
    return queries


def test_resumed_study_continues_with_the_same_proposals_and_ends_with_a_model(
    tmp_path, monkeypatch
) -> None:
    given = {"data": str(write_table(tmp_path)), "target": "target", "space": "small"}
    given |= {"method": "flash"}
    asking: list[Optimizer] = []
    ask = Study.ask

    def noted(study: Study, budget: Budget) -> Trial:
        asking.append(study.optimizer)
        return ask(study, budget)

    with monkeypatch.context() as patched:
        patched.setattr(Study, "ask", noted)
        store = searched(tmp_path, trials=6, fit=False, **given).store
    opened = Study(store, "s")
    before = dict(opened.trials)
    assert next_of(opened.optimizer) == next_of(asking[-1])
    searched(tmp_path, trials=12, **given)
    view, study = read_study(store, "s"), Study(store, "s")
    assert before.items() <= study.trials.items()
    assert len(study.trials) == 12
    assert 0 <= view.test_loss < view.chance_loss
    assert study.optimizer.decisions == view.decisions
    assert study.optimizer.incumbent.number == view.incumbent.trial
    lines = METHODS["flash"].render_decisions(view.decisions, view.losses.named)
    assert all(isinstance(line, str) for line in lines)


def test_promoted_configuration_in_a_race_reuses_the_first_fold(tmp_path) -> None:
    data = {"data": str(write_table(tmp_path)), "target": "target", "space": "small"}
    done = searched(tmp_path, trials=10, fit=False, race=True, **data)
    history = Study(done.store, done.name).optimizer.history
    assert history.stopped
    assert len(history.complete) > 1
    for whole in history.complete[1:]:  # the first configuration ran whole
        first = history.trials_of(whole.query.configuration)[0]
        assert whole.evaluation.fold_losses[0] == first.evaluation.loss
        assert all(step.hit for step in whole.evaluation.steps if step.fold == 0)
