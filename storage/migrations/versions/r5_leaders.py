"""The result of a study names the trial that leads, and else the one nearest to the constraints.

Readers ranked the trials before. The ranking of that version is kept here.
"""

import json
from collections.abc import Iterable, Mapping
from math import inf, isnan
from typing import Any

from alembic import op
from sqlalchemy import JSON, Integer, String, Text, cast, column, select, table

revision, down_revision = "5", "4"

_DOCUMENT = JSON(none_as_null=True)
_STUDIES = table(
    "studies", column("name", String), column("settings", _DOCUMENT), column("result", _DOCUMENT)
)
_TRIALS = table(
    "trials", column("study", String), column("number", Integer), column("state", String),
    column("body", _DOCUMENT),
)  # fmt: skip


def upgrade() -> None:
    """Apply.

    A process of the version before that is running writes the result without these keys; the study
    shows no leader then until it is resumed.
    """
    connection = op.get_bind()
    # Undecoded, so that one damaged document does not keep all others from being upgraded.
    as_texts = [cast(c, Text) for c in (_STUDIES.c.settings, _STUDIES.c.result)]
    for name, *texts in connection.execute(select(_STUDIES.c.name, *as_texts)).all():
        of_study = (_TRIALS.c.study == name) & _TRIALS.c.state.in_(("complete", "stopped"))
        in_order = select(cast(_TRIALS.c.body, Text)).where(of_study).order_by(_TRIALS.c.number)
        bodies = connection.execute(in_order)
        try:
            settings, result = map(json.loads, texts)
            bounds = settings["options"].get("constraint") or ()
            leaders = _leaders(map(json.loads, bodies.scalars()), bounds, result.get("incumbent"))
        except (KeyError, TypeError, AttributeError, ValueError):
            continue  # damaged: the study is reported so when it is read
        update = _STUDIES.update().where(_STUDIES.c.name == name)
        connection.execute(update.values(result={**result, **leaders}))


def _leaders(
    trials: Iterable[Mapping[str, Any]], bounds: Iterable[Mapping[str, Any]], chosen: int | None
) -> dict[str, int | None]:
    """Return the leading trial, and the nearest one if none leads.

    Args:
        trials: Documents of the trials with a loss.
        bounds: Constraints as settings have them.
        chosen: The trial that the method chose, if not the best full one.
    """
    limits = {_quantity_name(bound["quantity"]): float(bound["bound"]) for bound in bounds}
    best: tuple[float, int | None] = inf, None
    nearest: tuple[bool, float, float, int | None] = True, inf, inf, None
    for trial in trials:
        evaluation, number = trial["evaluation"], int(trial["number"])
        loss, is_partial = float(evaluation["loss"]), trial["state"] != "complete"
        measured = evaluation.get("constraints", {})
        excess = max((_excess(measured.get(q), bound) for q, bound in limits.items()), default=0.0)
        # Trials come by number: of equals, the first stays.
        if excess > 0:
            if nearest[-1] is None or (is_partial, excess, loss) < nearest[:-1]:
                nearest = is_partial, excess, loss, number
        elif not is_partial and (best[-1] is None or loss < best[0]):
            best = loss, number
    leader = chosen if chosen is not None else best[-1]
    return {"best_trial": leader, "nearest_trial": nearest[-1] if leader is None else None}


def _excess(value: float | None, bound: float) -> float:
    if value is None or isnan(value):
        return inf
    return (value - bound) / bound if bound else value


def _quantity_name(quantity: Mapping[str, Any]) -> str:
    """Return a quantity as measurements name it."""
    arguments = [quantity["column"]] if quantity.get("column") else []
    if bins := quantity.get("bins"):
        arguments.append(f"bins={':'.join(f'{edge:.15g}' for edge in bins)}")
    if quantity.get("metric"):
        arguments.append(f"metric={quantity['metric']}")
    return f"{quantity['name']}({', '.join(arguments)})" if arguments else str(quantity["name"])
