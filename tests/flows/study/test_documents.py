"""Damaged documents of the ledger are reported with their study and the place of the damage."""

import json

import pytest
from flow_studies import plan
from worlds import evaluation, mixed_space

from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.optimizers import Query, Trial
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.storage.database import DatabaseDamaged
from prefect_tune.storage.ledger import StoredStudy

TRIAL = Trial(0, Query(default_configuration(mixed_space(), ("none", "tree")))).started()
DAMAGES = {
    "loss": ("long", r"Expected `float`, got `str` - at `\$\.loss`"),
    "steps": ([{"step": "scale"}], "missing required field"),
    "curve": (None, "Expected `array`, got `null`"),
}


@pytest.mark.parametrize("field", DAMAGES)
def test_a_damaged_evaluation_is_told_with_the_place_of_the_damage(field) -> None:
    document = TRIAL.completed(evaluation(1.0)).to_json()
    value, why = DAMAGES[field]
    document["evaluation"][field] = value
    with pytest.raises(DatabaseDamaged, match=f"study s is damaged .*{why}"), documents_of("s"):
        TrialView(document).checked()


def test_a_damaged_trial_is_told_when_its_study_is_resumed() -> None:
    document = {**TRIAL.to_json(), "attempts": "once"}
    with pytest.raises(DatabaseDamaged, match="study s is damaged"), documents_of("s"):
        Trial.from_json(document, mixed_space())


@pytest.mark.parametrize(
    ("part", "damage"),
    [("problem", {"seed": "none"}), ("settings", {"options": {"folds": "three"}}),
     ("settings", {"chance_loss": "low"})],
)  # fmt: skip
def test_a_damaged_plan_is_told_with_its_study(part, damage) -> None:
    whole = plan(chance_loss=50.0)
    documents = {"problem": whole.problem.to_json(), "settings": whole.to_json()}
    documents = json.loads(json.dumps(documents))
    documents[part].update(damage)
    damaged = StoredStudy("study", 0.0, "new", result={}, seconds=0.0, **documents)
    with pytest.raises(DatabaseDamaged, match="study study"):
        StudyPlan.from_stored(damaged)
