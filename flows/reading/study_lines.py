"""The lines that describe a study in the terminal, the report and Prefect.

`study_lines` yields all lines of `show`, and `model_lines` yields only the lines on the best trial
and the model. `next_commands` yields commands to run next.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from prefect_tune.flows.reading.study_view import ChosenTrial, StudyView
from prefect_tune.flows.study.facts import best_recheck
from prefect_tune.flows.wording.text import (
    bracketed,
    counted,
    format_bytes,
    format_seconds,
    number_text,
    saved_text,
)
from prefect_tune.optimizers.documents import pipeline_lines
from prefect_tune.tasks.objective.metric import METRICS, is_at_least

Tone = Literal["plain", "warning", "alert"]
_LATE_SECONDS = 1.0
"""Smallest overrun of the budget that is reported."""


class Strong(str):
    """An emphasized part of a line."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class StudyLine:
    """A line about a study.

    Attributes:
        parts: Parts of the line in order, without escaping. `Strong` parts are emphasized.
        depth: Number of indentation levels.
    """

    parts: tuple[str, ...]
    tone: Tone = "plain"
    depth: int = 0

    @property
    def text(self) -> str:
        """The text of the line without emphasis."""
        return "".join(self.parts)


def study_lines(view: StudyView, *, notes: bool = False) -> Iterator[StudyLine]:
    """Yield all lines about a study, with notes of the method if `notes` is true."""
    if view.uselessness:
        yield _line(view.uselessness, tone="alert")
    seconds = view.seconds
    over = seconds.over_budget or 0.0
    late = f", {format_seconds(over)} over its budget" if over >= _LATE_SECONDS else ""
    waiting = f"; {view.n_waiting} more waiting to run" if view.n_waiting else ""
    evaluating = f"{format_seconds(seconds.evaluating)} of evaluating"
    yield _line(f"{view.counts}{waiting}; {format_seconds(seconds.total)}{late} ({evaluating})")
    yield from model_lines(view)
    yield from _constraints(view)
    if (place := view.series) is not None:
        is_champion = place.champion == view.study
        champion = "this study" if is_champion else place.champion or "none yet"
        yield _line(f"series: run {place.run} of {place.name}; champion: {champion}")
    yield from map(_line, view.decision_lines())
    if notes:
        yield from (_line(f"{view.method}: {note}") for note in view.method_notes)
    if n_steps := view.cache.hits + view.cache.misses:
        yield _line(
            f"cache: {view.cache.hits} of {n_steps} steps served, "
            f"{saved_text(view.cache.seconds_saved)} saved, {format_bytes(view.cache.size_bytes)}"
        )
    for plugin in view.plugins:
        is_missing = plugin.kind == METRICS.kind and plugin.name not in METRICS
        missing = ", which is not installed here" if is_missing else ""
        of = f"of {plugin.distribution} {plugin.version}{missing}"
        yield _line(f"plugin: {plugin.kind} {plugin.name} {of}")
    yield from (_line(f"warning: {note}", tone="warning") for note in view.notes)


def model_lines(view: StudyView) -> Iterator[StudyLine]:
    """Yield the lines about the best trial, the final model, and the model's unusual properties."""
    losses, best, model = view.losses, view.incumbent, view.model_trial
    yield from _ensemble(view)
    if best is not None:
        what = "best single trial" if view.has_ensemble else "best: trial"
        scored = "cross-validated" if view.holdout is None else "held-out"
        yield _line(
            f"{what} {best.trial}{bracketed(best.fidelity)}, {scored} {losses.name} ",
            Strong(losses.of(best.loss)),
            *(() if view.has_other_model else _tested(view, view.single_best_test_loss)),
            bracketed(view.baseline),
        )
        yield from _pipeline(best)
    if model is not None and view.has_other_model:
        about = f"model: trial {model.trial}{bracketed(model.fidelity)}"
        yield _line(f"{about}, {losses.named(model.loss)}", *_tested(view, view.test_loss))
        yield from _pipeline(model)
    if model is not None and view.model_is_partial:
        trial = f"trial {model.trial}{bracketed(model.fidelity)}"
        yield _line(f"no full evaluation qualifies; the model is the best partial one, {trial}")
    if view.model_of_folds:
        which = "the model of the first fold" if view.constraints else "the mean of the fold models"
        which = which if view.holdout is None else "the model that predicted the held-out rows"
        again = f"run {view.resume_command}" if view.resume_command else "tune this study again"
        yield _line(
            f"the final model is {which}, because time ran out before a fit on all training rows; "
            f"to fit on all rows, {again}"
        )
    if view.no_model:
        yield _line(view.no_model, tone="warning")
    if (former := view.instead_of) is not None:
        lost = "trial" if len(former.trials) == 1 else "the ensemble of trials"
        yield _line(f"model replaces {lost} {', '.join(map(str, former.trials))}: {former.reason}")
    if view.rare_recall:
        yield _line(view.rare_recall)
    undefined, alone = view.test_loss_undefined, view.single_best_test_loss_undefined
    if undefined:
        yield _line(f"{losses.name} on the test rows is undefined: {undefined}")
    if alone and alone != undefined:
        yield _line(f"{losses.name} of the best trial on the test rows is undefined: {alone}")
    if view.equal_rows is not None:
        yield _line(losses.without_equal(view.equal_rows))
    finalists, ensemble = view.finalists, view.ensemble
    chosen = best_recheck(finalists) if finalists else None
    if best and chosen and chosen.trial == best.trial and finalists[0].recheck_loss is not None:
        first = finalists[0]
        other = f" (trial {first.trial}: {losses.of(first.mean)})" if chosen != first else ""
        yield _line(
            f"re-evaluated the best {len(finalists)} on a second split: trial {chosen.trial} has "
            f"the best {losses.name} over both, {losses.of(chosen.mean)}{other}"
        )
    if ensemble is not None and ensemble.kind == "single":
        yield _line(f"model: trial {ensemble.members[0].trial} (no ensemble scored better)")


