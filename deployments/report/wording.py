"""Losses, pipelines and lists of trials as a report says them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from math import isfinite
from typing import Any

from prefect_tune.flows.text import loss_name, loss_unit
from prefect_tune.optimizers.space.wording import values_text

_MOST_LISTED = 12
Summary = Mapping[str, Any]
"""A study summed up, as `show --json` prints it."""


@dataclass(frozen=True, slots=True)
class LossWords:
    """How the losses of a metric are called.

    Args:
        metric: Name of the metric.
    """

    metric: str

    @property
    def name(self) -> str:
        """Name of the loss, for people."""
        return loss_name(self.metric)

    @property
    def unit(self) -> str:
        """Its unit, with a space before it; empty if it has none."""
        return loss_unit(self.metric)

    @property
    def axis(self) -> str:
        """The title of an axis."""
        return f"{self.name},{self.unit}" if self.unit else self.name

    def of(self, loss: float | None) -> str:
        """Return a loss with its unit."""
        return "-" if loss is None else f"{short_number(loss)}{self.unit}"


def short_number(value: float | None) -> str:
    """Return a number with four digits; a dash for none."""
    if value is None or not isfinite(value):
        return "-"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def pipeline_rows(configuration: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return step, algorithm and values, a step a row."""
    return [
        (step, choice["algorithm"], ", ".join(values_text(choice["hyperparameters"])))
        for step, choice in configuration.items()
    ]


def made_now() -> str:
    """Return when and by which version a page is made."""
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
