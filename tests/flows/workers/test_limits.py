"""Trials that hang, exhaust memory or die are reported with step and fold."""

from pathlib import Path
from typing import Any

import pytest
from inputs import write_table
from pools import family
from prefect_api import flow_runs, task_runs
from studies import trials_in
from user_spaces import PRELUDE

from prefect_tune.flows.tune import tune

SPACE = (
    PRELUDE
    + """
class Hangs(GaussianNB):
    def fit(self, X, y):
        print("HANGING")
        ctypes.PyDLL(None).sleep(1000)  # holds the interpreter's lock


class Eats(Hangs):
    def fit(self, X, y):
        eaten = np.ones(100_000_000)
        super().fit(X, y)


class Dies(Hangs):
    def fit(self, X, y):
        for step in range(1000):
            print("step", step)
        os.kill(os.getpid(), signal.SIGSEGV)


hostile = [one(c.__name__.lower(), c) for c in (Hangs, Eats, Dies)]
space = models(one("works", GaussianNB, SMOOTHING), *hostile)
"""
)
SEED = 0
"""One with which each of the models is among the first six."""
Trials = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def trials(server: str, tmp_path_factory: pytest.TempPathFactory) -> Trials:  # noqa: ARG001
    """Return all trials of a study by the algorithm of their model."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    (folder / "hostile.py").write_text(SPACE)
    before = family()
    tune(
        str(write_table(folder)), target="target", space=f"{folder / 'hostile.py'}:space",
        store=str(folder / "store"), study="hostile", method="random", trials=6, seed=SEED,
        workers=2, trial_timeout="12s", trial_memory="700MB", task_runs="steps",
    )  # fmt: skip
    assert len(family() - before) <= 1  # the process that forks sandboxes stays for the next study
    found: Trials = {}
    for trial in trials_in(folder / "store", "hostile"):
        algorithm = trial["query"]["configuration"]["fit model"]["algorithm"]
        found.setdefault(algorithm, []).append(trial)
    assert set(found) == {"works", "hangs", "eats", "dies"}
    return found


@pytest.mark.slow
def test_failed_trials_report_kind_step_fold_and_cost_without_affecting_others(trials) -> None:
    assert {(t["state"], t["attempts"]) for t in trials["works"]} == {("complete", 1)}
    kinds = {
        "hangs": ("timeout", "--trial-timeout", "HANGING"),
        "eats": ("memory", "--trial-memory", ""),
        "dies": ("crashed", "SIGSEGV", "step 999"),
    }
    made = []
    for algorithm, (kind, message, last) in kinds.items():
        for trial in trials[algorithm]:
            failure = trial["failure"]
            assert (failure["kind"], failure["step"], failure["fold"]) == (kind, "fit model", 0)
            assert (trial["attempts"], trial["state"]) == (1, "failed")
            assert message in failure["message"]
            assert failure["output"].rstrip().endswith(last)
            assert len(failure["output"].splitlines()) < 20
            assert failure["cost_seconds"] > (12 if kind == "timeout" else 0)
            before = [(step, fold) for step in ("encode", "impute") for fold in range(3)]
            assert sorted((s["step"], s["fold"]) for s in failure["steps"]) == before
            made += [s["key"] for s in failure["steps"] if not s["hit"]]
    assert len(made) == len(set(made)) <= 6  # all others were served


@pytest.mark.slow
def test_every_task_run_ends_with_a_reason(trials) -> None:
    run = max((r for r in flow_runs() if r.name.startswith("hostile")), key=lambda r: r.created)
    in_order = sorted(task_runs(run.id), key=lambda r: r.created)  # the last attempt counts
    of_trials = {r.name: r for r in in_order if r.name.startswith("trial ")}
    assert all(r.state is not None and r.state.is_final() for r in in_order)
    assert of_trials[f"trial {trials['hangs'][0]['number']}"].state_name == "TimedOut"
    assert any(r.name.startswith("fit model") and r.state_name == "TimedOut" for r in in_order)
    for number in (trials[fate][0]["number"] for fate in ("hangs", "eats", "dies")):
        end = f"prefect-tune show hostile --trial {number}"
        assert of_trials[f"trial {number}"].state.message.endswith(end)
