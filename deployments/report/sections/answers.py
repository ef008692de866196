"""The five answers of the first screen: what was found, how good, what failed, saved, and next."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, log10
from typing import Any

from prefect_tune.deployments.report.page import Answer, Bar, Command, Part, Pipeline, Text
from prefect_tune.deployments.report.sections.failures import reason_text, retry_command
from prefect_tune.deployments.report.sections.quality import auroc_text
from prefect_tune.deployments.report.wording import LossWords, pipeline_rows, short_number
from prefect_tune.flows.reporting.study_report import EnsembleMember, StudyReport
from prefect_tune.flows.text import counted, format_bytes, format_seconds

_MOST_REASONS = 3
_LONGEST_REASON = 150


def answers_of(report: StudyReport) -> list[Answer]:
    """Return the answers, in the order of the screen."""
    commands = [Command(words, purpose) for words, purpose in _commands(report)]
    onward = Answer("next", "How to go on", "", parts=commands, more="again")
    return [_best(report), _loss(report), _failed(report), _saved(report), onward]


def alert_of(report: StudyReport) -> str:
    """Return what must be known before all else; empty for nothing."""
    summary, words = report.summary, LossWords(report.summary["metric"])
    if summary["state"] == "interrupted":
        return "This study was interrupted; the report shows what it had found by then."
    if summary["state"] == "running":
        return "This study is still running; the report shows how it stood when it was made."
    if summary["incumbent"] is None and summary["nearest_infeasible"] is not None:
        return "No trial meets all constraints, so there is no model; the nearest trial is shown."
    best, test, chance = summary["incumbent"], summary["test_loss"], summary["chance_loss"]
    if best and test is not None and chance is not None and test >= chance:
        return (
            f"On the test rows the model is no better than guessing ({words.of(chance)}): it does "
            "not generalise."
        )
    if summary["model_is_partial"]:
        return (
            "No full evaluation qualifies. The model is the best partial one, fitted on all "
            "training rows."
        )
    return ""


def _shown(report: StudyReport) -> dict[str, Any] | None:
    found: dict[str, Any] | None = report.summary["incumbent"]
    return found or report.summary["nearest_infeasible"]


def _best(report: StudyReport) -> Answer:
    best, members = _shown(report), report.members
    is_near = report.summary["incumbent"] is None and best is not None
    question = "Nearest to the constraints" if is_near else "The best pipeline"
    if best is None:
        n = report.summary["n_trials"]
        said = "No trial has run in full yet." if n else "No trial has ended yet."
        return Answer("best", question, said)
    of = f" ({best['fidelity']})" if best["fidelity"] else ""
    headline = f"Trial {best['trial']}{of}"
    is_of_folds, subset = (report.summary[f"model_{what}"] for what in ("of_folds", "subset"))
    lines = [
        *_ensemble_lines(members, best["trial"]),
        *(["The model is the mean of the models of its folds."] if is_of_folds else []),
        *([f"The model is fitted on {subset:.2g} of the training rows."] if subset < 1 else []),
        *_replaced_lines(report, best["trial"]),
        *(
            f"{name}: {short_number(best['constraints'].get(name))} of at most {bound:g}"
            for name, bound in report.summary["constraints"].items()
        ),
    ]
    parts: list[Part] = [_pipeline(best["configuration"])]
    if lines:
        parts.append(Text(lines, is_quiet=True))
    more = "model" if len(members) > 1 else "constraints" if is_near else "paths"
    return Answer("best", question, headline, parts=parts, more=more)


def _ensemble_lines(members: Sequence[EnsembleMember], best: int) -> Iterator[str]:
    if len(members) > 1:
        is_in = best in {member.trial for member in members}
        of = counted(len(members), "trial" if is_in else "other trial")
        yield f"The model is an ensemble of {of}{', this one among them' if is_in else ''}."


def _replaced_lines(report: StudyReport, best: int) -> Iterator[str]:
    replaced, model = report.summary["instead_of"], report.summary["model_trial"]
    if model is not None and model["trial"] != best:
        yield f"The model is trial {model['trial']}."
    if reason := report.summary["no_model"]:
        yield f"{reason[:1].upper()}{reason[1:]}."
    if replaced is not None:
        yield f"{replaced['reason'][:1].upper()}{replaced['reason'][1:]}."


def _pipeline(configuration: Mapping[str, Any]) -> Pipeline:
    """Return a pipeline, its steps that do nothing named together."""
    rows = pipeline_rows(configuration)
    idle = [step for step, algorithm, _ in rows if algorithm == "none"]
    return Pipeline([row for row in rows if row[0] not in idle], idle)


def _loss(report: StudyReport) -> Answer:
    summary, words = report.summary, LossWords(report.summary["metric"])
    best = _shown(report)
    alone, test = summary["single_best_test_loss"], summary["test_loss"]
    is_ensemble = len(report.members) > 1
    whose = "The ensemble's" if is_ensemble and test is not None else "Its"
    question = f"{whose} {words.name}"
    if best is None:
        bars = _bars([("guessing", summary["chance_loss"])], words)
        return Answer("loss", question, "-", "", bars)
    held_out = "cross-validated" if summary["holdout"] is None else "held out"
    losses = [("guessing", summary["chance_loss"])]
    model = summary["model_trial"]
    if model is not None and model["trial"] != best["trial"] and not is_ensemble:
        losses.append((f"{held_out}, trial {best['trial']}", best["loss"]))
        best = model
        question = f"The {words.name} of trial {model['trial']}, the model"
    losses.append((held_out, best["loss"]))
    if is_ensemble and alone is not None:
        losses.append(("test rows, best trial", alone))
    if test is not None:
        losses.append(("test rows, ensemble" if is_ensemble else "test rows", test))
    headline = words.of(best["loss"] if test is None else test)
    under = held_out if test is None else "on the test rows"
    parts: list[Part] = []
    if reason := summary["test_loss_undefined"]:
        under += "; undefined on the test rows"
        parts.append(Text([reason], is_quiet=True))
    elif test is None and summary["incumbent"]:
        under += "; not tested on other rows"
    if (auroc := report.model.auroc) is not None:
        parts.append(Text([f"{auroc_text(auroc)} on the test rows"], is_quiet=True))
    more = "progress" if auroc is None else "quality"
    return Answer("loss", question, headline, under, _bars(losses, words), parts, more=more)


def _bars(losses: Sequence[tuple[str, float | None]], words: LossWords) -> list[Bar]:
    known = [(label, loss) for label, loss in losses if loss is not None]
    most = max((abs(loss) for _, loss in known), default=1.0) or 1.0
    return [
        Bar(label, words.of(loss), max(0.0, loss / most), is_main=k == len(known) - 1 and k > 0)
        for k, (label, loss) in enumerate(known)
    ]


def _failed(report: StudyReport) -> Answer:
    n, n_all = report.summary["n_failed"], report.summary["n_trials"]
    question = "What failed, and why"
    if not n:
        return Answer("failed", question, f"None of {counted(n_all, 'trial')}")
    lines: list[str] = []
    for group in report.failures[:_MOST_REASONS]:
        reason = reason_text(group)
        reason = reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…"
        lines.append(f"{len(group.trials):,} {reason}")
    if (more := len(report.failures) - _MOST_REASONS) > 0:
        lines.append(f"and {counted(more, 'other reason')}")
    return Answer(
        "failed",
        question,
        f"{n:,} of {counted(n_all, 'trial')}",
        parts=[Text(lines)],
        more="failures",
    )


def _saved(report: StudyReport) -> Answer:
    cache, seconds = report.summary["cache"], report.summary["seconds"]
    n = cache["hits"] + cache["misses"]
    question = "What the cache saved"
    if not n:
        return Answer("saved", question, "Nothing")
    evicted = sum(step.evicted for step in report.step_times)
    saved = max(cache["seconds_saved"], 0.0)
    lines = [
        f"{cache['hits']:,} of {n:,} steps served ({100 * cache['hits'] / n:.0f} %)",
        f"{format_seconds(seconds['evaluating'])} spent evaluating",
        f"{format_bytes(cache['size_bytes'])} kept"
        + (f", {evicted:,} artifacts evicted" if evicted else ""),
    ]
    return Answer("saved", question, format_seconds(saved), parts=[Text(lines)], more="time")


def _commands(report: StudyReport) -> Iterator[tuple[str, str]]:
    """Yield commands and what they do, what is needed most first."""
    summary, again = report.summary, report.reproduction
    study, state, store = summary["study"], summary["state"], summary["store_options"]
    can_go_on = state != "running" and not again.is_of_frame and not again.removed_option
    if state == "interrupted" and can_go_on:
        yield shlex.join([*again.resumed, *store]), "resume where it stopped"
    if summary["nearest_infeasible"] is not None and can_go_on:
        yield (
            shlex.join([*_loosened(report), *store]),
            "search on, with constraints that the nearest meets",
        )
    if report.members:
        words = again.command  # of events, it has labels or a cohort
        is_events = "--labels" in words or any(word.startswith("cohort:") for word in words)
        new = ["NEW_EVENTS", "--labels", "NEW_LABELS.csv"] if is_events else ["NEW.csv"]
        predict = ["prefect-tune", "predict", study, *new, "--out", "predictions.csv"]
        yield shlex.join([*predict, *store]), "predict new rows"
        yield shlex.join(["prefect-tune", "export", study, "model.pkl", *store]), "export the model"
    if summary["n_failed"] and not again.removed_option:
        yield retry_command(summary), "retry what failed"
    if state != "interrupted" and can_go_on:
        yield shlex.join([*again.longer, *store]), "search on, with twice the budget"
    yield shlex.join(["prefect-tune", "trials", study, *store]), "list all trials"


def _loosened(report: StudyReport) -> list[str]:
    """Return the command that goes on with constraints that the nearest trial meets."""
    summary, words = report.summary, list(report.reproduction.longer)
    nearest = summary["nearest_infeasible"]["constraints"]
    for name, bound in summary["constraints"].items():
        value = nearest.get(name)
        is_met = value is None or value <= bound
        words += ["--constraint", f"{name}<={bound if is_met else _rounded_up(value):.15g}"]
    return words


def _rounded_up(value: float) -> float:
    """Return a number of two digits that is not below another one."""
    unit = 10.0 ** (floor(log10(value)) - 1)
    return ceil(value / unit) * unit
