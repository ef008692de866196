"""Studies, as a list or in summary."""

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from prefect_tune.deployments.views.console import CONSOLE, bold, line, uncut_column
from prefect_tune.flows.reading.commands import next_commands
from prefect_tune.flows.reading.study_view import ChosenTrial, Ensemble, StudyView
from prefect_tune.flows.study.finalists import chosen_look
from prefect_tune.flows.text import (
    LossWords,
    bracketed,
    counted,
    counts_text,
    format_bytes,
    format_seconds,
    number_text,
    saved_text,
)
from prefect_tune.optimizers.space.wording import pipeline_lines

_MEMBERS_A_LINE = 5


def print_summary(view: StudyView, *, notes: bool = False) -> None:
    """Print a study: best pipeline, trials, decisions, cache, and optionally the method's notes."""
    CONSOLE.print(line(bold(view.study), f" ({view.method}, {view.state})"))
    result = (
        _uselessness,
        _trials,
        _ensemble,
        _best,
        _model,
        _rare_recall,
        _undefined,
        _finalists,
        _alone,
        _constraints,
    )
    told = (_notes,) if notes else ()
    for part in (*result, _series, _decisions, *told, _cache, _plugins, _warnings, _next_commands):
        for text in part(view):
            CONSOLE.print(line("  ", text))


def print_studies(views: Sequence[StudyView]) -> None:
    """Print studies, one per line."""
    table = Table(
        uncut_column("study"), "state", "method", "metric", "best", "trials", "failed", "data",
        box=None,
    )  # fmt: skip
    for view in views:
        best = view.incumbent
        table.add_row(
            view.study,
            view.state,
            view.method,
            view.losses.name,
            f"{view.losses.of(best.loss)}{bracketed(best.fidelity)}" if best else "",
            str(view.n_trials),
            str(view.n_failed),
            view.data,
        )
    CONSOLE.print(table if views else "no studies")


def _uselessness(view: StudyView) -> Iterator[Text]:
    if view.uselessness:
        yield line((view.uselessness, "bold yellow"))


def _rare_recall(view: StudyView) -> Iterator[str]:
    if view.rare_recall:
        yield view.rare_recall


def _plugins(view: StudyView) -> Iterator[str]:
    for plugin in view.plugins:
        yield f"plugin: {plugin.kind} {plugin.name} of {plugin.distribution} {plugin.version}"


def _warnings(view: StudyView) -> Iterator[Text]:
    for text in view.notes:
        yield line((f"warning: {text}", "yellow"))


_LATE_SECONDS = 1.0
"""Smallest overrun of the budget that is reported."""


def _trials(view: StudyView) -> Iterator[str]:
    seconds = view.seconds
    total, evaluating = format_seconds(seconds.total), format_seconds(seconds.evaluating)
    waiting = f"; {view.n_waiting} more waiting to run" if view.n_waiting else ""
    begun = f", of {counted(view.n_begun, 'configuration')} begun" if view.n_stopped else ""
    trials = counts_text(view.n_trials, view.n_stopped, view.n_failed)
    over = seconds.over_budget or 0.0
    late = f", {format_seconds(over)} over its budget" if over >= _LATE_SECONDS else ""
    yield f"{trials}{begun}, in {total}{late} ({evaluating} of evaluating){waiting}"


def _best(view: StudyView) -> Iterator[str | Text]:
    """Yield the best trial and its pipeline, also for an ensemble."""
    best, losses = view.incumbent, view.losses
    if best is None:
        return
    scored = "cross-validated" if view.holdout is None else "held-out"
    what = "best single trial" if view.has_ensemble else "best: trial"
    yield line(
        f"{what} {best.trial}{bracketed(best.fidelity)}, {scored} {losses.name} ",
        bold(losses.of(best.loss)),
        *(() if view.has_other_model else _tested(view.single_best_test_loss, losses)),
        f" (guessing: {losses.of(view.chance_loss)})",
    )
    yield from _pipeline(best)


def _pipeline(trial: ChosenTrial) -> Iterator[str]:
    for text in pipeline_lines(trial.configuration):
        yield f"  {text}"


def _model(view: StudyView) -> Iterator[str | Text]:
    """Yield the model if it is another trial, partial, or missing."""
    model, losses, replaced = view.model_trial, view.losses, view.instead_of
    if model is not None and view.has_other_model:
        yield line(
            f"model: trial {model.trial}{bracketed(model.fidelity)}, {losses.named(model.loss)}",
            *_tested(view.test_loss, losses),
        )
        yield from _pipeline(model)
    if model is not None and view.model_is_partial:
        yield (
            f"no full evaluation qualifies; the model is the best partial one, trial "
            f"{model.trial}{bracketed(model.fidelity)}"
        )
    if view.model_subset < 1 and not view.model_of_folds:
        yield (
            f"the model is fitted on {view.model_subset:.2g} of the training rows, because time "
            "ran out; rerun the command with this study to fit all rows"
        )
    if view.model_of_folds:
        yield (
            "the model is the mean of the fold models, because time ran out before a fit on all "
            "training rows; rerun the command with this study for that fit"
        )
    if view.no_model:
        yield line((view.no_model, "yellow"))
    if replaced is not None:
        numbers = ", ".join(map(str, replaced.trials))
        what = "trial" if len(replaced.trials) == 1 else "the ensemble of trials"
        yield f"instead of {what} {numbers}: {replaced.reason}"


