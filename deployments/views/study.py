"""Studies: one a line, or one summed up."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from prefect_tune.deployments.views.console import CONSOLE, bold, line, uncut_column
from prefect_tune.flows.study.finalists import chosen_look, mean_loss
from prefect_tune.flows.text import counted, format_bytes, format_seconds, loss_name, loss_unit
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.optimizers.space.wording import fidelity_text, pipeline_lines

if TYPE_CHECKING:  # light: a stored study is shown without them
    from prefect_tune.flows.progress import Progress
    from prefect_tune.optimizers.trials.trial import Trial


def outcome(trial: "Trial") -> str:
    """Return what became of a trial that has ended."""
    path = " > ".join(trial.query.configuration.path)
    if fidelity := fidelity_text(trial.query.to_json()):
        path += f"  ({fidelity})"
    if trial.failure is not None:
        where = f"{trial.failure.step}: " if trial.failure.step else ""
        return f"trial {trial.number:>3}  failed  {where}{trial.failure.message}  {path}"
    assert trial.evaluation is not None  # noqa: S101 - it has ended
    cost = format_seconds(trial.evaluation.cost_seconds)
    return f"trial {trial.number:>3}  {trial.evaluation.loss:<8.4g} {cost:>6}  {path}"


def standing(progress: "Progress") -> str:
    """Return where a study stands."""
    of_trials = f"/{progress.trials_total}" if progress.trials_total else ""
    n_trials = counted(progress.n_trials, "trial")
    if progress.can_go_on:
        is_one = progress.n_begun == 1 and not of_trials
        begun = f"{progress.n_begun}{of_trials} configuration{'s' * (not is_one)} begun"
        parts = [begun, f"{n_trials}, {progress.n_stopped} in part"]
    else:
        parts = [f"{progress.n_trials}{of_trials} trials" if of_trials else n_trials]
    if progress.n_failed:
        parts.append(f"{progress.n_failed} failed")
    if progress.incumbent is not None:
        unit = loss_unit(progress.metric)
        metric = loss_name(progress.metric)
        fidelity = fidelity_text(progress.incumbent.query.to_json())
        of = f" ({fidelity})" if fidelity else ""
        parts.insert(0, f"best {metric} {progress.incumbent.loss:.4g}{unit}{of}")
    if progress.seconds_total is not None:
        left = max(progress.seconds_total - progress.seconds, 0)
        parts.append(f"{format_seconds(left)} left")
    saved = format_seconds(max(progress.seconds_saved, 0))
    parts.append(f"cache {progress.cache_hits} hits, {saved} saved")
    return " · ".join(parts)


_MEMBERS_A_LINE = 5


def print_summary(summary: Mapping[str, Any], *, notes: bool = False) -> None:
    """Print a study: its best pipeline, its trials, its method's decisions, and the cache.

    Args:
        summary: As `summarize` gives it.
        notes: Whether with the method's notes.
    """
    CONSOLE.print(line(bold(summary["study"]), f" ({summary['method']}, {summary['state']})"))
    result = _trials, _ensemble, _best, _model, _undefined, _finalists, _alone, _constraints
    told = (_notes,) if notes else ()
    for part in (*result, _race, _decisions, *told, _cache, _plugins, _warnings, _next_commands):
        for text in part(summary):
            CONSOLE.print(line("  ", text))


def _plugins(summary: Mapping[str, Any]) -> Iterator[str]:
    for plugin in summary["plugins"]:
        yield "plugin: {kind} {name} of {distribution} {version}".format(**plugin)


def _warnings(summary: Mapping[str, Any]) -> Iterator[Text]:
    """Yield what went wrong around the study while it ran."""
    for text in summary["notes"]:
        yield line((f"warning: {text}", "yellow"))


def print_studies(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print studies, one a line."""
    table = Table(
        uncut_column("study"), "state", "method", "metric", "best", "trials", "failed", "data",
        box=None,
    )  # fmt: skip
    for row in rows:
        best = row["incumbent"]
        table.add_row(
            row["study"],
            row["state"],
            row["method"],
            loss_name(row["metric"]),
            f"{best['loss']:.4g}{_of(best)}" if best else "",
            str(row["n_trials"]),
            str(row["n_failed"]),
            row["data"],
        )
    CONSOLE.print(table if rows else "no studies")


_LATE_SECONDS = 1.0
"""Over the budget, from which on it is mentioned."""


