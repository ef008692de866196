"""Pipelines and lists of trials in a report."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from prefect_tune.optimizers.space.wording import values_text

_MOST_LISTED = 12


def pipeline_rows(configuration: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return step, algorithm and values of each step."""
    return [
        (step, choice["algorithm"], ", ".join(values_text(choice["hyperparameters"])))
        for step, choice in configuration.items()
    ]


def made_now() -> str:
    """Return time and version for the footer of a page."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"Made by prefect-tune {version('prefect-tune')} on {now}."


def listed_trials(numbers: Sequence[int], most: int = _MOST_LISTED) -> str:
    """Return numbers of trials as text.

    >>> listed_trials([3]), listed_trials([1, 2, 3], most=2)
    ('trial 3', 'trials 1, 2 and 1 more')
    """
    noun = "trial" if len(numbers) == 1 else "trials"
    more = f" and {len(numbers) - most:,} more" if len(numbers) > most else ""
    return f"{noun} {', '.join(map(str, numbers[:most]))}{more}"
