"""Where a study stands, and what became of a trial, in a line each."""

from prefect_tune.flows.progress import Progress
from prefect_tune.flows.text import counted, format_seconds, loss_name
from prefect_tune.optimizers.space.wording import fidelity_text
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["outcome", "standing"]


def outcome(trial: Trial) -> str:
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


def standing(progress: Progress) -> str:
    """Return where a study stands."""
    of_trials = f"/{progress.trials_total}" if progress.trials_total else ""
    n_trials = counted(progress.n_trials, "trial")
    if progress.can_go_on:
        begun = f"{progress.n_begun}{of_trials} configurations begun"
        parts = [begun, f"{n_trials}, {progress.n_stopped} in part"]
    else:
        parts = [f"{progress.n_trials}{of_trials} trials" if of_trials else n_trials]
    if progress.n_failed:
        parts.append(f"{progress.n_failed} failed")
    if progress.incumbent is not None:
        unit = " %" if progress.unit == "percent" else ""
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