def _line(*parts: str, tone: Tone = "plain", depth: int = 0) -> StudyLine:
    return StudyLine(parts, tone, depth)


def _pipeline(trial: ChosenTrial) -> Iterator[StudyLine]:
    steps = trial.configuration
    used = {step: choice for step, choice in steps.items() if choice["algorithm"] != "none"}
    return (_line(text, depth=1) for text in pipeline_lines(used or steps))


def _tested(view: StudyView, loss: float | None, between: str = ";") -> tuple[str, ...]:
    return () if loss is None else (f"{between} on the test rows ", Strong(view.losses.of(loss)))


def _ensemble(view: StudyView) -> Iterator[StudyLine]:
    ensemble, losses = view.ensemble, view.losses
    if ensemble is None or not ensemble.has_several:
        return
    held_out = [Strong(losses.of(loss)) for loss in ensemble.losses[-1:]]
    yield _line(
        f"model: {ensemble.kind} ensemble of {counted(len(ensemble.members), 'trial')}, ",
        f"{losses.name}{' on the held-out rows ' if held_out else ''}",
        *held_out,
        *_tested(view, view.test_loss, ";" if held_out else ""),
    )
    built, alone = ensemble.nested.get(ensemble.kind), ensemble.nested.get("single")
    if built is not None and alone is not None:
        nested = f"{losses.named(built)}; best trial {losses.of(alone)}"
        yield _line(f"on held-out rows not used to build the ensemble: {nested}", depth=1)
    heaviest = sorted(ensemble.members, key=lambda member: (-member.weight, member.trial))
    weights = [f"trial {member.trial} {member.weight:.1%}" for member in heaviest]
    yield _line(", ".join(weights), depth=1)


def _constraints(view: StudyView) -> Iterator[StudyLine]:
    best = view.incumbent or view.nearest_infeasible
    nearest = "" if view.incumbent or not best else f" in trial {best.trial}, the nearest"
    for name, bound in view.constraints.items():
        value = best.constraints.get(name) if best else None
        measured = "not measured" if value is None else number_text(value)
        limit = "at least" if is_at_least(name) else "at most"
        yield _line(f"{name}: {measured} of {limit} {number_text(bound)}{nearest}")


def next_commands(view: StudyView, printed_by: str = "") -> Iterator[str]:
    """Yield commands that are useful after the command `printed_by`, including store options."""
    study = view.study
    listed = [["show", study], ["report", study], ["trials", study]]
    listed.append(["artifacts", "ls", "--study", study])
    if view.n_failed:  # without a complete trial, the failures matter first
        at = len(listed) if view.n_complete else 0
        listed[at:at] = [["trials", study, "--failed"], ["retry", study]]
    if view.series:
        listed.append(["series", view.series.name])
    if view.has_model:
        new = ["EVENTS", "--labels", "NEW_LABELS"] if view.is_of_events else ["new_rows.csv"]
        listed += [["predict", study, *new], ["export", study, "model.pkl"]]
    for words in listed:
        if words[0] != printed_by:
            yield shlex.join(["prefect-tune", *words, *view.store_options])
