"""Trials that hang, eat memory or die are ended by their nannies, which say where they were."""

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

import distributed
import psutil
import pytest
from inputs import write_table
from pools import SERVED, SLEEP, client_of, loading, noted, with_children
from prefect_api import flow_runs, task_runs
from processes import is_alive, wait_for
from studies import trials_in
from user_spaces import PRELUDE

from prefect_tune.flows.tuning import retry, tune
from prefect_tune.flows.workers import nanny_reports
from prefect_tune.flows.workers.nanny_reports import NannyReports, enforce_limits
from prefect_tune.tasks.problem import TrialLimits
from prefect_tune.tasks.worker import limit_keeper
from prefect_tune.tasks.worker.limit_keeper import mark_of

SPACE = (
    PRELUDE
    + """
class Hangs(GaussianNB):
    def fit(self, X, y):
        ctypes.PyDLL(None).sleep(1000)  # holds the interpreter's lock


class Eats(Hangs):
    def fit(self, X, y):
        eaten = []
        while True:
            eaten.append(np.ones(20_000_000))


class Dies(Hangs):
    def fit(self, X, y):
        os.kill(os.getpid(), signal.SIGSEGV)


hostile = [one(c.__name__.lower(), c) for c in (Hangs, Eats, Dies)]
space = models(one("works", GaussianNB, SMOOTHING), *hostile)
"""
)


SEED = 0
"""One with which each of the models is among the first six."""


@pytest.fixture(scope="module")
def parameters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile.py").write_text(SPACE)
    return {
        "data": str(write_table(folder)),
        "target": "target",
        "space": f"{folder / 'hostile.py'}:space",
        "store": str(folder / "store"),
        "study": "hostile",
        "method": "random",
        "trials": 6,
        "seed": SEED,
        "workers": 2,
        "trial_timeout": "12s",
        "trial_memory": "700MB",
        "task_runs": "steps",
    }


@pytest.fixture(scope="module")
def trials(server: str, parameters: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:  # noqa: ARG001
    """All trials of the study by the algorithm of their model."""
    before = set(psutil.pids())
    tune(**parameters)
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    assert not [p for p in left if "dask" in p.name()]
    found: dict[str, list[dict[str, Any]]] = {}
    for trial in trials_in(parameters["store"], "hostile"):
        algorithm = trial["query"]["configuration"]["fit model"]["algorithm"]
        found.setdefault(algorithm, []).append(trial)
    assert set(found) == {"works", "hangs", "eats", "dies"}
    return found


@pytest.mark.usefixtures("server")
def test_other_trials_do_not_notice(trials) -> None:
    assert {t["state"] for t in trials["works"]} == {"complete"}
    assert {t["attempts"] for t in trials["works"]} == {1}


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("algorithm", "kind", "message", "attempts"),
    [
        ("hangs", "timeout", "12 s (raise the limit with --trial-timeout)", 1),
        ("eats", "memory", "0.7 GB (raise the limit with --trial-memory)", 1),
        ("dies", "crashed", "2 attempts", 2),
    ],
)
def test_the_trial_has_failed_with_its_kind_step_fold_and_cost(
    trials, algorithm, kind, message, attempts
) -> None:
    for trial in trials[algorithm]:
        failure = trial["failure"]
        assert (failure["kind"], failure["step"], failure["fold"]) == (kind, "fit model", 0)
        # On a busy machine, a worker may die for another reason; its trial is then started again.
        assert attempts <= trial["attempts"] <= 2, failure
        assert trial["state"] == "failed"
        assert message in failure["message"]
        assert failure["cost_seconds"] > (12 if kind == "timeout" else 0)


@pytest.mark.usefixtures("server")
def test_a_failure_says_what_each_step_took_until_then_and_what_was_served(trials) -> None:
    before = {(step, fold) for step in ("impute", "encode") for fold in range(3)}
    failures = [t["failure"] for name in ("hangs", "eats", "dies") for t in trials[name]]
    for failure in failures:
        steps = failure["steps"]
        assert {(s["step"], s["fold"]) for s in steps} == before
        taken = sum(s["load_seconds"] + (0 if s["hit"] else s["seconds"]) for s in steps)
        assert taken <= failure["cost_seconds"]
    made = [s["key"] for f in failures for s in f["steps"] if not s["hit"]]
    assert len(made) == len(set(made)) <= 6  # all others were served


