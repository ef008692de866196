"""What is kept as JSON comes back equal, and is a copy."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from source_tree import classes_with
from worlds import evaluation, mixed_space, told

from prefect_tune.optimizers import (
    Asked,
    Budget,
    Choice,
    Evaluation,
    Failure,
    FailureKind,
    Query,
    StepCost,
    Trial,
)
from prefect_tune.optimizers.events import ConstraintsMeasured, Retried, Told
from prefect_tune.optimizers.methods.admm.positions import AdmmState
from prefect_tune.optimizers.methods.flash.flash import FlashMemo
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.outcome import Pilot

SPACE = mixed_space()
QUERY = Query(sample_configuration(SPACE, np.random.default_rng(0)))
PART = replace(QUERY, subset=0.25, subset_draw=2, epochs=3, folds=1, held_out=0.5)
STEPS = (StepCost("scale", 0, 0.5, 0.1, hit=True, key="abc", held_out_seconds=0.25),)
FULL = Evaluation(
    1.5,
    (1.0, 2.0),
    3.0,
    4.0,
    steps=STEPS,
    constraints={"latency_us": 7.0},
    curve=(3.0, 2.0),
    fold_curves=((4.0, 2.0), (2.0, 2.0)),
    best_epoch=2,
    resumed_from=1,
    predictions=("abc", "def"),
    risks=(1.0, 2.0),
    load_seconds=2.5,
    pilot=Pilot(1_000, 4_000, STEPS, 7.0, 9.0),
)
FAILURE = Failure(FailureKind.ERROR, "why", "where", "scale", 1, 0.5, FULL.steps)
BUDGET = Budget(0, 5, 1.5, 30.0, 0.25, 4, (0.125, 0.125))
WAITING = Trial(3, QUERY)
DIED = Trial(0, QUERY).started().died().started().died()
MEMO = FlashMemo(3, [3, 0], 2, 1, 4, [(3, -0.5)])
DOCUMENTS: dict[str, Any] = {
    "choice": Choice("count", (("depth", 3), ("weight", "none"))),
    "configuration": QUERY.configuration,
    "query": QUERY,
    "query of a part": PART,
    "evaluation": FULL,
    "loss alone": evaluation(1.0),
    **{f"failure: {kind}": Failure(kind, "why") for kind in FailureKind},
    "failure of a step": FAILURE,
    "waiting": WAITING,
    "running": WAITING.started(),
    "complete": WAITING.started().completed(FULL),
    "failed": WAITING.started().failed(FAILURE),
    "stopped": Trial(4, PART).started().stopped(FULL),
    "died": DIED,
    "died and failed": DIED.failed(Failure(FailureKind.CRASHED, "it died")),
    "ask": Asked(0, QUERY, BUDGET),
    "tell": Told(told(0, QUERY, 3.0)),
    "retry": Retried(0),
    "measure": ConstraintsMeasured(0, {"size": 2.0}),
    "memo of flash": MEMO,
    "memo of admm": AdmmState(path=("a",), tuned=[("a",)], theta=[1.0], fitted=7),
}
WITHOUT_A_SPACE = (Choice, Evaluation, Failure, FlashMemo, AdmmState)
ELSEWHERE = {
    "Reason",  # is read by people alone
    "Prediction",  # is read with all of a memo, in `fabolas/test_decisions.py`
}


def read(kind: Any, document: dict[str, Any]) -> Any:
    return kind.from_json(document, *(() if issubclass(kind, WITHOUT_A_SPACE) else (SPACE,)))


def test_each_class_that_is_kept_as_json_is_looked_at() -> None:
    looked_at = {type(kept).__name__ for kept in DOCUMENTS.values()}
    assert looked_at | ELSEWHERE == classes_with("to_json", "optimizers")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_it_comes_back_equal_and_of_plain_values(name: str) -> None:
    kept = DOCUMENTS[name]
    document = kept.to_json()
    assert read(type(kept), json.loads(json.dumps(document))) == kept
    assert json.loads(json.dumps(document)) == json.loads(
        json.dumps(read(type(kept), document).to_json())
    )


@dataclass(frozen=True)
class Changed:
    """A memo, and what changes it."""

    memo: Any
    change: Callable[[Any], object]


@pytest.mark.parametrize(
    "changed",
    [
        Changed(FlashMemo(design=[0], notes=["before"]), lambda m: m.notes.append("later")),
        Changed(AdmmState(tuned=[("a",)]), lambda m: m.tuned.append(("b",))),
        Changed(AdmmState(), lambda m: m.units.update({"0": 0.5})),
    ],
)
def test_a_memo_does_not_change_after_it_was_handed_out(changed: Changed) -> None:
    handed_out = changed.memo.to_json()
    before = json.dumps(handed_out)
    changed.change(changed.memo)
    assert json.dumps(handed_out) == before


def test_events_and_outcomes_of_earlier_versions_are_read() -> None:
    asked = Asked(0, QUERY, BUDGET).to_json()
    asked["budget"]["fold_seconds"] = 60.0
    del asked["budget"]["trial_seconds"]
    assert Asked.from_json(asked, SPACE) == Asked(0, QUERY, BUDGET)
    new = {"load_seconds", "pilot"}
    old = {name: value for name, value in FULL.to_json().items() if name not in new}
    old["steps"] = [{k: v for k, v in old["steps"][0].items() if k != "held_out_seconds"}]
    steps = (replace(STEPS[0], held_out_seconds=0.0),)
    expected = replace(FULL, load_seconds=0.0, pilot=None, steps=steps)
    assert Evaluation.from_json(old) == expected
