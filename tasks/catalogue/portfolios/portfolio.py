"""Portfolios: configurations of a space that did well on many tables, to begin a search with.

Made by `tests/benchmarks/run flows/portfolio`, which also says what they are worth on tables that
they were not made from. Like that of auto-sklearn 2 (Feurer et al. 2022, section 4): greedy, and
without features of the table.
"""

import json
from pathlib import Path

from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.naming import UnknownName
from prefect_tune.optimizers.space.space import Space

__all__ = ["PORTFOLIOS", "portfolio_of"]

PORTFOLIOS = Path(__file__).parent
"""A JSON file for each space that has one."""


def portfolio_of(space: Space) -> list[Configuration]:
    """Return the configurations to begin with, in their order; none if the space has no portfolio.

    Those of libraries that are not installed are left out.
    """
    path = PORTFOLIOS / f"{space.name}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    found = []
    for document in known:
        try:
            found.append(Configuration.from_json(document, space))
        except UnknownName:
            continue
    return found
