"""The five answers of the first screen: best pipeline, loss, failures, savings, next commands."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, log10

from prefect_tune.deployments.report.figures.failures import reason_of, retry_command
from prefect_tune.deployments.report.figures.model import Members, Reproduction
from prefect_tune.deployments.report.figures.step_times import StepTime
from prefect_tune.deployments.report.page import Answer, Bar, Command, Part, Pipeline, Text, clipped
from prefect_tune.deployments.report.wording import pipeline_rows
from prefect_tune.flows.reading.study_view import ChosenTrial, StudyView
from prefect_tune.flows.text import (
    FailureGroup,
    LossWords,
    bracketed,
    counted,
    format_bytes,
    format_seconds,
    number_text,
    saved_text,
)

_MOST_REASONS = 3
_LONGEST_REASON = 150


def alert_of(summary: StudyView) -> str:
    """Return the most important warning of a study; empty if it has none."""
    if summary.state == "interrupted":
        return "This study was interrupted. The report shows the results up to then."
    if summary.state == "running":
        return "This study is still running. The report shows its state when the report was made."
    if summary.incumbent is None and summary.nearest_infeasible is not None:
        return "No trial meets all constraints, so there is no model. The nearest trial is shown."
    if text := summary.uselessness:
        return f"{text[0].upper()}{text[1:]}."
    if summary.model_is_partial:
        return (
            "No full evaluation qualifies. The model is the best partial one, fitted on all "
            "training rows."
        )
    return ""


def best_answer(summary: StudyView, members: Members) -> Answer:
    """Return the best pipeline, or the pipeline nearest to the constraints."""
    best = summary.incumbent or summary.nearest_infeasible
    is_near = summary.incumbent is None and best is not None
    question = "Nearest to the constraints" if is_near else "The best pipeline"
    if best is None:
        what = "No full trial has ended yet." if summary.n_trials else "No trial has ended yet."
        return Answer("best", question, what)
    rows = pipeline_rows(best.configuration)
    idle = [step for step, algorithm, _ in rows if algorithm == "none"]
    parts: list[Part] = [Pipeline([row for row in rows if row[0] not in idle], idle)]
    if lines := list(_model_lines(summary, members, best)):
        parts.append(Text(lines, is_quiet=True))
    section = "model" if len(members) > 1 else "constraints" if is_near else "paths"
    headline = f"Trial {best.trial}{bracketed(best.fidelity)}"
    return Answer("best", question, headline, parts=parts, section_id=section)


def _model_lines(summary: StudyView, members: Members, best: ChosenTrial) -> Iterator[str]:
    if len(members) > 1:
        is_in = best.trial in {member.trial for member in members}
        of = counted(len(members), "trial" if is_in else "other trial")
        yield f"The model is an ensemble of {of}{', this one among them' if is_in else ''}."
    if summary.model_of_folds:
        yield "The model is the mean of its fold models."
    replaced, model = summary.instead_of, summary.model_trial
    if model is not None and model.trial != best.trial:
        yield f"The model is trial {model.trial}."
    for reason in (summary.no_model, replaced and replaced.reason):
        if reason:
            yield f"{reason[:1].upper()}{reason[1:]}."
    for name, bound in summary.constraints.items():
        yield f"{name}: {number_text(best.constraints.get(name))} of at most {bound:g}"


def loss_answer(summary: StudyView, members: Members, auroc: str) -> Answer:
    """Return the losses of the model and of guessing."""
    words, is_ensemble = LossWords(summary.metric), len(members) > 1
    best = summary.incumbent or summary.nearest_infeasible
    alone, test = summary.single_best_test_loss, summary.test_loss
    whose = "The ensemble's" if is_ensemble and test is not None else "Its"
    question = f"{whose} {words.name}"
    losses = [("guessing", summary.chance_loss)]
    if best is None:
        return Answer("loss", question, "-", "", _bars(losses, words))
    held_out = "cross-validated" if summary.holdout is None else "held out"
    model = summary.model_trial
    if model is not None and model.trial != best.trial and not is_ensemble:
        losses.append((f"{held_out}, trial {best.trial}", best.loss))
        best = model
        question = f"The {words.name} of trial {model.trial}, the model"
    losses.append((held_out, best.loss))
    if is_ensemble:
        losses.append(("test rows, best trial", alone))
    losses.append(("test rows, ensemble" if is_ensemble else "test rows", test))
    headline = words.of(best.loss if test is None else test)
    subtitle = held_out if test is None else "on the test rows"
    parts: list[Part] = []
    if reason := summary.test_loss_undefined:
        subtitle += "; undefined on the test rows"
        parts.append(Text([reason], is_quiet=True))
    elif test is None and summary.incumbent:
        subtitle += "; not scored on test rows"
    if summary.equal_rows is not None:
        parts.append(Text([words.without_equal(summary.equal_rows)], is_quiet=True))
    if auroc:
        parts.append(Text([f"{auroc} on the test rows"], is_quiet=True))
    if recall := summary.rare_recall:
        parts.append(Text([recall], is_quiet=True))
    section = "quality" if auroc else "progress"
    return Answer(
        "loss", question, headline, subtitle, _bars(losses, words), parts, section_id=section
    )


def _bars(losses: Sequence[tuple[str, float | None]], words: LossWords) -> list[Bar]:
    known = [(label, loss) for label, loss in losses if loss is not None]
    most = max((abs(loss) for _, loss in known), default=1.0) or 1.0
    return [
        Bar(label, words.of(loss), max(0.0, loss / most), is_main=k == len(known) - 1 and k > 0)
        for k, (label, loss) in enumerate(known)
    ]


def failed_answer(summary: StudyView, failures: Sequence[FailureGroup]) -> Answer:
    """Return the number of failed trials and the most frequent reasons."""
    n, of, question = (
        summary.n_failed,
        counted(summary.n_trials, "trial"),
        "Failures",
    )
    if not n:
        return Answer("failed", question, f"None of {of}")
    lines = [
        f"{len(group.trials):,} {clipped(reason_of(group), _LONGEST_REASON)}"
        for group in failures[:_MOST_REASONS]
    ]
    if (more := len(failures) - _MOST_REASONS) > 0:
        lines.append(f"and {counted(more, 'other reason')}")
    return Answer("failed", question, f"{n:,} of {of}", parts=[Text(lines)], section_id="failures")


def saved_answer(summary: StudyView, step_times: Sequence[StepTime]) -> Answer:
    """Return hits and savings of the cache."""
    cache, question = summary.cache, "Cache savings"
    n = cache.hits + cache.misses
    if not n:
        return Answer("saved", question, "Nothing")
    evicted = sum(step.evicted for step in step_times)
    lines = [
        f"{cache.hits:,} of {n:,} steps served ({100 * cache.hits / n:.0f} %)",
        f"{format_seconds(summary.seconds.evaluating)} spent evaluating",
        f"{format_bytes(cache.size_bytes)} kept"
        + (f", {evicted:,} artifacts evicted" if evicted else ""),
    ]
    saved = saved_text(cache.seconds_saved)
    return Answer("saved", question, saved, parts=[Text(lines)], section_id="time")


def next_answer(summary: StudyView, members: Members, again: Reproduction) -> Answer:
    """Return commands and their purpose, the most useful first."""
    commands = [Command(words, purpose) for words, purpose in _commands(summary, members, again)]
    return Answer("next", "What next", "", parts=commands, section_id="again")


def _commands(
    summary: StudyView, members: Members, again: Reproduction
) -> Iterator[tuple[str, str]]:
    study, state, nearest = summary.study, summary.state, summary.nearest_infeasible

    def command(*words: str) -> str:
        return shlex.join([*words, *summary.store_options])

    can_extend = state != "running" and again.can_extend
    if state == "interrupted" and can_extend:
        yield command(*again.resumed), "resume the study"
    if nearest is not None and can_extend:
        words = [*again.longer, *_loosened(summary.constraints, nearest.constraints)]
        yield command(*words), "resume with constraints that the nearest trial meets"
    if members:
        # Only `predict` for events takes labels or a cohort.
        is_events = "--labels" in again.command or any(
            word.startswith("cohort:") for word in again.command
        )
        new = ["NEW_EVENTS", "--labels", "NEW_LABELS.csv"] if is_events else ["NEW.csv"]
        words = ["prefect-tune", "predict", study, *new, "--out", "predictions.csv"]
        yield command(*words), "predict new rows"
        yield command("prefect-tune", "export", study, "model.pkl"), "export the model"
    if summary.n_failed and not again.removed_option:
        yield retry_command(summary), "retry failed trials"
    if state != "interrupted" and can_extend:
        yield command(*again.longer), "resume with twice the budget"
    yield command("prefect-tune", "trials", study), "list all trials"


def _loosened(bounds: Mapping[str, float], nearest: Mapping[str, float]) -> Iterator[str]:
    for name, bound in bounds.items():
        met = max(bound, nearest.get(name, bound))
        if met > bound:  # rounded up to two digits
            unit = 10.0 ** (floor(log10(met)) - 1)
            met = ceil(met / unit) * unit
        yield from ("--constraint", f"{name}<={met:.15g}")
