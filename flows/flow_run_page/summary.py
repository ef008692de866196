"""Summary of a study in Markdown: best trial, curve, status, failures and next commands."""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from prefect_tune.flows.flow_run_page.plain_text import escaped
from prefect_tune.flows.flow_run_page.trials_table import shortened
from prefect_tune.flows.markdown import block, table
from prefect_tune.flows.progress import CurvePoint, Progress
from prefect_tune.flows.reading.commands import next_commands
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.text import (
    FailureGroup,
    LossWords,
    bracketed,
    counted,
    format_seconds,
    number_text,
    saved_text,
)
from prefect_tune.optimizers.space.wording import value_text

_WIDTH, _HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 18, 34
_LINE, _INK, _GRID = "#1860f2", "#333842", "#dfe3ea"


def curve_picture(points: Sequence[CurvePoint], seconds: float, title: str) -> str:
    """Return the curve of comparable incumbents as a Markdown image; empty without incumbents."""
    if not points:
        return ""
    first, last = points[0].loss, points[-1].loss
    encoded = b64encode(_svg(points, max(seconds, points[-1].seconds, 1e-3), title).encode())
    alt = f"{title} from {number_text(first)} to {number_text(last)} in {format_seconds(seconds)}"
    return f"![{escaped(alt)}](data:image/svg+xml;base64,{encoded.decode()})"


def _svg(points: Sequence[CurvePoint], seconds: float, title: str) -> str:
    low, high = (f(point.loss for point in points) for f in (min, max))
    margin = 0.08 * (high - low) or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin

    def x(at: float) -> float:
        return _LEFT + at / seconds * (_WIDTH - _LEFT - _RIGHT)

    def y(loss: float) -> float:
        return _TOP + (high - loss) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    marks = sorted({points[0].loss, points[-1].loss, (points[0].loss + points[-1].loss) / 2})
    path = f"M{x(points[0].seconds):.1f},{y(points[0].loss):.1f}"
    path += "".join(f"H{x(p.seconds):.1f}V{y(p.loss):.1f}" for p in points[1:])
    path += f"H{x(seconds):.1f}"
    dots = "".join(
        f'<circle cx="{x(p.seconds):.1f}" cy="{y(p.loss):.1f}" r="3"/>' for p in points[-40:]
    )
    grid = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(m):.1f}" y2="{y(m):.1f}"/>'
        for m in marks
    )
    texts = ((y(m) + 4, number_text(m)) for m in marks)
    labels = "".join(
        f'<text x="{_LEFT - 8}" y="{at:.1f}" text-anchor="end">{text}</text>' for at, text in texts
    )
    bottom = _HEIGHT - 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#fff"/>'
        f'<g stroke="{_GRID}">{grid}</g>'
        f'<g font-family="sans-serif" font-size="12" fill="{_INK}">{labels}'
        f'<text x="{_LEFT}" y="{bottom}">0 s</text>'
        f'<text x="{_WIDTH - _RIGHT}" y="{bottom}" text-anchor="end">'
        f"{format_seconds(seconds)}</text>"
        f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{bottom}" text-anchor="middle">'
        f"{escape(title)}</text></g>"
        f'<path d="{path}" fill="none" stroke="{_LINE}" stroke-width="2"/>'
        f'<g fill="{_LINE}">{dots}</g></svg>'
    )


MOST_REASONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """Content of a page about a study.

    Attributes:
        chance_loss: Loss of guessing; None if it is undefined.
        failures: Failed trials by reason, most frequent first.
        task_run_urls: Task run URL of the last trial that failed for each reason, by trial number.
    """

    progress: Progress
    method: str
    space: str
    data: str
    chance_loss: float | None
    state: str = "running"
    store_options: Sequence[str] = ()
    failures: Sequence[FailureGroup] = ()
    task_run_urls: Mapping[int, str] = field(default_factory=dict)
    result: StudyView | None = None

    @property
    def losses(self) -> LossWords:
        """Formatting of losses in the study's metric."""
        return self.progress.losses


def summary(page_state: PageState) -> str:
    """Return the page as Markdown."""
    parts = _best, _curve, _pipeline, _status_rows, _failures, _commands
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part(page_state))))


def one_line(page_state: PageState) -> str:
    """Return the summary in one line."""
    progress = page_state.progress
    parts = [_trials(progress)]
    if (best := progress.incumbent) is not None:
        loss = f"{page_state.losses.of(best.loss)}{bracketed(progress.part(best))}"
        parts.insert(0, f"best {escaped(page_state.losses.name)} {loss}")
    if progress.seconds_left is not None and page_state.state == "running":
        parts.append(f"done in about {format_seconds(progress.seconds_left)}")
    return " · ".join(parts)