def _undefined(view: StudyView) -> Iterator[str]:
    name, reason = view.losses.name, view.test_loss_undefined
    alone = view.single_best_test_loss_undefined
    if reason:
        yield f"{name} on the test rows is undefined: {reason}"
    if alone and alone != reason:
        yield f"{name} of the best trial on the test rows is undefined: {alone}"
    if view.equal_rows is not None:
        yield view.losses.without_equal(view.equal_rows)


def _finalists(view: StudyView) -> Iterator[str]:
    looks, best, losses = view.finalists, view.incumbent, view.losses
    if not looks or best is None:
        return
    first, chosen = looks[0], chosen_look(looks)
    if chosen.trial != best.trial or first.again is None:  # the finalists are out of date
        return
    other = f" (trial {first.trial}: {losses.of(first.mean)})" if chosen != first else ""
    yield (
        f"re-evaluated the best {len(looks)} on a second split: trial {chosen.trial} has the "
        f"lowest {losses.name} over both, {losses.of(chosen.mean)}{other}"
    )


def _ensemble(view: StudyView) -> Iterator[str | Text]:
    ensemble, losses = view.ensemble, view.losses
    if ensemble is None or not ensemble.has_several:
        return
    held_out = ensemble.losses
    loss = (" on the held-out rows ", bold(losses.of(held_out[-1]))) if held_out else ()
    yield line(
        f"model: {ensemble.kind} ensemble of {counted(len(ensemble.members), 'trial')}, ",
        losses.name,
        *loss,
        *_tested(view.test_loss, losses, is_first=not held_out),
    )
    yield from _decided(ensemble, losses)
    weights = [f"trial {member.trial} {member.weight:.1%}" for member in ensemble.heaviest]
    for start in range(0, len(weights), _MEMBERS_A_LINE):
        yield f"  {', '.join(weights[start : start + _MEMBERS_A_LINE])}"


def _decided(ensemble: Ensemble, losses: LossWords) -> Iterator[str]:
    built, alone = ensemble.nested.get(ensemble.kind), ensemble.nested.get("single")
    if built is not None and alone is not None:
        yield (
            f"  on held-out rows not used to build it: {losses.named(built)}; best trial "
            f"{losses.of(alone)}"
        )


def _alone(view: StudyView) -> Iterator[str]:
    """Yield a note if ensembles were tried and none was better than a single trial."""
    ensemble = view.ensemble
    if ensemble is not None and ensemble.kind == "single":
        number = ensemble.members[0].trial
        yield f"model: trial {number} (no ensemble scored better)"


def _tested(
    loss: float | None, losses: LossWords, *, is_first: bool = False
) -> tuple[str | tuple[str, str], ...]:
    between = "" if is_first else ";"
    return () if loss is None else (f"{between} on the test rows ", bold(losses.of(loss)))


def _constraints(view: StudyView) -> Iterator[str]:
    best = view.incumbent or view.nearest_infeasible
    nearest = "" if view.incumbent or not best else f" in trial {best.trial}, the nearest"
    for name, bound in view.constraints.items():
        value = best.constraints.get(name) if best else None
        measured = "not measured" if value is None else number_text(value)
        yield f"{name}: {measured} of at most {bound:g}{nearest}"


def _series(view: StudyView) -> Iterator[str]:
    place = view.series
    if place is not None:
        is_champion = place.champion == view.study
        champion = "this study" if is_champion else place.champion or "none yet"
        yield f"series: run {place.run} of {place.name}; champion: {champion}"


def _decisions(view: StudyView) -> Iterator[str]:
    yield from view.decision_lines()


def _notes(view: StudyView) -> Iterator[str]:
    for note in view.method_notes:
        yield f"{view.method}: {note}"


def _cache(view: StudyView) -> Iterator[str]:
    cache = view.cache
    n_steps = cache.hits + cache.misses
    if n_steps:
        yield (
            f"cache: {cache.hits} of {n_steps} steps served, "
            f"{saved_text(cache.seconds_saved)} saved, {format_bytes(cache.size_bytes)}"
        )


def _next_commands(view: StudyView) -> Iterator[str]:
    series = view.series.name if view.series else None
    commands = next_commands(
        view.study, view.store_options, has_model=view.has_model, series=series
    )
    for k, command in enumerate(commands):
        yield ("      " if k else "next: ") + command
