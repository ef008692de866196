"""Texts for the properties of a study: losses, fidelities, failures, counts and durations.

Terminal, log, Prefect's pages, report and model card share these texts. In names and failure
messages, which come from users, passwords are masked and terminal control characters are escaped.
The module is cheap to import.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prefect_tune.optimizers.documents import fidelity_text
from prefect_tune.optimizers.method import counted as counted  # noqa: PLC0414
from prefect_tune.optimizers.trials.outcome import Failure, FailureKind
from prefect_tune.storage.masking import masked
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.objective.metric import EqualRows as EqualRows  # noqa: PLC0414
from prefect_tune.tasks.objective.metric import LossWords as LossWords  # noqa: PLC0414
from prefect_tune.tasks.objective.metric import number_text as number_text  # noqa: PLC0414

DURATION_PATTERN = r"\s*(\d+(\.\d+)?\s*[smhd]\s*)+"
SIZE_PATTERN = r"\s*(\d+(?:\.\d+)?)\s*([KMGTkmgt]?[Bb])\s*"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_seconds(text: str, option: str) -> float:
    """Parse a duration such as `90s`, `1h30m` or `2d` into seconds; raise `BadInput` if invalid."""
    if re.fullmatch(DURATION_PATTERN, text) is None:
        reason = "a duration is a number with a unit (s, m, h or d), for instance 30m or 1h30m"
        raise BadInput(reason, option=option, value=text)
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([smhd])", text)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds <= 0:
        raise BadInput("a duration must be longer than 0 s", option=option, value=text)
    return seconds


def parse_bytes(text: str, option: str) -> int:
    """Parse a size such as `500MB` or `10GB` into bytes; raise `BadInput` if invalid."""
    match = re.fullmatch(SIZE_PATTERN, text)
    if match is None:
        reason = "a size is a number with a unit (B, KB, MB, GB or TB), for instance 500MB or 10GB"
        raise BadInput(reason, option=option, value=text)
    return round(float(match[1]) * _BYTES[match[2].upper()])


def format_seconds(seconds: float) -> str:
    """Return a duration as text with at most two units.

    >>> format_seconds(5400), format_seconds(75), format_seconds(0.25)
    ('1h30m', '1m15s', '0.2s')
    """
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def format_bytes(size_bytes: float) -> str:
    """Return a size in bytes as text with a unit.

    >>> format_bytes(1_536_000), format_bytes(12)
    ('1.5MB', '12B')
    """
    for unit in ("TB", "GB", "MB", "KB"):
        if size_bytes >= _BYTES[unit]:
            return f"{size_bytes / _BYTES[unit]:.1f}{unit}"
    return f"{size_bytes:.0f}B"


@dataclass(frozen=True, slots=True)
class Whole:
    """Full evaluation of a configuration, against which fidelities are described.

    Attributes:
        folds: Number of folds; None without cross-validation.
        epochs: Number of epochs of full training; None if models are not trained in epochs.
    """

    folds: int | None
    epochs: int | None

    def part(self, query: Mapping[str, Any]) -> str:
        """Return the fidelity of a query (JSON values) as text; empty for a full evaluation."""
        return fidelity_text(query, self.folds, self.epochs)


def bracketed(text: str) -> str:
    """Return a space and the text in parentheses; empty if the text is empty."""
    return f" ({text})" if text else ""


def counts_text(
    n_begun: int, n_trials: int, n_partial: int, n_failed: int, *, limit: int | None = None
) -> str:
    """Return counts of configurations (and their limit, if any) and of trials by outcome.

    A partial trial is complete too.

    >>> counts_text(20, 23, 19, 0)
    '20 configurations in 23 trials: 23 complete (19 partial), 0 failed'
    """
    begun = f"{n_begun:,} of " if limit else ""
    partial = bracketed(f"{n_partial:,} partial" if n_partial else "")
    return (
        f"{begun}{counted(limit or n_begun, 'configuration')} in {counted(n_trials, 'trial')}: "
        f"{n_trials - n_failed:,} complete{partial}, {n_failed:,} failed"
    )


def saved_text(seconds: float) -> str:
    """Return the time saved by the cache as text; 0.0s if loading took longer than computing."""
    return format_seconds(max(seconds, 0.0))


def failure_text(failure: Failure) -> str:
    """Return the step, fold and message of a failure as text."""
    if not failure.step:
        return failure.message
    fold = "" if failure.fold is None else f", fold {failure.fold}"
    return f"{failure.step}{fold}: {failure.message}"


_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")
_LONGEST_MESSAGE = 2_000
"""Maximum number of characters of a message. `show` prints longer messages in full."""
_LONGEST_TRACEBACK = 20_000
"""Number of characters kept from the end of a traceback, which has the reason."""


@dataclass(slots=True)
class FailureGroup:
    """Trials that failed for the same reason, with step and message of the first trial."""

    kind: FailureKind
    step: str | None
    message: str
    traceback: str
    trials: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """Step and message of the failure as text."""
        return f"{self.step}: {self.message}" if self.step else self.message


class FailureGroups:
    """Failures grouped by kind, step and message. Numbers in messages are ignored."""

    def __init__(self) -> None:
        self._groups: dict[tuple[FailureKind, str | None, str], FailureGroup] = {}

    def __len__(self) -> int:
        return sum(len(group.trials) for group in self._groups.values())

    def add(self, number: int, failure: Failure | None) -> None:
        """Add the failure of a trial, if the trial failed."""
        if failure is None:
            return
        message = masked(failure.message)
        if len(message) > _LONGEST_MESSAGE:
            message = f"{message[:_LONGEST_MESSAGE]}…"
        key = (failure.kind, failure.step, _NUMBER.sub("#", message))
        if key not in self._groups:
            traceback = masked(failure.traceback)[-_LONGEST_TRACEBACK:]
            self._groups[key] = FailureGroup(failure.kind, failure.step, message, traceback)
        self._groups[key].trials.append(number)
        self._groups[key].seconds += failure.cost_seconds

    def found(self) -> list[FailureGroup]:
        """Return the groups of failures, the largest group first."""
        return sorted(self._groups.values(), key=lambda group: -len(group.trials))


_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of invisible characters that control a terminal or the flow of text."""
_HARMLESS = {"\n", "\t", "\N{ZERO WIDTH JOINER}", "\N{ZERO WIDTH NON-JOINER}", "\N{SOFT HYPHEN}"}