def _trials(summary: Mapping[str, Any]) -> Iterator[str]:
    seconds, n_waiting = summary["seconds"], summary["n_waiting"]
    total, evaluating = format_seconds(seconds["total"]), format_seconds(seconds["evaluating"])
    waiting = f"; {n_waiting} more waiting to run" if n_waiting else ""
    n_stopped, n_failed = summary["n_stopped"], summary["n_failed"]
    trials = counted(summary["n_trials"], "trial")
    if n_stopped:
        n_full = summary["n_trials"] - n_stopped - n_failed
        begun = counted(summary["n_begun"], "configuration")
        trials = f"{begun} in {trials}: {n_full} in full, {n_stopped} in part"
    over = seconds["over_budget"] or 0.0
    late = f", {format_seconds(over)} over its budget" if over >= _LATE_SECONDS else ""
    yield f"{trials}, {n_failed} failed, in {total}{late} ({evaluating} of evaluating){waiting}"


def _best(summary: Mapping[str, Any]) -> Iterator[str | Text]:
    """Yield the best trial and its pipeline; beside an ensemble, as the best single one."""
    incumbent, unit = summary["incumbent"], loss_unit(summary["metric"])
    if incumbent is None:
        return
    scored = "cross-validated" if summary["holdout"] is None else "held-out"
    what = "best single trial" if _is_of_several(summary) else "best: trial"
    yield line(
        f"{what} {incumbent['trial']}{_of(incumbent)}, {scored} ",
        f"{loss_name(summary['metric'])} ",
        bold(f"{incumbent['loss']:.4g}{unit}"),
        *(() if _is_another(summary) else _tested(summary["single_best_test_loss"], unit)),
        f" (guessing: {summary['chance_loss']:.4g}{unit})",
    )
    for text in pipeline_lines(incumbent["configuration"]):
        yield f"  {text}"


def _is_another(summary: Mapping[str, Any]) -> bool:
    """Return whether the final model is one trial, and not the best one."""
    model, best = summary["model_trial"], summary["incumbent"]
    return model is not None and best is not None and model["trial"] != best["trial"]


def _model(summary: Mapping[str, Any]) -> Iterator[str | Text]:
    """Yield the trial that is the model instead of another, or after a partial evaluation only."""
    model, unit = summary["model_trial"], loss_unit(summary["metric"])
    metric, replaced = loss_name(summary["metric"]), summary["instead_of"]
    if model is not None and _is_another(summary):
        yield line(
            f"model: trial {model['trial']}{_of(model)}, {metric} {model['loss']:.4g}{unit}",
            *_tested(summary["test_loss"], unit),
        )
        for text in pipeline_lines(model["configuration"]):
            yield f"  {text}"
    if model is not None and summary["model_is_partial"]:
        yield (
            f"no full evaluation qualifies; the model is the best partial one, trial "
            f"{model['trial']}{_of(model)}"
        )
    if summary["model_subset"] < 1 and not summary["model_of_folds"]:
        yield (
            f"the model is fitted on {summary['model_subset']:.2g} of the training rows, as no "
            "time was left for all of them; the same command with this study does that"
        )
    if summary["model_of_folds"]:
        yield (
            "the model is the mean of the models of the folds, as no time was left to fit on all "
            "training rows; the same command with this study does that"
        )
    if summary["no_model"]:
        yield line((summary["no_model"], "yellow"))
    if replaced is not None:
        numbers = ", ".join(map(str, replaced["trials"]))
        what = "trial" if len(replaced["trials"]) == 1 else "the ensemble of trials"
        yield f"instead of {what} {numbers}: {replaced['reason']}"


