"""Trials, as a list; and one trial explained, with its pipeline, result, times and code."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from rich.table import Table
from rich.text import Text

from prefect_tune.deployments.views.console import CONSOLE, bold, line
from prefect_tune.flows.reading.trial_detail import (
    ChosenStep,
    ChosenValue,
    MeasuredBound,
    SameConfiguration,
    StepFolds,
    TrialDetail,
)
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.text import (
    Whole,
    bracketed,
    counted,
    failure_text,
    format_seconds,
    number_text,
)
from prefect_tune.optimizers.space.wording import value_text

_MOST_FOLDS = 6
"""Number of folds shown one by one."""
_MOST_CHOICES = 4
"""Number of alternative algorithms named for a step."""
_CURVE_WIDTH = 48
_BARS = "▁▂▃▄▅▆▇█"


def print_trial(trial: TrialDetail, *, task_run: str | None = None) -> None:
    """Print a trial; `task_run` is the address of its task run in the Prefect UI, if known."""
    CONSOLE.print(_title(trial))
    for text in (*_asked(trial), *_when(trial, task_run), *_failure(trial)):
        CONSOLE.print(line("  ", text))
    if trial.fold_losses:
        _print("losses", _losses(trial))
    _print("pipeline", _pipeline(trial.pipeline))
    if any(h.is_default is False for c in trial.pipeline for h in c.hyperparameters):
        CONSOLE.print("  * not the default")
    if trial.steps:
        _print("time", _time(trial.steps))
        CONSOLE.print("  (in brackets: served by the cache; time when it was made)")
    if trial.constraints:
        _print("constraints", _constraints(trial.constraints))
    if trial.stretches:
        _print("the same configuration", _partial_evaluations(trial))
    for text in _curve(trial):
        CONSOLE.print(text)
    for text in (*_traceback(trial), *_output(trial)):
        CONSOLE.print(text)
    CONSOLE.print()
    CONSOLE.print(line(bold("its code: "), trial.code))


def _print(title: str, table: Table) -> None:
    CONSOLE.print()
    CONSOLE.print(line(bold(title)))
    CONSOLE.print(table)


def _table(*headers: str) -> Table:
    return Table(*headers, box=None, pad_edge=True, padding=(0, 1, 0, 1))


def _title(trial: TrialDetail) -> Text:
    losses, best = trial.losses, trial.incumbent
    parts: list[str | tuple[str, str]] = [
        bold(f"trial {trial.trial}"),
        f" of {trial.study}: {_STATES.get(trial.state, trial.state)}",
    ]
    if trial.loss is not None:
        parts += [f", {losses.name} ", bold(losses.of(trial.loss))]
    parts.append(bracketed(trial.fidelity))
    if best is not None:
        is_best = best.trial == trial.trial
        other = f"best: trial {best.trial}, {losses.of(best.loss)}"
        parts.append(", the best one" if is_best else f"; {other}")
    if trial.in_model:
        parts.append("; in the final model")
    return line(*parts)


def _asked(trial: TrialDetail) -> Iterator[str]:
    reason = trial.reason
    if reason is not None:
        text = f": {reason['text']}" if reason.get("text") else ""
        yield f"proposed by {trial.method}, {reason['phase']}{text}"


def _when(trial: TrialDetail, task_run: str | None) -> Iterator[str]:
    parts = []
    if trial.asked_at:
        local = datetime.fromisoformat(trial.asked_at).astimezone()
        parts.append(f"proposed at {local.strftime('%Y-%m-%d %H:%M:%S')}")
    if trial.cost_seconds is not None:
        took, whole = trial.cost_seconds, trial.cost_uncached_seconds
        saved = "" if whole is None else f" ({format_seconds(whole)} without the cache)"
        parts.append(f"took {format_seconds(took)}{saved}")
        if trial.load_seconds:
            load = format_seconds(trial.load_seconds)
            parts.append(f"after {load} of loading the data and the libraries")
    if trial.attempts > 1:
        parts.append(counted(trial.attempts, "attempt"))
    if parts:
        yield ", ".join(parts)
    if task_run is not None:
        yield f"in Prefect: {task_run}"
    elif trial.task_run_id:
        yield f"in Prefect: task run {trial.task_run_id}"


def _failure(trial: TrialDetail) -> Iterator[str | Text]:
    failure = trial.failure
    if failure is None:
        return
    kind = "" if failure.kind == "error" else f" ({failure.kind})"
    yield line(bold(f"failed{kind}: "), failure_text(failure))
    yield f"retry it: {failure.retry}"


def _losses(trial: TrialDetail) -> Table:
    mine, best = trial.fold_losses, trial.incumbent
    mean = trial.loss or 0.0
    n_folds = max(len(mine), len(best.fold_losses) if best else 0)
    shown = min(n_folds, _MOST_FOLDS)
    table = _table("", "mean", *(f"fold {fold}" for fold in range(shown)))
    table.add_row(f"trial {trial.trial}", *_numbers(mean, mine, shown))
    if best is not None and best.trial != trial.trial:
        others = best.fold_losses
        name = f"trial {best.trial} (best)"
        table.add_row(name, *_numbers(best.loss, others, shown))
        both = list(zip(mine, others, strict=False))
        if both:
            differences = [one - other for one, other in both]
            difference = sum(differences) / len(both)
            same = "" if len(mine) == len(others) else " on the same folds"
            table.add_row(
                f"difference{same}", *_numbers(difference, differences, shown, is_signed=True)
            )
    table.add_row("guessing", number_text(trial.chance_loss))
    return table


def _numbers(
    mean: float, folds: Sequence[float], shown: int, *, is_signed: bool = False
) -> list[str]:
    return [number_text(loss, is_signed=is_signed) for loss in (mean, *folds[:shown])]


def _pipeline(choices: Sequence[ChosenStep]) -> Table:
    table = _table("step", "", "value", "default", "range")
    for choice in choices:
        table.add_row(choice.step, "", choice.algorithm, "", _others(choice))
        for h in choice.hyperparameters:
            mark = "" if h.is_default is not False else "*"
            default = "" if h.is_default is None else value_text(h.default)
            log = " (log)" if h.is_log else ""
            table.add_row(f"  {h.name}", mark, _value(h), default, f"{h.range or ''}{log}")
    return table


def _others(choice: ChosenStep) -> str:
    others = [name for name in choice.choices or () if name != choice.algorithm]
    if not others:
        return ""
    more = f" and {len(others) - _MOST_CHOICES} more" if len(others) > _MOST_CHOICES else ""
    return f"instead of {', '.join(others[:_MOST_CHOICES])}{more}"


def _value(hyperparameter: ChosenValue) -> str:
    """Return a value, and the estimator's value on the first fold if different."""
    value, effective = hyperparameter.value, hyperparameter.effective
    text = value_text(value)
    is_other = str(effective).lower() != str(value).lower()  # texts may stand for None and the like
    return f"{text} (here {value_text(effective)})" if is_other else text


