"""How to have a study again: its command, seed, versions and data."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from prefect_tune.flows.study.command import continue_command, removed_option, run_command
from prefect_tune.flows.study.plan import StopRule, StudyPlan
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.tasks.data.frames import FRAME

__all__ = ["Reproduction", "reproduction_of"]


@dataclass(frozen=True, slots=True)
class Reproduction:
    """All that decides how a study goes.

    Attributes:
        command: Words of the command that starts it anew.
        longer: Words of the command that goes on with it, to twice its trials and seconds.
        resumed: Words of the command that goes on where it was interrupted.
        removed_option: Option of its method that this version no longer has, as `name=value`; empty
            if there is none. The commands fail with it.
        is_of_frame: Whether its data was a DataFrame, which no command can name.
        seed: Source of all randomness.
        repeats_itself: Whether the same seed gives the same trials, on one worker and with a budget
            of trials.
        versions: Of the session that ran last, by package; empty where not known.
        data: Where its data came from.
        dataset: Digest of the data.
        split: Digest of its folds and test part.
        space: Name of the space.
        space_digest: Digest of it.
        flow_run_id: Prefect's flow run of the latest session, if there was one.
    """

    command: tuple[str, ...]
    longer: tuple[str, ...]
    resumed: tuple[str, ...]
    removed_option: str
    is_of_frame: bool
    seed: int
    repeats_itself: bool
    versions: Mapping[str, str]
    data: str
    dataset: str
    split: str
    space: str
    space_digest: str
    flow_run_id: str | None


def reproduction_of(record: StoredStudy, plan: StudyPlan) -> Reproduction:
    """Return how to have a study of the ledger again."""
    method, problem = METHODS.get(plan.method), plan.problem
    return Reproduction(
        command=tuple(run_command(plan, record.name)),
        longer=tuple(
            continue_command(replace(plan, stop_rule=_doubled(plan.stop_rule)), record.name)
        ),
        resumed=tuple(continue_command(plan, record.name)),
        removed_option=removed_option(plan),
        is_of_frame=plan.source.data.startswith(FRAME),
        seed=plan.seed,
        repeats_itself=method is not None and not method.draws_on_cost,
        versions=dict(record.result.get("versions", {})),
        data=plan.source.data,
        dataset=problem.dataset,
        split=problem.split,
        space=plan.space,
        space_digest=problem.space_digest,
        flow_run_id=plan.flow_run_id,
    )


def _doubled(rule: StopRule) -> StopRule:
    trials, seconds = rule.trials, rule.seconds
    return StopRule(
        None if trials is None else 2 * trials, None if seconds is None else 2 * seconds
    )
