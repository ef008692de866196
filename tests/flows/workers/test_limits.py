"""Trials that hang, eat memory or die end by themselves, with where they were."""

from typing import Any

import pytest
from inputs import write_table
from pools import family
from prefect_api import flow_runs, task_runs
from studies import trials_in
from user_spaces import PRELUDE

from prefect_tune.flows.tune import retry, tune

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
    before = family()
    tune(**parameters)
    assert len(family() - before) <= 1  # the process that forks sandboxes stays for the next study
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
    ("algorithm", "kind", "message"),
    [
        ("hangs", "timeout", "12 s (raise the limit with --trial-timeout)"),
        ("eats", "memory", "0.7 GB (raise the limit with --trial-memory)"),
        ("dies", "crashed", "SIGSEGV"),
    ],
)
def test_the_trial_has_failed_with_its_kind_step_fold_and_cost(
    trials, algorithm, kind, message
) -> None:
    for trial in trials[algorithm]:
        failure = trial["failure"]
        assert (failure["kind"], failure["step"], failure["fold"]) == (kind, "fit model", 0)
        assert (trial["attempts"], trial["state"]) == (1, "failed")
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
    steps = [r for r in in_order if r.name.startswith("fit model") and r.state_name == "TimedOut"]
    assert steps
    for number in (trials[fate][0]["number"] for fate in ("hangs", "eats", "dies")):
        end = f"prefect-tune show hostile --trial {number}"
        assert of_trials[f"trial {number}"].state.message.endswith(end)


@pytest.mark.usefixtures("server")
def test_a_failed_trial_can_be_run_again_with_other_limits(trials, parameters) -> None:
    number = trials["hangs"][0]["number"]
    retry("hostile", [number], store=parameters["store"], workers=1, trial_timeout="2s")
    failure = trials_in(parameters["store"], "hostile")[number]["failure"]
    assert "2 s" in failure["message"]
