"""Lines at the bottom of a terminal while a study runs, fitted to its size."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from itertools import pairwise
from math import log
from time import monotonic

from rich.console import Console, ConsoleOptions
from rich.text import Text

from prefect_tune.deployments.views.console import bold, line
from prefect_tune.flows.progress import CurvePoint, Progress, RunningTrial
from prefect_tune.flows.text import format_seconds, number_text

_BLOCKS = "▁▂▃▄▅▆▇█"


def block_curve(points: Sequence[CurvePoint], seconds: float, width: int) -> str:
    """Return the incumbents over time as bars, each for an equal share of the time.

    Heights are logarithmic if all losses are positive, because the first incumbents are much worse.
    `seconds` is the study time at the end of the curve, and `width` the maximum number of bars.

    >>> block_curve([CurvePoint(0, 40), CurvePoint(2, 20), CurvePoint(3, 10)], 4, 8)
    '████▄▄▁▁'
    """
    if not points or width < 1:
        return ""
    is_positive = min(point.loss for point in points) > 0
    heights = [log(point.loss) if is_positive else point.loss for point in points]
    low, high = min(heights), max(heights)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    shown = [_BLOCKS[round((h - low) * scale)] for h in heights]
    start = points[0].seconds
    end = max(seconds, points[-1].seconds)
    borders = [*(point.seconds for point in points), end]
    if end <= start:
        return shown[-1]
    columns = [round((at - start) / (end - start) * width) for at in borders]
    drawn = "".join(block * (b - a) for block, (a, b) in zip(shown, pairwise(columns), strict=True))
    # An incumbent of a moment ago has no bar of its own.
    return drawn if columns[-1] > columns[-2] else drawn[:-1] + shown[-1]


_MOST_FAILURES = 2
_BAR = 8
_CURVE, _LEAST_CURVE = 24, 6
_STEP = 28
"""Maximum characters of a step with its fold."""
_WIDE = 80
"""Terminal width from which a trial's fold and limit are shown."""
_NEAR = 0.8
"""Share of a trial's limit from which the trial is highlighted."""


class LiveLines:
    """Live lines, redrawn by rich twice a second; `clock` advances times between two reports."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._progress: Progress | None = None
        self._at = 0.0
        self._failures: deque[str] = deque(maxlen=_MOST_FAILURES)

    def show(self, progress: Progress) -> None:
        """Set the state of the study."""
        self._progress, self._at = progress, self._clock()

    def fail(self, text: str) -> None:
        """Add the reason of a failed trial."""
        self._failures.append(_one_line(text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Yield the lines."""
        progress, room = self._progress, max(console.size.height - 1, 1)
        if progress is None:
            return
        width = options.max_width
        header = _header(progress, console, width, max(room // 4, 1))
        room -= len(header)
        rest = [_status(progress, width)] if room else []
        room -= len(rest)
        # If room is short, running trials go first: failures can be looked up later.
        n_failures = min(len(self._failures), max(room - min(len(progress.running), 3), 0))
        rest += self._running(progress, room - n_failures, width)
        if n_failures:
            rest += [line((text, "yellow")) for text in list(self._failures)[-n_failures:]]
        for text in rest:
            text.truncate(width, overflow="ellipsis")
        yield from (*header, *(text for text in rest if text.plain))

    def _running(self, progress: Progress, room: int, width: int) -> list[Text]:
        since, n_running = self._clock() - self._at, len(progress.running)
        n_shown = n_running if n_running <= room else max(room - 1, 0)
        trials = nlargest(n_shown, progress.running, key=lambda trial: trial.seconds)
        steps = [_step(trial, has_fold=width >= _WIDE) for trial in trials]
        step_width = min(max(map(len, steps), default=0), _STEP)
        lines = [
            _trial(trial, f"{step:<{step_width}.{step_width}}", since, width)
            for trial, step in zip(trials, steps, strict=True)
        ]
        if n_running > n_shown and room > 0:
            lines.append(line(f"and {n_running - n_shown} more"))
        return lines


def _status(progress: Progress, width: int) -> Text:
    end = _end(progress)
    phase = progress.phase
    curve = ""
    if len(progress.curve) > 1:
        first, last = (number_text(p.loss) for p in (progress.curve[0], progress.curve[-1]))
        first, last = f"{first} ", f" {last}"
        taken = sum(len(part) + 3 for part in (end, phase) if part) + len(first) + len(last)
        n = max(min(_CURVE, width - taken), _LEAST_CURVE)
        curve = first + block_curve(progress.curve, progress.seconds, n) + last
    return line(_one_line(" · ".join(filter(None, (curve, end, phase)))))


def _end(progress: Progress) -> str:
    """Return the expected end of the trials; empty if the time limit comes first."""
    left = progress.seconds_left
    if left is None:
        return ""
    by_clock = progress.seconds_total
    if by_clock is not None and left >= by_clock - progress.seconds - 1:
        return ""
    return f"done in about {format_seconds(left)}"


def _one_line(text: str) -> str:
    """Return a text without line breaks, because lines are counted."""
    return text.replace("\n", " ").replace("\t", " ")


def _header(progress: Progress, console: Console, width: int, most: int) -> list[Text]:
    status = line(bold(progress.status_line()))
    lines = list(status.wrap(console, width))
    if len(lines) <= most:
        return lines
    for text in lines:
        text.rstrip()
    last = Text(" ").join(lines[most - 1 :])
    last.truncate(width, overflow="ellipsis")
    return [*lines[: most - 1], last]


def _step(trial: RunningTrial, *, has_fold: bool) -> str:
    if not trial.step:
        return "starting"
    step = _one_line(trial.step)
    return f"{step}, fold {trial.fold}" if has_fold else step


def _trial(trial: RunningTrial, step: str, since: float, width: int) -> Text:
    seconds, limit = trial.seconds + since, trial.limit_seconds
    share = min(seconds / limit, 1.0) if limit > 0 else 1.0
    n_full = round(share * _BAR)
    bar = "█" * n_full + "░" * (_BAR - n_full), "yellow" if share >= _NEAR else "cyan"
    of = f" of {format_seconds(limit)}" if width >= _WIDE else ""
    start = f"trial {trial.number:>3}  {step}  {format_seconds(seconds):>6}  "
    path = _path(trial.path, width - len(start) - _BAR - len(of) - 2)
    return line(start, bar, f"{of}  ", (path, "dim"))


def _path(path: Sequence[str], room: int) -> str:
    """Return the algorithms of a path without identities; if room is short, the last ones."""
    path = [_one_line(algorithm) for algorithm in path if algorithm != "none"]
    for n_left_out in range(len(path)):
        text = " > ".join(["…", *path[n_left_out:]] if n_left_out else path)
        if len(text) <= room:
            return text
    return path[-1] if path else ""
