"""What is read from documents is what the optimizers' history makes of the same trials."""

from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st
from worlds import mixed_space

from prefect_tune.flows.study.documents import Standing, TrialDocument
from prefect_tune.optimizers.space.configuration import Query, default_configuration
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Constraint
from prefect_tune.optimizers.trials.outcome import Evaluation, Failure, FailureKind
from prefect_tune.optimizers.trials.trial import Trial

CONFIGURATION = default_configuration(mixed_space(), ("unit", "svm"))
CONSTRAINTS = (Constraint("size", 10), Constraint("time", 0))


@st.composite
def trials(draw: st.DrawFn) -> list[Trial]:
    made = []
    for number in range(draw(st.integers(0, 8))):
        less = draw(st.sampled_from(({}, {"subset": 0.5}, {"folds": 1}, {"epochs": 2})))
        trial = Trial(number, Query(CONFIGURATION, **less))
        match draw(st.sampled_from(("waiting", "running", "complete", "complete", "failed"))):
            case "running":
                trial = trial.started()
            case "failed":
                trial = trial.started().failed(Failure(FailureKind.ERROR, "why", cost_seconds=0.5))
            case "complete":
                quantities = draw(
                    st.dictionaries(
                        st.sampled_from(("size", "time")), st.sampled_from((0.0, 9.0, 25.0, nan))
                    )
                )
                loss = draw(st.sampled_from((1.0, 2.0, 3.0)))
                trial = trial.started().ended(
                    Evaluation(loss, cost_seconds=1.5, constraints=quantities)
                )
        made.append(trial)
    return made


@given(trials(), st.sampled_from(((), CONSTRAINTS[:1], CONSTRAINTS)))
def test_the_incumbent_is_that_of_the_history(made, constraints) -> None:
    history = History(constraints)
    for trial in made:
        history.record(trial)
    standing = Standing(constraints)
    for trial in made:
        standing.add(TrialDocument(trial.to_json()))
    assert _number(standing.incumbent) == _number(history.incumbent)
    nearest = None if history.incumbent else history.nearest_infeasible
    assert _number(standing.nearest_infeasible) == _number(nearest)


@given(trials())
def test_a_document_says_what_the_trial_says(made) -> None:
    for trial in made:
        document = TrialDocument(trial.to_json())
        assert document.state is trial.state
        assert document.cost_seconds == trial.cost_seconds
        assert document.configuration == trial.query.configuration.to_json()
        assert set(document.quantities) == set(
            trial.evaluation.constraints if trial.evaluation else ()
        )
        if trial.evaluation:
            assert -inf < document.loss == trial.loss


def _number(trial: Trial | TrialDocument | None) -> int | None:
    return None if trial is None else trial.number
