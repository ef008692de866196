"""A study as a page of Markdown: best trial, curve, status, failures, and how to continue."""

import shlex
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from prefect_tune.flows.flow_run_page.plain_text import escaped
from prefect_tune.flows.flow_run_page.trials_table import FailureReason
from prefect_tune.flows.markdown import block, table
from prefect_tune.flows.progress import CurvePoint, Progress, fidelity_suffix
from prefect_tune.flows.text import counted, format_seconds, loss_name, loss_unit
from prefect_tune.optimizers.space.wording import value_text

_WIDTH, _HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 18, 34
_LINE, _INK, _GRID = "#1860f2", "#333842", "#dfe3ea"


def curve_picture(points: Sequence[CurvePoint], seconds: float, title: str) -> str:
    """Return an image in markdown; empty without incumbents.

    Args:
        points: The incumbents, which can be compared with one another.
        seconds: The time of the study, at which the curve ends.
        title: What the losses are, for people.
    """
    if not points:
        return ""
    first, last = points[0].loss, points[-1].loss
    encoded = b64encode(_svg(points, max(seconds, points[-1].seconds, 1e-3), title).encode())
    alt = f"{title} from {first:.4g} to {last:.4g} in {format_seconds(seconds)}"
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
    labels = "".join(
        f'<text x="{_LEFT - 8}" y="{y(m) + 4:.1f}" text-anchor="end">{m:.3g}</text>' for m in marks
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """All that a page says of a study.

    Attributes:
        progress: Where it stands.
        method: Name of the method.
        space: Name of the space.
        data: Name of the data.
        chance_loss: Loss of guessing; None where there is none.
        state: running, complete, interrupted or failed.
        store_options: The words by which a command finds its store.
        failures: Why trials have failed, the most frequent reason first.
        result: Its summary once it has ended, as `show --json` prints it.
    """

    progress: Progress
    method: str
    space: str
    data: str
    chance_loss: float | None
    state: str = "running"
    store_options: Sequence[str] = ()
    failures: Sequence[FailureReason] = ()
    result: Mapping[str, Any] | None = None

    @property
    def unit(self) -> str:
        """The unit of losses, as it stands behind them."""
        return loss_unit(self.progress.metric)

    @property
    def metric(self) -> str:
        """The name of losses."""
        return loss_name(self.progress.metric)


def summary(account: Account) -> str:
    """Return the page."""
    parts = _best, _curve, _pipeline, _standing, _failures, _commands
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part(account))))


def short(account: Account) -> str:
    """Return the same in a line."""
    progress = account.progress
    said = [_trials(progress)]
    if (best := progress.incumbent) is not None:
        loss = f"{best.loss:.4g}{account.unit}{fidelity_suffix(best)}"
        said.insert(0, f"best {escaped(account.metric)} {loss}")
    if progress.seconds_left is not None and account.state == "running":
        said.append(f"done in about {format_seconds(progress.seconds_left)}")
    return " · ".join(said)


def _best(account: Account) -> Iterator[str]:
    best, unit = account.progress.incumbent, account.unit
    if best is None:
        yield "## No trial leads yet"
        return
    metric = escaped(account.metric)
    yield f"## Best {metric}: {best.loss:.4g}{unit}"
    said = [f"trial {best.number}{fidelity_suffix(best)}"]
    result = account.result or {}
    alone, whole = result.get("single_best_test_loss"), result.get("test_loss")
    model = result.get("model_trial")
    is_model = model is None or model["trial"] == best.number
    if alone is not None and is_model:
        said.append(f"on the test rows **{alone:.4g}{unit}**")
    if account.chance_loss is not None:
        said.append(f"guessing: {account.chance_loss:.4g}{unit}")
    yield " · ".join(said)
    ensemble = result.get("ensemble")
    if ensemble and whole is not None and len(ensemble["members"]) > 1:
        of = counted(len(ensemble["members"]), "trial")
        yield ""
        yield f"model: {ensemble['kind']} ensemble of {of}, on the test rows **{whole:.4g}{unit}**"
    for text in _about_model(result, metric, unit, is_best=is_model):
        yield ""
        yield text


