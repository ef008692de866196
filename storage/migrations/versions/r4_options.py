"""Settings of a study hold its options by name, apart from facts that the study found out."""

import json
from collections.abc import Mapping
from typing import Any

from alembic import op
from sqlalchemy import JSON, String, Text, cast, column, select, table

revision, down_revision = "4", "3"

_STUDIES = table("studies", column("name", String), column("settings", JSON(none_as_null=True)))
_AS_TEXT = cast(_STUDIES.c.settings, Text)
"""Undecoded, so that one damaged document does not keep all others from being upgraded."""
_OF_SOURCE: Mapping[str, Any] = {
    "data": None,
    "target": None,
    "labels": None,
    "format": None,
    "test": None,
    "group": None,
    "drop": [],
    "categorical": [],
    "drop_missing_target": False,
}
"""Options that were in `source`, with the values of those that it may lack."""
_SAME = (
    "test_size", "folds", "holdout", "space", "method", "metric", "positive", "constraint",
    "epochs", "race", "seed", "option", "trials",
)  # fmt: skip
_RENAMED = {
    "start": "start_from",
    "budget": "budget_seconds",
    "trial_timeout": "trial_seconds",
    "trial_memory": "trial_memory_bytes",
}


def upgrade() -> None:
    """Apply. Keys of schema 3 stay, for processes of the version before that are running."""
    connection = op.get_bind()
    for name, text in connection.execute(select(_STUDIES.c.name, _AS_TEXT)).all():
        try:
            former = json.loads(text)
            upgraded = {**former, **_upgraded(former)}
        except (KeyError, TypeError, AttributeError, ValueError):
            continue  # damaged: the study is reported so when it is read
        of_study = _STUDIES.c.name == name
        connection.execute(_STUDIES.update().where(of_study).values(settings=upgraded))


def _upgraded(former: Mapping[str, Any]) -> dict[str, Any]:
    source = former["source"]
    options = {
        **{name: source.get(name, default) for name, default in _OF_SOURCE.items()},
        **{name: former[name] for name in _SAME},
        **{name: former[earlier] for name, earlier in _RENAMED.items()},
        "ensemble": _ensemble(former["ensemble"]),
        "no_cache": not former["use_cache"],
    }
    return {
        "options": options,
        "data_name": former["data_name"],
        "chance_loss": former["chance_loss"],
        "predicts": source.get("predicts"),
        "aside": source.get("aside", []),
        "quantity_digests": former["quantity_digests"],
        "start_configurations": former["start"],
        "earlier_seconds": former.get("earlier_seconds", []),
        "flow_run_id": former["flow_run_id"],
    }


def _ensemble(former: int | str | None) -> dict[str, Any] | None:
    """Return the rule that a number of picks or a kind stood for."""
    if former is None:
        return None
    kind = former if isinstance(former, str) else "single" if former == 1 else "greedy"
    return {"kind": kind, "size": former if kind == "greedy" and former != kind else None}
