"""Terminal output on trials: lists, or one trial with pipeline, result, times and code."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from prefect_tune.deployments.views.console import CONSOLE, bold, line
from prefect_tune.flows.options.store_location import store_options
from prefect_tune.flows.reading.opened_study import ExplainedTrial
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.wording.text import (
    LossWords,
    bracketed,
    counted,
    failure_text,
    format_seconds,
    number_text,
)
from prefect_tune.optimizers.documents import value_text
from prefect_tune.optimizers.trials.outcome import Evaluation

_MOST_FOLDS = 6
"""Number of folds shown one by one."""
_MOST_CHOICES = 4
"""Number of alternative algorithms named for a step."""


def print_trial(found: ExplainedTrial, *, task_run: str | None = None) -> None:
    """Print a trial. `task_run` is the address of the trial's page in the Prefect UI, if known."""
    trial, evaluation = found.trial, found.trial.evaluation
    CONSOLE.print(_title(found))
    for text in _asked(found, task_run):
        CONSOLE.print(line("  ", text))
    if (failure := trial.failure) is not None:
        kind = "" if failure.kind == "error" else f" ({failure.kind})"
        CONSOLE.print(line("  ", bold(f"failed{kind}: "), failure_text(failure)))
        CONSOLE.print(line(f"  retry it: {_command(found, verb='retry')}"))
    if evaluation is not None:
        _print(LossWords(found.study.plan.metric).name, _scores(found, evaluation))
    _print("pipeline", *_pipeline(found))
    if trial.all_steps:
        note = "  (in brackets: seconds of the original run, for folds served by the cache)"
        _print("time", _times(trial), note)
    if found.study.plan.options.bounds:
        _print("constraints", _constraints(found))
    if others := [str(t.number) for t in found.same if t.number != trial.number]:
        _print("the same configuration", f"  trial {', '.join(others)}")
    if evaluation is not None and (losses := evaluation.curve):
        words, best = LossWords(found.study.plan.metric), evaluation.best_epoch
        at_best = f"; {words.of(losses[best - 1])} after epoch {best}, the best one" if best else ""
        _print(
            "learning",
            f"  {words.named(losses[0])} after epoch 1, {words.of(losses[-1])} after epoch "
            f"{len(losses)}{at_best}",
        )
        if evaluation.resumed_from:
            epoch = evaluation.resumed_from
            CONSOLE.print(f"  resumed from epoch {epoch}, where an earlier trial stopped")
        if evaluation.trouble:
            CONSOLE.print(f"  {evaluation.trouble}")
    if failure is not None and failure.traceback:
        _print("traceback", *(f"  {text}" for text in failure.traceback.rstrip().splitlines()))
    if size := found.moments and found.moments.output_bytes:
        CONSOLE.print()
        CONSOLE.print(line(bold("output: "), f"{size:,} bytes; {_command(found, '--output')}"))
        for text in failure.output.splitlines() if failure else ():
            CONSOLE.print(line("  ", text))
    CONSOLE.print()
    CONSOLE.print(line(bold("its code: "), _command(found, "--code")))


def _print(title: str, *parts: Table | str) -> None:
    CONSOLE.print()
    CONSOLE.print(line(bold(title)))
    for part in parts:
        CONSOLE.print(part)


def _command(found: ExplainedTrial, *options: str, verb: str = "show") -> str:
    words = ["prefect-tune", verb, found.study.name, "--trial", str(found.trial.number), *options]
    return shlex.join([*words, *store_options(found.study.store.address)])


def _table(*headers: str) -> Table:
    return Table(*headers, box=None, pad_edge=True, padding=(0, 1, 0, 1))


def _title(found: ExplainedTrial) -> Text:
    trial, best, losses = found.trial, found.incumbent, LossWords(found.study.plan.metric)
    parts: list[str | tuple[str, str]] = [bold(f"trial {trial.number}")]
    parts.append(f" of {found.study.name}: {trial.state}")
    if trial.has_loss:
        parts += [f", {losses.name} ", bold(losses.of(trial.loss))]
    parts.append(bracketed(found.study.plan.whole.part(trial.query)))
    if best is not None:
        other = f"; best: trial {best.number}, {losses.of(best.loss)}"
        parts.append(", the best one" if best.number == trial.number else other)
    return line(*parts, "; in the final model" if found.is_in_model else "")


def _asked(found: ExplainedTrial, task_run: str | None) -> Iterator[str]:
    moments, trial, evaluation = found.moments, found.trial, found.trial.evaluation
    if moments is None:
        return
    if (reason := moments.reason) is not None:
        text = f": {reason['text']}" if reason.get("text") else ""
        yield f"proposed by {found.study.plan.method}, {reason['phase']}{text}"
    parts = [f"proposed at {datetime.fromtimestamp(moments.asked):%Y-%m-%d %H:%M:%S}"]  # noqa: DTZ006 - local time
    if trial.state.is_told:
        without = evaluation and f" ({format_seconds(evaluation.cost_uncached_seconds)} without"
        saved = f"{without} the cache)" if without else ""
        parts.append(f"took {format_seconds(trial.cost_seconds)}{saved}")
        if trial.load_seconds:
            load = format_seconds(trial.load_seconds)
            parts.append(f"after {load} of loading the data and the libraries")
    if trial.attempts > 1:
        parts.append(counted(trial.attempts, "attempt"))
    yield ", ".join(parts)
    if task_run or moments.task_run_id:
        yield f"in Prefect: {task_run or f'task run {moments.task_run_id}'}"