@pytest.mark.usefixtures("server")
def test_every_task_run_has_ended_and_says_why(trials) -> None:
    run = max((r for r in flow_runs() if r.name.startswith("hostile")), key=lambda r: r.created)
    in_order = sorted(task_runs(run.id), key=lambda r: r.created)  # the last attempt counts
    of_trials = {r.name: r for r in in_order if r.name.startswith("trial ")}
    assert all(r.state is not None and r.state.is_final() for r in task_runs(run.id))
    hung = of_trials[f"trial {trials['hangs'][0]['number']}"]
    assert hung.state_name == "TimedOut"
    for number in (trials[fate][0]["number"] for fate in ("hangs", "eats", "dies")):
        end = f"prefect-tune show hostile --trial {number}"
        assert of_trials[f"trial {number}"].state.message.endswith(end)


@pytest.mark.usefixtures("server")
def test_a_failed_trial_can_be_run_again_with_other_limits(trials, parameters) -> None:
    number = trials["hangs"][0]["number"]
    retry("hostile", [number], store=parameters["store"], workers=1, trial_timeout="2s")
    failure = trials_in(parameters["store"], "hostile")[number]["failure"]
    assert "2 s" in failure["message"]


LIMITS = TrialLimits(seconds=0.5)


@pytest.fixture(scope="module")
def client() -> Iterator[distributed.Client]:
    with client_of(1) as client:
        yield client


class Reported:
    """A trial on a worker, until that is gone, and what its nanny says of it.

    Attributes:
        future: Of its task.
        report: What its nanny says, or None.
    """

    def __init__(
        self,
        client: distributed.Client,
        task: Any,
        *given: object,
        limits: TrialLimits,
        look: Callable[[], object] = lambda: None,
    ) -> None:
        """Run it; look at what is left while limits are still kept."""
        client.wait_for_workers(1, timeout=60)
        flow_run_id, trial = uuid4(), uuid4()
        with enforce_limits(client, flow_run_id, limits) as reports:
            self.future = client.submit(task, trial, flow_run_id, *given, pure=False)
            reports.follow(trial, self.future)
            wait_for(self.future.done)
            self.report: Any = reports.wait_for(trial)
            look()
        self.failure = self.report.failure
        wait_for(lambda: list(client.processing()) not in ([], [self.report.worker]))


@pytest.mark.slow
def test_the_worker_of_a_trial_over_its_time_is_killed_and_reported(client) -> None:
    trial = Reported(client, noted, 1000, limits=LIMITS)
    assert trial.future.cancelled()  # or Dask would start it on another worker
    failure = trial.failure
    assert (failure.kind, failure.step, failure.fold) == ("timeout", "fit model", 1)
    assert "0.5 s" in failure.message
    assert failure.steps == (SERVED,)
    assert failure.cost_seconds > 0.5


@pytest.mark.slow
def test_the_time_of_a_trial_starts_when_its_worker_has_loaded_the_data(client) -> None:
    failure = Reported(client, loading, 1.5, 1000, limits=LIMITS).failure
    assert (failure.kind, failure.step) == ("timeout", "fit model")
    assert failure.load_seconds >= 1.5
    assert failure.cost_seconds > 0.5


@pytest.mark.slow
def test_loading_has_a_time_limit_of_its_own(client, monkeypatch) -> None:
    monkeypatch.setattr(limit_keeper, "_LOAD_SECONDS", 0.5)
    failure = Reported(client, loading, 1000, limits=TrialLimits(1000)).failure
    assert (failure.kind, failure.step, failure.cost_seconds) == ("timeout", None, 0.0)
    assert "load" in failure.message
    assert failure.load_seconds > 0.5


@pytest.mark.slow
def test_the_wait_for_a_report_counts_from_when_the_worker_went(monkeypatch) -> None:
    """Of many that leave at once, the first is waited for and the others were, too."""
    monkeypatch.setattr(nanny_reports, "_REPORT_SECONDS", 1e9)
    reports, trial = NannyReports(), uuid4()
    reports.follow(trial, None)
    assert reports.wait_for(trial, monotonic() - 1e9) is None


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize(("limit", "own"), [(1000.0, 0.5), (0.2, 1.5)])
def test_a_trial_may_have_less_time_than_the_nanny_allows_and_more(client, limit, own) -> None:
    trial = Reported(client, noted, 1000, own, limits=TrialLimits(limit))
    assert f"{own} s" in trial.failure.message