def _best(page_state: PageState) -> Iterator[str]:
    best, losses, view = page_state.progress.incumbent, page_state.losses, page_state.result
    if best is None:
        yield "## No trial leads yet"
        return
    if view is not None and view.uselessness:
        yield f"**{escaped(view.uselessness)}**"
        yield ""
    yield f"## Best {escaped(losses.name)}: {losses.of(best.loss)}"
    parts = [f"trial {best.number}{bracketed(page_state.progress.part(best))}"]
    is_other = view is not None and view.has_other_model
    if view is not None and view.single_best_test_loss is not None and not is_other:
        parts.append(f"on the test rows **{losses.of(view.single_best_test_loss)}**")
    if page_state.chance_loss is not None:
        parts.append(f"guessing: {losses.of(page_state.chance_loss)}")
    yield " · ".join(parts)
    for text in _about_model(view) if view is not None else ():
        yield ""
        yield text


def _about_model(view: StudyView) -> Iterator[str]:
    """Yield notes on an ensemble and on anything unusual about the model."""
    losses, test = view.losses, view.test_loss
    ensemble, model, replaced = view.ensemble, view.model_trial, view.instead_of
    tested = "" if test is None else f", on the test rows **{losses.of(test)}**"
    if ensemble is not None and ensemble.has_several and test is not None:
        of = counted(len(ensemble.members), "trial")
        yield f"model: {ensemble.kind} ensemble of {of}{tested}"
    if model is not None and view.has_other_model:
        yield f"model: trial {model.trial}{tested}"
    if replaced is not None:
        numbers = ", ".join(map(str, replaced.trials))
        yield f"instead of trial {numbers}: {escaped(replaced.reason)}"
    if view.model_is_partial:
        yield "no full evaluation qualifies; the model is the best partial one"
    if view.rare_recall:
        yield escaped(view.rare_recall)
    if view.test_loss_undefined:
        reason = escaped(view.test_loss_undefined)
        yield f"{escaped(losses.name)} on the test rows is undefined: {reason}"
    if view.equal_rows is not None:
        yield escaped(losses.without_equal(view.equal_rows))


def _curve(page_state: PageState) -> Iterator[str]:
    progress, losses = page_state.progress, page_state.losses
    part = bracketed(progress.part(progress.incumbent))
    title = f"best {losses.name}{losses.unit}{part}"
    if picture := curve_picture(progress.curve, progress.seconds, title):
        yield picture


def _pipeline(page_state: PageState) -> Iterator[str]:
    best = page_state.progress.incumbent
    if best is None:
        return
    rows = []
    for step, choice in best.query.configuration.choices:
        values = (f"{name} = {value_text(v)}" for name, v in choice.documents)
        rows.append((step, choice.algorithm, ", ".join(values)))
    yield from _table(("step", "algorithm", "values"), rows)


def _status_rows(page_state: PageState) -> Iterator[str]:
    progress = page_state.progress
    phase = f": {progress.phase}" if progress.phase and page_state.state == "running" else ""
    total, saved = progress.seconds_total, saved_text(progress.seconds_saved)
    time = format_seconds(progress.seconds) + (f" of {format_seconds(total)}" if total else "")
    rows = [
        ("state", f"{page_state.state}{phase}"),
        ("trials", _trials(progress)),
        ("time", time),
        ("cache", f"{progress.cache_hits:,} steps served, {saved} saved"),
        ("searched", f"{page_state.space} by {page_state.method}, on {page_state.data}"),
    ]
    yield from _table(("study", progress.study), rows)


def _trials(progress: Progress) -> str:
    """Return the number of trials, and of configurations if a configuration can take several."""
    if not progress.can_go_on:
        return progress.counts
    begun = counted(progress.n_begun, "configuration")
    if progress.trials_total:
        begun = f"{progress.n_begun:,} of {progress.trials_total:,} configurations"
    return f"{progress.counts}; {begun} started"


def _failures(page_state: PageState) -> Iterator[str]:
    if not page_state.failures:
        return
    yield "### Failed trials"
    yield ""
    rows = []
    for group in page_state.failures[:MOST_REASONS]:
        last = f"trial\N{NO-BREAK SPACE}{group.trials[-1]}"
        url = page_state.task_run_urls.get(group.trials[-1])
        shown = f"[{last}]({url})" if url else last
        rows.append((escaped(shortened(group.text)), f"{len(group.trials):,}", shown))
    yield from table(("reason", "trials", "last"), rows)
    if (n_more := len(page_state.failures) - MOST_REASONS) > 0:
        yield ""
        yield f"and {counted(n_more, 'reason')} more"


def _commands(page_state: PageState) -> Iterator[str]:
    view, study = page_state.result, page_state.progress.study
    yield "### Next"
    yield ""
    commands = next_commands(
        study,
        page_state.store_options,
        has_model=view is not None and view.has_model,
        has_failed=bool(page_state.failures),
    )
    yield from block(commands, "sh")
    yield ""
    yield (
        f"To resume the study, rerun the command with `--study {study}` and a larger `--budget` or "
        "more `--trials`."
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    return table(list(map(escaped, head)), [list(map(escaped, row)) for row in rows])