def _time(steps: Sequence[StepFolds]) -> Table:
    table = _table("step", "cached", "seconds by fold", "to load")
    for step in steps:
        folds = step.folds
        made = [f"({f.seconds:.2f})" if f.hit else f"{f.seconds:.2f}" for f in folds]
        loading = [f"{f.load_seconds:.2f}" for f in folds]
        table.add_row(
            step.step,
            f"{sum(f.hit for f in folds)}/{len(folds)}",
            _listed(made),
            _listed(loading) if any(f.load_seconds for f in folds) else "",
        )
    return table


def _listed(cells: Sequence[str]) -> str:
    return " ".join(cells[:_MOST_FOLDS]) + (" …" if len(cells) > _MOST_FOLDS else "")


def _constraints(constraints: Sequence[MeasuredBound]) -> Table:
    table = _table("quantity", "measured", "at most", "")
    for c in constraints:
        value = "not measured" if c.value is None else number_text(c.value)
        table.add_row(c.quantity, value, f"{c.bound:g}", "" if c.is_met else "exceeded")
    return table


def _partial_evaluations(trial: TrialDetail) -> Table:
    table = _table("trial", "state", "of", "loss")
    mine = SameConfiguration(trial.trial, trial.state, trial.fidelity, trial.loss)
    for other in sorted([mine, *trial.stretches], key=lambda stretch: stretch.trial):
        number = f"{other.trial}" + (" (this one)" if other.trial == trial.trial else "")
        loss = "" if other.loss is None else number_text(other.loss)
        state = _STATES.get(other.state, other.state)
        table.add_row(number, state, other.fidelity or "all", loss)
    return table


