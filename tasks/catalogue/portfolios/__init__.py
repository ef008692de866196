"""Portfolios: configurations of a space that did well on other data, to begin a search with.

They are JSON files, one for each space.

Made by `tests/benchmarks/run flows/portfolio`, which also says what they are worth on data that
they were not made from. Like that of auto-sklearn 2 (Feurer et al. 2022, section 4): greedy, and
without features of the table.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.wording import UnknownName

PORTFOLIOS = Path(__file__).parent
"""A JSON file for each space that has one, and another of what needs no extra."""
_LISTS = "{}.json", "{}_without_boosting.json"


def portfolio_of(space: Space) -> list[Configuration]:
    """Return the configurations to begin with, in their order; none if the space has no portfolio.

    Where the extra `boosting` is not installed, those of the list made without it. What is not of
    the space is left out.
    """
    found = [list(_of_space(PORTFOLIOS / name.format(space.name), space)) for name in _LISTS]
    return max(found, key=len)


def _of_space(path: Path, space: Space) -> Iterator[Configuration]:
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    for document in known:
        try:
            yield Configuration.from_json(document, space)
        except (UnknownName, KeyError, ValueError):  # a user's space may have the name of ours
            continue
