"""`--start`: initial configurations of a study."""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path

from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.optimizers.trials.objective import violation
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.modern import portfolio_of

_BEST = 10
"""Maximum number of configurations taken from an earlier study."""
_SHOWN = 60
"""Maximum characters of an entry shown in an error."""
_NONE, _PORTFOLIO = "none", "portfolio"
_WRITTEN = (
    'write a JSON list of configurations, such as [{"fit model": {"algorithm": "random_forest", '
    '"hyperparameters": {...}}, ...}], or the output of `prefect-tune trials STUDY --json`'
)


def known_configurations(start: str, space: Space, store: ArtifactStore) -> list[Configuration]:
    """Return the configurations that `--start` names, checked against the space.

    `start` is a JSON file (a list of configurations or trials), the name of a study (its ten best
    full trials that met its constraints), `portfolio` (the space's portfolio) or `none`. Raises
    `BadInput` for anything else, and for entries outside the space.
    """
    if start == _NONE:
        return []
    if start == _PORTFOLIO:
        return _portfolio(space)
    if Path(start).is_file():
        return list(_of_file(Path(start), start, space))
    ledger = Ledger(store.database)
    if (stored := ledger.study(start)) is None:
        reason = f"no such file, and {UnknownName('study', start, ledger.study_names())}"
        raise BadInput(reason, option="start", value=start, remedy=_WRITTEN)
    with documents_of(start):
        plan = StudyPlan.from_documents(stored)
        trials = [TrialView(trial).checked() for trial in ledger.trials(start)]
    return _best_of(trials, start, space, plan)


def _portfolio(space: Space) -> list[Configuration]:
    if not (found := portfolio_of(space)):
        raise BadInput(
            f"space {space.name!r} has no portfolio",
            option="start",
            value=_PORTFOLIO,
            remedy="omit it, or name a file or a study",
        )
    return found


def _of_file(path: Path, start: str, space: Space) -> Iterator[Configuration]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(str(error), option="start", value=start, remedy=_WRITTEN) from error
    if entries == []:
        raise BadInput("the list is empty", option="start", value=start, remedy=_WRITTEN)
    if not isinstance(entries, list):
        raise BadInput("the file has no list", option="start", value=start, remedy=_WRITTEN)
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            reason = f"entry {number} is not a configuration: {json.dumps(entry)[:_SHOWN]}"
            raise BadInput(reason, option="start", value=start, remedy=_WRITTEN)
        try:
            query = entry.get("query", entry)  # the entry may be a trial
            yield Configuration.from_json(query.get("configuration", query), space)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise BadInput(
                f"entry {number}: {reason}", option="start", value=start, remedy=_WRITTEN
            ) from error


def _best_of(
    trials: Sequence[TrialView], start: str, space: Space, plan: StudyPlan
) -> list[Configuration]:
    """Return the configurations of a study's best trials within the space, best first."""
    found: dict[Configuration, float] = {}
    reason = "the study has no full trial"
    constraints = [bound.constraint for bound in plan.options.bounds]
    for trial in trials:
        if not trial.has_loss:
            continue
        try:
            query = Query.from_json(trial.query, space)
        except (UnknownName, ValueError) as error:
            reason = f"no trial belongs to space {space.name!r}: {str(error).rstrip('.')}"
            continue
        if not query.is_full:
            continue
        if violation(constraints, trial.quantities) <= 0:
            found[query.configuration] = min(trial.loss, found.get(query.configuration, inf))
        else:
            reason = "no full trial of the study meets its constraints"
    if not found:
        remedy = "name another study, or a file"
        if plan.space != space.name:
            remedy = f"use the study's --space {plan.space}, or {remedy}"
        raise BadInput(reason, option="start", value=start, remedy=remedy)
    return sorted(found, key=lambda configuration: found[configuration])[:_BEST]