@pytest.mark.slow
def test_a_worker_that_dies_of_itself_is_reported_with_where_its_trial_was(client) -> None:
    trial = Reported(client, noted, -0.3, limits=LIMITS)
    assert trial.future.status in ("error", "cancelled")
    assert (trial.failure.kind, trial.failure.step) == ("crashed", "fit model")
    assert trial.failure.steps == (SERVED,)


@pytest.mark.slow
@pytest.mark.full
def test_trials_of_other_flow_runs_and_after_the_body_are_left_alone(client) -> None:
    client.wait_for_workers(1, timeout=60)
    ours, theirs = uuid4(), uuid4()
    with enforce_limits(client, ours, LIMITS):
        client.submit(noted, uuid4(), theirs, 0.8, pure=False).result(timeout=60)
    client.submit(noted, uuid4(), ours, 0.8, pure=False).result(timeout=60)


@pytest.mark.slow
def test_the_step_that_a_trial_is_at_is_reported_once(client) -> None:
    client.wait_for_workers(1, timeout=60)
    flow_run_id, trial = uuid4(), uuid4()
    with enforce_limits(client, flow_run_id, TrialLimits(seconds=1000)) as reports:
        future = client.submit(noted, trial, flow_run_id, 2.0, pure=False)
        reports.follow(trial, future)
        since = monotonic()
        step = wait_for(lambda: (at := reports.step_of(trial)) and at.step and at)
        assert (step.step, step.fold) == ("fit model", 1)
        assert since - 1.0 < step.started < monotonic()
        future.result(timeout=60)
        assert len(said_of(client, flow_run_id)) <= 2  # one more if the trial had not noted it yet
        reports.forget(trial)
        assert reports.step_of(trial) is None


def said_of(client: distributed.Client, flow_run_id: UUID) -> list[Any]:
    """All that nannies have said of the trials of a flow run."""
    return list(client.get_events(mark_of(str(flow_run_id), client.id)))


@pytest.mark.slow
def test_without_a_report_none_is_waited_for_longer_than_a_moment(client, monkeypatch) -> None:
    monkeypatch.setattr(nanny_reports, "_REPORT_SECONDS", 0.01)
    reports, trial = NannyReports(), uuid4()
    reports.follow(trial, client.submit(int, pure=False))
    assert reports.wait_for(trial) is None


EATS = "import time; eaten = bytearray(b'x') * 550_000_000; time.sleep(1000)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "code", "limits", "end"),
    [
        ("memory", EATS, TrialLimits(1000, 600_000_000), ""),  # not the worker alone
        pytest.param("timeout", SLEEP, TrialLimits(seconds=1.5), "", marks=pytest.mark.full),
        pytest.param("crashed", SLEEP, TrialLimits(seconds=1000), "dies", marks=pytest.mark.full),
    ],
)
def test_what_a_trial_has_started_is_counted_and_goes_with_its_worker(  # noqa: PLR0917
    client, tmp_path, kind, code, limits, end
) -> None:
    def look() -> None:
        wait_for(lambda: not alive(tmp_path), 10)

    trial = Reported(client, with_children, tmp_path, code, end, limits=limits, look=look)
    assert trial.failure.kind == kind
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.slow
@pytest.mark.full
def test_what_a_trial_has_left_goes_when_limits_are_no_longer_kept(client, tmp_path) -> None:
    client.wait_for_workers(1, timeout=60)
    flow_run_id = uuid4()
    with enforce_limits(client, flow_run_id, TrialLimits(seconds=1000)):
        run = (uuid4(), flow_run_id, tmp_path, SLEEP, "returns")
        client.submit(with_children, *run, pure=False).result(timeout=60)
        assert len(alive(tmp_path)) == 3
    wait_for(lambda: not alive(tmp_path), 10)
    assert client.submit(int, pure=False).result(timeout=60) == 0


def alive(folder: Path) -> list[int]:
    """The processes noted in a folder that have not ended."""
    pids = [int(path.name) for path in folder.iterdir()]
    return [pid for pid in pids if is_alive(pid)]