def _curve(trial: TrialDetail) -> Iterator[Text | str]:
    curve = trial.curve
    if curve is None:
        return
    losses, best = curve.losses, curve.best_epoch
    yield ""
    yield line(bold("learning"))
    yield f"  {_bars(losses)}"
    words = trial.losses
    at_best = f"; {words.of(losses[best - 1])} after epoch {best}, the best one" if best else ""
    yield (
        f"  {words.named(losses[0])} after epoch 1, {words.of(losses[-1])} after "
        f"epoch {len(losses)}{at_best}"
    )
    if curve.resumed_from:
        yield f"  resumed from epoch {curve.resumed_from}, where an earlier trial stopped"
    if curve.trouble:
        yield f"  {curve.trouble}"


def _bars(losses: Sequence[float]) -> str:
    """Return a curve as bars; the height of each is the largest loss of its epochs.

    >>> _bars([4.0, 2.0, 1.0])
    '█▃▁'
    """
    n = min(len(losses), _CURVE_WIDTH)
    edges = [round(i * len(losses) / n) for i in range(n + 1)]
    heights = [max(losses[a:b]) for a, b in pairwise(edges)]
    low, high = min(heights), max(heights)
    span = (high - low) or 1.0
    return "".join(_BARS[round((h - low) / span * (len(_BARS) - 1))] for h in heights)


def _traceback(trial: TrialDetail) -> Iterator[Text | str]:
    failure = trial.failure
    if failure is not None and failure.traceback:
        yield ""
        yield line(bold("traceback"))
        yield from (f"  {text}" for text in failure.traceback.rstrip().splitlines())


def _output(trial: TrialDetail) -> Iterator[Text | str]:
    """Yield the last output lines of a failed trial, and the command that prints all."""
    output_bytes, failure = trial.output_bytes, trial.failure
    if not output_bytes:
        return
    yield ""
    yield line(bold("output: "), f"{output_bytes:,} bytes; {trial.show_output}")
    if failure is not None:
        yield from (f"  {text}" for text in failure.output.splitlines())


_STATES = {"stopped": "in part"}
"""Displayed names of states, if different."""


def first_trials(trials: Iterable[TrialView]) -> dict[int, int]:
    """Return the first trial of each resumed trial's configuration; trials come by number."""
    begun: dict[bytes, int] = {}
    first = {t.number: begun.setdefault(t.configuration_text, t.number) for t in trials}
    return {number: of for number, of in first.items() if number != of}


def print_trials(
    trials: Sequence[TrialView],
    whole: Whole,
    *,
    first: Mapping[int, int] | None = None,
    links: Mapping[int, str] | None = None,
    empty: str = "no trials",
) -> None:
    """Print trials, one per line, with the reasons of failures and the fidelities of others.

    `whole` is the full evaluation, `first` has the first trial of each resumed trial, `links` has
    addresses of task runs by trial number, and `empty` is printed if there are no trials.
    """
    first, links = first or {}, links or {}
    parts = [whole.part(trial.query) for trial in trials]
    of = ("of",) if any(parts) else ()
    on = ("continues",) if any(trial.number in first for trial in trials) else ()
    table = Table("trial", *on, "state", *of, "loss", "seconds", "cached", "pipeline", box=None)
    for trial, part in zip(trials, parts, strict=True):
        began = f"trial {first[trial.number]}" if trial.number in first else ""
        steps = trial.steps
        table.add_row(
            str(trial.number),
            *((began,) if on else ()),
            _STATES.get(trial.state, trial.state),
            *((part or "all",) if of else ()),
            number_text(trial.loss) if trial.has_loss else "",
            f"{trial.cost_seconds:.1f}" if trial.state.is_told else "",
            f"{sum(step['hit'] for step in steps)}/{len(steps)}" if steps else "",
            "\n".join(_about(trial, links.get(trial.number))),
        )
    CONSOLE.print(table if trials else empty)


def _about(trial: TrialView, link: str | None) -> Iterator[str]:
    yield " > ".join(trial.path)
    if (failure := trial.failure) is not None:
        yield failure_text(failure)
        yield from (f"| {text}" for text in failure.output.splitlines())
    if link is not None:
        yield link
    if trial.trouble:
        yield trial.trouble
    if trial.quantities:
        yield ", ".join(f"{name} {number_text(value)}" for name, value in trial.quantities.items())
