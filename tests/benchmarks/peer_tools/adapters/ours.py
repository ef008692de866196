"""`prefect-tune run --budget` with one worker, in this process.

Options are options of `run` (`space=modern`, `ensemble=auto`, `race=true`) or else options of the
method (`variant=paper`). The budget is the seconds left after server, imports and worker, so
start-up is counted. The answer at the end is the final model of the run. Earlier incumbents, and
the best single trial if the answer is an ensemble, are fitted on all training rows afterwards. As
in the product, the time of refits is not counted. The portfolio is made without the table and its
versions.
"""

from collections.abc import Iterator
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from peer_tools.task import Answer, Incumbents, Task

DISTRIBUTION = "prefect-tune"
STUDY = "run"
TRAINED = 0.8
"""Share of the training rows in each of five folds; on more rows, a study trains on more."""
CALL_SECONDS = 2.0  # from the call of the flow to its first trial, seen on a busy machine


class Follower:
    """An observer that records each incumbent with its time."""

    def __init__(self, task: Task) -> None:
        self.found, self._task, self._best = Incumbents(), task, None

    def note(self, text: str) -> None:
        print(f"{self._task.elapsed():.1f} s: {text}", flush=True)

    warn = note

    def tick(self, progress: Any) -> None: ...

    def ended(self, trial: Any, progress: Any) -> None:  # noqa: ARG002 - of the interface
        best = progress.incumbent
        loss, leads = None if best is None else best.loss, best is not self._best
        self.found.ended(self._task.elapsed(), loss, best, leads=leads)
        self._best = best


def answers(task: Task) -> Iterator[Answer]:
    """Run a study, then predict with its final model and with the incumbent of each stage."""
    follower, url = Follower(task), str(Path(task.folder, "store"))
    summary = run(task, follower, url)
    from peer_tools.plain_evaluation import refitted
    from prefect_tune.flows.reading.opened_study import open_study
    from prefect_tune.flows.results.predict import predict
    from prefect_tune.storage.artifacts import StoreAddress
    from prefect_tune.tasks.problem import StudyContext, open_store

    store = open_store(address := StoreAddress(url))
    plan = open_study(store, STUDY).plan
    context = StudyContext(STUDY, plan.problem, address, epochs=plan.options.epochs)
    is_ensemble = len((summary["ensemble"] or {}).get("members", ())) > 1
    for single in follower.found.answers(task, lambda best: refitted(context, best.refit_query)):
        if single.stage < task.seconds:
            yield single
            continue
        predicted = predict(store, STUDY, task.test, None)["prediction"].to_numpy()
        yield replace(single, predictions=predicted, loss=None if is_ensemble else single.loss)
        if is_ensemble:
            yield replace(single, model="single")


def run(task: Task, follower: Follower, store: str) -> dict[str, Any]:
    """Run the study as the command does: server and zygote start while Prefect is imported."""
    from prefect_tune.deployments.server.prefect_settings import QUIET_CONSOLE, set_defaults
    from prefect_tune.tasks.sandbox.zygote import ZYGOTE

    set_defaults({**QUIET_CONSOLE, "PREFECT_TUNE_HOME": str(Path(task.folder, "home"))})
    from prefect_tune.deployments.server.embedded import launched_server

    ZYGOTE.start()
    with launched_server() as server:
        import pyarrow.parquet as pq

        from peer_tools.plain_evaluation import space_of
        from peer_tools.portfolios import without
        from prefect_tune.flows.options.values import parse_assignment
        from prefect_tune.flows.study.progress import observed_by
        from prefect_tune.flows.tune import tune
        from prefect_tune.optimizers.trials.objective import Objective

        options = dict(parse_assignment(f"{n}={text}") for n, text in task.options.items())
        given = {name: v for name, v in options.items() if name in signature(tune).parameters}
        given["option"] = {name: v for name, v in options.items() if name not in given}
        space, table = space_of(task), Path(task.train).name.rsplit("-", 2)[0]
        if "space" in given:
            given["space"] = space.name
        if "start" not in given:
            path = Path(task.folder, "portfolio.json")
            file = pq.read_metadata(task.train)
            n_rows = int(TRAINED * file.num_rows)
            size = Objective(n_rows=n_rows, n_columns=file.num_columns - 1)
            given["start"] = without(table, task.kind, space, path, size)
        with observed_by(follower):
            server.wait()
            return tune(
                data=task.train, test=task.test, target=task.target, seed=task.seed,
                budget=f"{task.left() - CALL_SECONDS:.1f}s", study=STUDY, workers=1, store=store,
                metric="error" if task.kind == "classes" else "r2", **given,
            )  # fmt: skip