def _undefined(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a loss on the test rows is undefined."""
    metric, reason = loss_name(summary["metric"]), summary["test_loss_undefined"]
    alone = summary["single_best_test_loss_undefined"]
    if reason:
        yield f"{metric} on the test rows is undefined: {reason}"
    if alone and alone != reason:
        yield f"{metric} of the best trial alone on the test rows is undefined: {alone}"


def _is_of_several(summary: Mapping[str, Any]) -> bool:
    """Return whether the final model is an ensemble of several trials."""
    ensemble = summary["ensemble"]
    return ensemble is not None and len(ensemble["members"]) > 1


def _finalists(summary: Mapping[str, Any]) -> Iterator[str]:
    looks, incumbent = summary["finalists"], summary["incumbent"]
    if not looks or incumbent is None:
        return
    first, chosen = looks[0], chosen_look(looks)
    if chosen["trial"] != incumbent["trial"] or first["again"] is None:  # of another time
        return
    unit, metric = loss_unit(summary["metric"]), loss_name(summary["metric"])
    other = f" (trial {first['trial']}: {mean_loss(first):.4g}{unit})" if chosen != first else ""
    yield (
        f"looked again at the best {len(looks)} on another split: trial {chosen['trial']} has the "
        f"least {metric} over both, {mean_loss(chosen):.4g}{unit}{other}"
    )


def _of(best: Mapping[str, Any]) -> str:
    """Return of what the loss of a trial is, in brackets; empty if of all."""
    return f" ({best['fidelity']})" if best["fidelity"] else ""


def _ensemble(summary: Mapping[str, Any]) -> Iterator[str | Text]:
    """Yield the final model where it is an ensemble, with its own losses."""
    ensemble, unit = summary["ensemble"], loss_unit(summary["metric"])
    if ensemble is None or not _is_of_several(summary):
        return
    losses, members = ensemble.get("losses"), ensemble["members"]
    loss = (" on the held-out rows ", bold(f"{losses[-1]:.4g}{unit}")) if losses else ()
    yield line(
        f"model: {ensemble['kind']} ensemble of {counted(len(members), 'trial')}, ",
        loss_name(summary["metric"]),
        *loss,
        *_tested(summary["test_loss"], unit, is_first=not losses),
    )
    yield from _decided(ensemble, loss_name(summary["metric"]), unit)
    heaviest = sorted(members, key=lambda member: (-member["weight"], member["trial"]))
    weights = [f"trial {m['trial']} {m['weight']:.1%}" for m in heaviest]
    for start in range(0, len(weights), _MEMBERS_A_LINE):
        yield f"  {', '.join(weights[start : start + _MEMBERS_A_LINE])}"


def _decided(ensemble: Mapping[str, Any], metric: str, unit: str) -> Iterator[str]:
    """Yield the losses by which an ensemble was preferred to the best trial, if it was."""
    nested = ensemble.get("nested") or {}
    if {ensemble["kind"], "single"} <= set(nested):
        built, alone = nested[ensemble["kind"]], nested["single"]
        yield (
            f"  on held-out rows that it was not built on: {metric} {built:.4g}{unit}, the best "
            f"trial alone {alone:.4g}{unit}"
        )


def _alone(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield that a single trial was preferred to an ensemble, where one was looked for."""
    ensemble = summary["ensemble"]
    if ensemble is not None and ensemble["kind"] == "single":
        number = ensemble["members"][0]["trial"]
        yield f"model: trial {number} alone, as no ensemble was found to be better"


def _tested(
    loss: float | None, unit: str, *, is_first: bool = False
) -> tuple[str | tuple[str, str], ...]:
    """Return parts of a line, which may say another loss before."""
    between = "" if is_first else ";"
    return () if loss is None else (f"{between} on the test rows ", bold(f"{loss:.4g}{unit}"))


def _constraints(summary: Mapping[str, Any]) -> Iterator[str]:
    incumbent = summary["incumbent"]
    best = incumbent or summary["nearest_infeasible"]
    nearest = "" if incumbent or not best else f" in trial {best['trial']}, the nearest"
    for name, bound in summary["constraints"].items():
        value = best["constraints"].get(name) if best else None
        measured = "not measured" if value is None else f"{value:.4g}"
        yield f"{name}: {measured} of at most {bound:g}{nearest}"


def _race(summary: Mapping[str, Any]) -> Iterator[str]:
    race = summary["decisions"].get("race")
    if race is not None:
        begun = counted(race["begun"], "configuration")
        yield f"race: of {begun} {race['stopped']} ended early, clearly behind"


def _decisions(summary: Mapping[str, Any]) -> Iterator[str]:
    method = METHODS.get(summary["method"])
    if method is not None:
        yield from method.decision_lines(summary["decisions"])


def _notes(summary: Mapping[str, Any]) -> Iterator[str]:
    for note in summary["decisions"].get("notes", ()):
        yield f"{summary['method']}: {note}"


def _cache(summary: Mapping[str, Any]) -> Iterator[str]:
    cache = summary["cache"]
    n_steps = cache["hits"] + cache["misses"]
    if n_steps:
        yield (
            f"cache: {cache['hits']} of {n_steps} steps served, "
            f"{format_seconds(cache['seconds_saved'])} saved, {format_bytes(cache['size_bytes'])}"
        )


def _next_commands(summary: Mapping[str, Any]) -> Iterator[str]:
    study, store = summary["study"], summary["store_options"]
    asked = [["show", study], ["report", study], ["trials", study]]
    asked.append(["artifacts", "ls", "--study", study])
    if summary["incumbent"] and not summary["no_model"]:
        asked.append(["export", study, "model.pkl"])
    for k, words in enumerate(asked):
        yield ("      " if k else "next: ") + shlex.join(["prefect-tune", *words, *store])
