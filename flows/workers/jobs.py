"""Jobs: tasks other than trials, such as refits, that run on workers and are waited for."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

from prefect_tune.flows.workers.pool import EndedTask, TasksUnderWay, WorkerPool
from prefect_tune.tasks.trial.evaluate import TrialOutcome

_ATTEMPTS = 2
"""Number of starts of a job whose worker dies."""
_OF_ENDED_CALLS = (TimeoutError, MemoryError, RuntimeError)
"""Errors of a call whose process was ended. A job itself raises errors of other types."""
_CHECK_SECONDS = 0.5
"""Interval between checks of running jobs."""


@dataclass(frozen=True, slots=True)
class Job:
    """A task other than a trial; `what` is the subject of its error messages."""

    task: Any
    parameters: Mapping[str, Any]
    what: str = ""

    def named(self, message: str) -> str:
        """Return a message about this job."""
        return f"{self.what}: {message}" if self.what else message


def run_jobs(
    pool: WorkerPool,
    jobs: Sequence[Job],
    *,
    limit_seconds: float = inf,
    check: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Run jobs, one per slot at once, and return their results in order.

    A job is repeated once if its worker dies. The first failure ends all other jobs, as does an
    error raised by `check`, which is called repeatedly. Raises `NoWorkers` if no worker comes back,
    `RuntimeError` if a job's worker died in each attempt, `TimeoutError` or `MemoryError` if it
    exceeds a limit, and errors of jobs or `check`.
    """
    under_way: TasksUnderWay[int] = TasksUnderWay(pool)
    waiting, attempts = deque(range(len(jobs))), [0] * len(jobs)
    results: dict[int, Any] = {}
    try:
        while waiting or under_way:
            while waiting and len(under_way) < max(pool.n_slots, 1):
                position = waiting.popleft()
                attempts[position] += 1
                job = jobs[position]
                under_way.submit(position, job.task, job.parameters)
            for ended in under_way.collect(_CHECK_SECONDS):
                position = ended.task.subject
                if ended.state is not None:
                    results[position] = _result(ended, jobs[position])
                elif attempts[position] < _ATTEMPTS:
                    waiting.appendleft(position)
                else:
                    died = f"its worker died in {_ATTEMPTS} attempts"
                    text = jobs[position].named(ended.fault or died)
                    raise RuntimeError(text)  # noqa: TRY301 - cuts the others, as any error
            check()
            for task in under_way:
                is_late = monotonic() > task.started + limit_seconds
                if is_late and not task.future.wrapped_future.done():
                    message = f"took more than {limit_seconds:g} s"
                    text = jobs[task.subject].named(message)
                    raise TimeoutError(text)  # noqa: TRY301 - as above
    except BaseException:
        under_way.cut()
        raise
    return [results[position] for position in range(len(jobs))]


def _result(ended: EndedTask[int], job: Job) -> Any:
    assert ended.state is not None  # noqa: S101 - ensured by the caller
    data = getattr(ended.state.data, "result", ended.state.data)
    if isinstance(data, TrialOutcome):
        return data
    # As a Prefect future does, whatever event loop runs in this thread.
    try:
        return ended.state.result(_sync=True)  # type: ignore[call-overload]
    except _OF_ENDED_CALLS as error:
        if not job.what or type(error) not in _OF_ENDED_CALLS:
            raise
        raise type(error)(job.named(str(error))) from error
