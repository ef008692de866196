"""`--start`: initial configurations of a study."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path

from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.optimizers.trials.objective import violation
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.modern import portfolio_of

_BEST = 10
"""Maximum number of configurations taken from an earlier study."""
_NONE, _PORTFOLIO = "none", "portfolio"
_WRITTEN = (
    'write a JSON list of configurations, such as [{"fit model": {"algorithm": "random_forest", '
    '"hyperparameters": {...}}, ...}], or the output of `prefect-tune trials STUDY --json`, '
    "or name a study"
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
        if not (portfolio := portfolio_of(space)):
            raise _refused(start, f"space {space.name!r} has no portfolio")
        return portfolio
    if Path(start).is_file():
        return list(_of_file(start, space))
    ledger = Ledger(store.database)
    if (stored := ledger.study(start)) is None:
        known = UnknownName("study", start, ledger.study_names())
        raise _refused(start, f"no such file, and {known}")
    with documents_of(start):
        plan = StudyPlan.from_documents(stored)
        trials = [TrialView(trial).checked() for trial in ledger.trials(start)]
    found = _best_of(trials, space, plan)
    if not found and plan.space != space.name:
        raise _refused(start, f"its trials do not fit; use the study's --space {plan.space}")
    if not found:
        raise _refused(start, "the study has no full trial that meets its constraints")
    return found


def _refused(start: str, reason: str) -> BadInput:
    return BadInput(reason, option="start", value=start, remedy=_WRITTEN)


def _of_file(start: str, space: Space) -> Iterator[Configuration]:
    try:
        entries = json.loads(Path(start).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _refused(start, str(error)) from error
    if not isinstance(entries, list) or not entries:
        raise _refused(start, "the file has no list of configurations")
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise _refused(start, f"entry {number} is no configuration")
        try:
            query = entry.get("query", entry)  # the entry may be a trial
            yield Configuration.from_json(query.get("configuration", query), space)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise _refused(start, f"entry {number}: {reason}") from error


def _best_of(trials: Sequence[TrialView], space: Space, plan: StudyPlan) -> list[Configuration]:
    """Return the configurations of a study's best trials within the space, best first."""
    found: dict[Configuration, float] = {}
    constraints = [bound.constraint for bound in plan.options.bounds]
    for trial in trials:
        if not trial.has_loss or violation(constraints, trial.quantities) > 0:
            continue
        with suppress(UnknownName, ValueError):  # of another space
            query = Query.from_json(trial.query, space)
            if query.is_full:
                found[query.configuration] = min(trial.loss, found.get(query.configuration, inf))
    return sorted(found, key=lambda configuration: found[configuration])[:_BEST]