def printable(text: str) -> str:
    """Return a text with passwords masked and control characters made visible."""
    return "".join(
        character.encode("unicode_escape").decode()
        if character not in _HARMLESS and unicodedata.category(character) in _STEERING
        else character
        for character in masked(text)
    )


_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")
"""Characters with a meaning in Markdown or embedded HTML."""


def escaped(text: object) -> str:
    r"""Return a text on one line, escaped so that Markdown shows it literally.

    >>> escaped("a|b <i>"), escaped("total_cost")
    ('a\\|b \\<i\\>', 'total\\_cost')
    """
    return _SPECIAL.sub(r"\\\1", " ".join(printable(str(text)).split()))


def code(text: object) -> str:
    r"""Return a text as inline code or, if it contains a backtick or bar, escaped.

    >>> code("C=0.5"), code("a|b")
    ('`C=0.5`', 'a\\|b')
    """
    line = " ".join(printable(str(text)).split())
    return escaped(line) if not line or "`" in line or "|" in line else f"`{line}`"


def block(lines: Iterable[str], language: str) -> list[str]:
    """Return lines as a code block with a fence longer than any run of backticks in the lines.

    >>> block(["ls"], "sh")
    ['```sh', 'ls', '```']
    """
    each_on_one = [" ".join(printable(line).splitlines()) for line in lines]
    longest = max(map(len, re.findall("`+", "\n".join(each_on_one))), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *each_on_one, fence]
