"""Documents stored as JSON are read back equal, as copies."""

import json
from dataclasses import MISSING, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from worlds import mixed_space, told

from prefect_tune.optimizers import (
    Asked,
    Budget,
    Evaluation,
    Failure,
    FailureKind,
    Prior,
    PriorTrial,
    Query,
    StepCost,
    Trial,
)
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.optimizers.events import (
    Event,
    Retried,
    Told,
    event_document,
    event_of,
)
from prefect_tune.optimizers.methods.admm.splitting import AdmmState
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
DAMAGES = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Errors of which a ledger says that a document is damaged."""
DOCUMENTS: dict[str, Any] = {
    "configuration": QUERY.configuration,
    "query": QUERY,
    "partial query": PART,
    "evaluation": FULL,
    **{f"failure: {kind}": Failure(kind, "why") for kind in FailureKind},
    "failure of a step": FAILURE,
    "running": WAITING.started(),
    "complete": WAITING.started().completed(FULL),
    "failed": WAITING.started().failed(FAILURE),
    "stopped": Trial(4, PART).started().completed(FULL),
    "died and failed": DIED.failed(Failure(FailureKind.CRASHED, "it died")),
    "ask": Asked(0, QUERY, BUDGET),
    "tell": Told(told(0, QUERY, 3.0)),
    "retry": Retried(0),
    "prior": Prior(
        (PriorTrial(QUERY.configuration, 7.0, 2),), (QUERY.configuration,), "last night", 3
    ),
    "memo of flash": FlashMemo(3, [3, 0], 2, 1, 4),
    "memo of admm": AdmmState(path=("a",), tuned=[("a",)], theta=[1.0], fitted=7),
}


def written(kept: Any) -> dict[str, Any]:
    if isinstance(kept, Event):
        return event_document(kept)
    return kept.to_json() if hasattr(kept, "to_json") else to_document(kept)


def read(kind: Any, document: dict[str, Any]) -> Any:
    if issubclass(kind, Event):
        return event_of(kind.kind, document, SPACE)
    if hasattr(kind, "from_json"):
        return kind.from_json(document, SPACE)
    return from_document(kind, document)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_round_trips_through_json(name: str) -> None:
    kept = DOCUMENTS[name]
    document = written(kept)
    assert read(type(kept), json.loads(json.dumps(document))) == kept


@pytest.mark.parametrize("name", DOCUMENTS)
def test_missing_or_mistyped_value_is_refused(name: str) -> None:
    kept = DOCUMENTS[name]
    document = json.loads(json.dumps(written(kept)))
    known = fields(kept.trial if isinstance(kept, Told) else kept)
    optional = {f.name for f in known if not f.default is f.default_factory is MISSING}
    for key in document:
        with pytest.raises(DAMAGES):
            read(type(kept), {**document, key: [{}]})
        if key not in optional:
            with pytest.raises(DAMAGES):
                read(type(kept), {k: v for k, v in document.items() if k != key})


def test_damaged_document_is_reported_with_the_place_of_the_damage() -> None:
    document = to_document(FULL)
    document["steps"][0]["seconds"] = "long"
    with pytest.raises(ValueError, match=r"Evaluation: .*steps\[0\]"):
        from_document(Evaluation, document)


def test_numpy_values_and_read_only_mappings_are_written_as_plain_values() -> None:
    measured = MappingProxyType({"size": np.float64(2.0)})
    document = to_document(
        Evaluation(np.float64(1.5), constraints=measured, trouble=np.str_("no epoch 3"))
    )
    found = document["loss"], document["constraints"]["size"], document["trouble"]
    assert tuple(map(type, found)) == (float, float, str)
    with pytest.raises(TypeError, match="written as JSON"):
        to_document(Evaluation(object()))  # type: ignore[arg-type]


def test_ask_event_has_no_memo_and_a_query_no_unused_limits() -> None:
    document = event_document(Asked(0, QUERY, BUDGET, {"phase": 1}))
    assert document.keys() == {"number", "query", "budget"}
    always = {"configuration", "subset", "subset_draw", "epochs"}
    assert QUERY.to_json().keys() == always
    assert PART.to_json().keys() == always | {"folds", "held_out"}


def test_names_shared_by_many_steps_are_stored_once() -> None:
    document = json.dumps(to_document(FULL))
    one, another = (from_document(Evaluation, json.loads(document)).steps[0] for _ in range(2))
    assert one.key is another.key
    assert one.step is another.step


def test_returned_memo_does_not_change_with_the_state() -> None:
    memo, state = FlashMemo(design=[0], notes=["before"]), AdmmState()
    before = [json.dumps(written(kept)) for kept in (memo, state)]
    handed_out = [written(kept) for kept in (memo, state)]
    memo.notes.append("later")
    state.units.update({"0": 0.5})
    assert [json.dumps(kept) for kept in handed_out] == before


def test_events_and_outcomes_of_earlier_versions_are_read() -> None:
    asked = event_document(Asked(0, QUERY, BUDGET))
    asked["budget"]["fold_seconds"] = 60.0
    for later in ("trial_seconds", "n_workers", "last_ask_seconds"):
        del asked["budget"][later]
    before = replace(BUDGET, n_workers=1, last_ask_seconds=())
    found = event_of("ask", asked | {"memo": {"phase": 1}}, SPACE)
    assert found == Asked(0, QUERY, before, {"phase": 1})  # 0.1 had the memo inside
    new = {"load_seconds", "pilot"}
    old = {name: value for name, value in to_document(FULL).items() if name not in new}
    old["steps"] = [{k: v for k, v in old["steps"][0].items() if k != "held_out_seconds"}]
    steps = (replace(STEPS[0], held_out_seconds=0.0),)
    expected = replace(FULL, load_seconds=0.0, pilot=None, steps=steps)
    assert from_document(Evaluation, old) == expected