def _scores(found: ExplainedTrial, evaluation: Evaluation) -> Table:
    mine, best, words = evaluation.fold_losses, found.incumbent, LossWords(found.study.plan.metric)
    others = best.fold_losses if best else ()
    n_shown = min(max(len(mine), len(others)), _MOST_FOLDS)
    table = _table("", "mean", *(f"fold {fold}" for fold in range(n_shown)))

    def add(name: str, *losses: float) -> None:
        table.add_row(name, *map(words.of, losses))

    add(f"trial {found.trial.number}", evaluation.loss, *mine[:n_shown])
    if best is not None and best.number != found.trial.number:
        add(f"trial {best.number} (best)", best.loss, *others[:n_shown])
        pairs = zip(map(words.number, mine), map(words.number, others), strict=False)
        if differences := [one - other for one, other in pairs]:
            same = "" if len(mine) == len(others) else " on the same folds"
            mean = sum(differences) / len(differences)
            signed = (number_text(d, is_signed=True) for d in (mean, *differences[:n_shown]))
            table.add_row(f"difference{same}", *signed)
    table.add_row("baseline", words.of(found.study.plan.chance_loss))
    return table


def _pipeline(found: ExplainedTrial) -> Iterator[Table | str]:
    table, has_changed = _table("step", "", "value", "default", "range"), False
    for step, choice in found.trial.configuration.items():
        others = [name for name in found.choices.get(step, ()) if name != choice["algorithm"]]
        more = f" and {len(others) - _MOST_CHOICES} more" if len(others) > _MOST_CHOICES else ""
        instead = f"instead of {', '.join(others[:_MOST_CHOICES])}{more}" if others else ""
        table.add_row(step, "", choice["algorithm"], "", instead)
        for name, value in choice["hyperparameters"].items():
            known = found.ranges.get(step, {}).get(name)
            if known is None:
                table.add_row(f"  {name}", "", value_text(value))
                continue
            is_changed = value != known.default
            has_changed |= is_changed
            texts = value_text(value), value_text(known.default)
            log = " (log)" if known.log else ""
            table.add_row(f"  {name}", "*" if is_changed else "", *texts, f"{known.range}{log}")
    yield table
    if has_changed:
        yield "  * not the default"
    if (evaluation := found.trial.evaluation) is not None and evaluation.rounds:
        yield f"  {evaluation.rounds} rounds of boosting, found by early stopping"


def _times(trial: TrialView) -> Table:
    table = _table("step", "cached", "seconds by fold", "to load")
    for step in dict.fromkeys(cost["step"] for cost in trial.all_steps):
        folds = [cost for cost in trial.all_steps if cost["step"] == step]
        made = [f"({f['seconds']:.2f})" if f["hit"] else f"{f['seconds']:.2f}" for f in folds]
        loads = [f"{f['load_seconds']:.2f}" for f in folds]
        is_loaded = any(f["load_seconds"] for f in folds)
        hits = f"{sum(f['hit'] for f in folds)}/{len(folds)}"
        table.add_row(step, hits, _listed(made), _listed(loads) if is_loaded else "")
    return table


def _listed(cells: Sequence[str]) -> str:
    return " ".join(cells[:_MOST_FOLDS]) + (" …" if len(cells) > _MOST_FOLDS else "")


def _constraints(found: ExplainedTrial) -> Table:
    table = _table("constraint", "measured", "")
    for bounded in found.study.plan.options.bounds:
        constraint = bounded.constraint
        value = found.trial.quantities.get(constraint.name)
        measured = "not measured" if value is None else number_text(value)
        is_met = constraint.excess(found.trial.quantities) <= 0
        table.add_row(bounded.text, measured, "" if is_met else "violated")
    return table


def first_trials(trials: Iterable[TrialView]) -> dict[int, int]:
    """Return, for each resumed trial, the first trial of the same configuration."""
    begun: dict[bytes, int] = {}
    first = {t.number: begun.setdefault(t.configuration_text, t.number) for t in trials}
    return {number: start for number, start in first.items() if number != start}


def print_trials(
    trials: Sequence[TrialView],
    plan: StudyPlan,
    first: Mapping[int, int],
    *,
    empty: str = "no trials",
) -> None:
    """Print trials, one per line, with the fidelity or the reason for the failure.

    `first` maps each resumed trial to the first trial of the same configuration. If there are no
    trials, `empty` is printed.
    """
    words, parts = LossWords(plan.metric), [plan.whole.part(trial.query) for trial in trials]
    fidelity = ("fidelity",) if any(parts) else ()
    on = ("continues",) if any(trial.number in first for trial in trials) else ()
    headings = "trial", *on, "state", *fidelity, words.name, "seconds", "cached", "pipeline"
    table = Table(*headings, box=None)
    for trial, part in zip(trials, parts, strict=True):
        began = f"trial {first[trial.number]}" if trial.number in first else ""
        steps = trial.steps
        table.add_row(
            str(trial.number),
            *((began,) if on else ()),
            trial.state,
            *((part or "full",) if fidelity else ()),
            words.of(trial.loss) if trial.has_loss else "",
            f"{trial.cost_seconds:.1f}" if trial.state.is_told else "",
            f"{sum(step['hit'] for step in steps)}/{len(steps)}" if steps else "",
            "\n".join(_about(trial)),
        )
    CONSOLE.print(table if trials else empty)


def _about(trial: TrialView) -> Iterator[str]:
    yield " > ".join(trial.path)
    if (failure := trial.failure) is not None:
        yield failure_text(failure)
        yield from (f"| {text}" for text in failure.output.splitlines())
    if trial.trouble:
        yield trial.trouble
    if trial.quantities:
        yield ", ".join(f"{name} {number_text(value)}" for name, value in trial.quantities.items())