def _about_model(
    result: Mapping[str, Any], metric: str, unit: str, *, is_best: bool
) -> Iterator[str]:
    """Yield what is unusual about the model: another trial, a partial one, no test loss."""
    model, replaced, test = (result.get(n) for n in ("model_trial", "instead_of", "test_loss"))
    if model is not None and not is_best:
        tested = "" if test is None else f", on the test rows **{test:.4g}{unit}**"
        yield f"model: trial {model['trial']}{tested}"
    if replaced:
        numbers = ", ".join(map(str, replaced["trials"]))
        yield f"instead of trial {numbers}: {escaped(replaced['reason'])}"
    if result.get("model_is_partial"):
        yield "no full evaluation qualifies; the model is the best partial one"
    if reason := result.get("test_loss_undefined"):
        yield f"{metric} on the test rows is undefined: {escaped(reason)}"


def _curve(account: Account) -> Iterator[str]:
    progress = account.progress
    title = f"best {account.metric}{account.unit}{fidelity_suffix(progress.incumbent)}"
    if picture := curve_picture(progress.curve, progress.seconds, title):
        yield picture


def _pipeline(account: Account) -> Iterator[str]:
    best = account.progress.incumbent
    if best is None:
        return
    rows = []
    for step, choice in best.query.configuration.to_json().items():
        values = (f"{name} = {value_text(v)}" for name, v in choice["hyperparameters"].items())
        rows.append((step, choice["algorithm"], ", ".join(values)))
    yield from _table(("step", "algorithm", "values"), rows)


def _standing(account: Account) -> Iterator[str]:
    progress = account.progress
    phase = f": {progress.phase}" if progress.phase and account.state == "running" else ""
    total = progress.seconds_total
    time = format_seconds(progress.seconds) + (f" of {format_seconds(total)}" if total else "")
    saved = format_seconds(max(progress.seconds_saved, 0.0))
    rows = [
        ("state", f"{account.state}{phase}"),
        ("trials", _trials(progress)),
        ("time", time),
        ("cache", f"{progress.cache_hits:,} steps served, {saved} saved"),
        ("searched", f"{account.space} by {account.method}, on {account.data}"),
    ]
    yield from _table(("study", progress.study), rows)


def _trials(progress: Progress) -> str:
    """Return how many trials there are, of configurations where those may take several."""
    said = f"{progress.n_trials:,}"
    if progress.can_go_on:
        n_full = progress.n_trials - progress.n_stopped - progress.n_failed
        said += f" trials: {n_full:,} in full, {progress.n_stopped:,} in part"
    else:
        said += f" of {progress.trials_total:,} trials" if progress.trials_total else " trials"
    said += f", {progress.n_failed:,} failed"
    if progress.can_go_on:
        if progress.trials_total:
            said += f"; {progress.n_begun:,} of {progress.trials_total:,} configurations begun"
        else:
            said += f"; {counted(progress.n_begun, 'configuration')} begun"
    return said


def _failures(account: Account) -> Iterator[str]:
    if not account.failures:
        return
    yield "### Failed trials"
    yield ""
    rows = []
    for reason in account.failures:
        last = f"trial\N{NO-BREAK SPACE}{reason.last}"
        shown = f"[{last}]({reason.url})" if reason.url else last
        rows.append((escaped(reason.text), f"{reason.n_trials:,}", shown))
    yield from table(("reason", "trials", "last"), rows)


def _commands(account: Account) -> Iterator[str]:
    study = account.progress.study
    asked: list[tuple[str, ...]] = [("show", study), ("trials", study)]
    if account.failures:
        asked += [("trials", study, "--failed"), ("retry", study)]
    if (account.result or {}).get("incumbent"):
        asked.append(("export", study, "model.pkl"))
    yield "### To go on"
    yield ""
    commands = (shlex.join(["prefect-tune", *words, *account.store_options]) for words in asked)
    yield from block(commands, "sh")
    yield ""
    yield (
        f"The same command with `--study {study}` continues it, with a larger `--budget` or more "
        "`--trials`."
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    return table(list(map(escaped, head)), [list(map(escaped, row)) for row in rows])
