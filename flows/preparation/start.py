"""`--start`: known configurations that a study begins with."""

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
"""Configurations of an earlier study that are begun with."""
_SHOWN = 60
"""Characters of an entry that is named."""
_NONE, _PORTFOLIO = "none", "portfolio"
_WRITTEN = (
    'write a JSON list of configurations, such as [{"fit model": {"algorithm": "random_forest", '
    '"hyperparameters": {...}}, ...}], or what `prefect-tune trials STUDY --json` prints'
)


def known_configurations(start: str, space: Space, store: ArtifactStore) -> list[Configuration]:
    """Return the configurations that `--start` names.

    Args:
        start: A JSON file with a list of configurations or of trials; the name of a study, for its
            ten best that ran whole and met its constraints; `portfolio` for that of the space; or
            `none`.
        space: What is to be searched.
        store: Where studies are.

    Raises:
        BadInput: If there is none of these, or something in it is not of the space; names it.
    """
    if start == _NONE:
        return []
    if start == _PORTFOLIO:
        return _portfolio(space)
    if Path(start).is_file():
        return list(_of_file(Path(start), start, space))
    ledger = Ledger(store.database)
    if (stored := ledger.study(start)) is None:
        reason = f"there is no such file, and {UnknownName('study', start, ledger.study_names())}"
        raise BadInput(reason, option="start", value=start, remedy=_WRITTEN)
    with documents_of(start):
        plan = StudyPlan.from_documents(stored)
        trials = [view for trial in ledger.trials(start) if (view := TrialView(trial)).checked()]
    return _best_of(trials, start, space, plan)


def _portfolio(space: Space) -> list[Configuration]:
    if not (found := portfolio_of(space)):
        raise BadInput(
            f"space {space.name!r} has no portfolio",
            option="start",
            value=_PORTFOLIO,
            remedy="leave it out, or name a file or a study",
        )
    return found


def _of_file(path: Path, start: str, space: Space) -> Iterator[Configuration]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(str(error), option="start", value=start, remedy=_WRITTEN) from error
    if entries == []:
        raise BadInput("its list is empty", option="start", value=start, remedy=_WRITTEN)
    if not isinstance(entries, list):
        raise BadInput("it has no list", option="start", value=start, remedy=_WRITTEN)
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            said = f"entry {number} is no configuration: {json.dumps(entry)[:_SHOWN]}"
            raise BadInput(said, option="start", value=start, remedy=_WRITTEN)
        try:
            query = entry.get("query", entry)  # the entry may be a trial
            yield Configuration.from_json(query.get("configuration", query), space)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            said = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise BadInput(
                f"entry {number}: {said}", option="start", value=start, remedy=_WRITTEN
            ) from error


def _best_of(
    trials: Sequence[TrialView], start: str, space: Space, plan: StudyPlan
) -> list[Configuration]:
    """Return the best of a study's trials that are of the space, best first.

    Args:
        trials: All trials of the study.
        start: Its name.
        space: What is to be searched.
        plan: Plan of the study, with the constraints that its best trials meet.

    Raises:
        BadInput: If none of them is.
    """
    found: dict[Configuration, float] = {}
    reason = "it has no trial that ran whole"
    constraints = [bound.constraint for bound in plan.options.bounds]
    for trial in trials:
        if not trial.has_loss:
            continue
        try:
            query = Query.from_json(trial.query, space)
        except (UnknownName, ValueError) as error:
            reason = f"none of its trials is of space {space.name!r}: {str(error).rstrip('.')}"
            continue
        if not query.is_full:
            continue
        if violation(constraints, trial.quantities) <= 0:
            found[query.configuration] = min(trial.loss, found.get(query.configuration, inf))
        else:
            reason = "none of its trials that ran whole meets its constraints"
    if not found:
        remedy = "name another study, or a file"
        if plan.space != space.name:
            remedy = f"give --space {plan.space}, which it searched, or {remedy}"
        raise BadInput(reason, option="start", value=start, remedy=remedy)
    return sorted(found, key=lambda configuration: found[configuration])[:_BEST]
