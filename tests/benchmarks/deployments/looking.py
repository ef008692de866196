"""How soon the commands answer that only look, at a small study and at a large one.

    tests/benchmarks/run deployments/looking [COMMAND]

Enters studies of 20 and of 2,000 trials into new stores, each trial with 15 steps and the artifacts
that they used, and times commands in processes of their own, from a warm disk. COMMAND is another
`prefect-tune`, timed in turn with this one on the same stores.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from subprocess import run

import numpy as np
from entered_studies import artifact, enter
from machine import Goals, seconds_of
from processes import COMMAND
from sqlalchemy import insert

from prefect_tune.optimizers import Asked, Budget, Evaluation, Query, StepCost, Told, Trial
from prefect_tune.optimizers.events import event_document
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.storage.schema import artifact_table
from prefect_tune.tasks.catalogue.spaces import space_named

SPACE = space_named("flash")
COMMANDS = (
    ("show", "s"),
    ("trials", "s"),
    ("study", "ls"),
    ("artifacts", "ls", "--study", "s", "--limit", "20"),
    ("artifacts", "stats"),
)
SIZES = (20, 2_000)
REPEATS = 7


def trials(n: int) -> Iterator[Trial]:
    rng = np.random.default_rng(0)
    for number in range(n):
        query = Query(sample_configuration(SPACE, rng))
        steps = tuple(
            StepCost(step.name, fold, 0.1, 0.01, hit=fold > 0, key=rng.bytes(32).hex())
            for step in SPACE.steps
            for fold in range(3)
        )
        loss = float(rng.random())
        yield Trial(number, query).started().completed(Evaluation(loss, (loss,) * 3, 1, 2, steps))


def fill(folder: Path, n: int) -> None:
    """Enter a finished study of `n` trials."""
    store = ArtifactStore(StoreAddress(str(folder)))
    ledger, artifacts = enter(store, SPACE), []
    ledger.update_study("s", state="complete", result={"test_loss": 0.5})
    for trial in trials(n):
        asked = {**event_document(Asked(trial.number, trial.query, Budget())), "seconds": 0.1}
        ledger.append("s", Asked.kind, asked, Trial(trial.number, trial.query).to_json())
        ledger.append("s", Told.kind, trial.to_json(), trial.to_json())
        artifacts += [artifact(step, i) for i, step in enumerate(trial.evaluation.steps)]
    with store.database.write() as connection:
        connection.execute(insert(artifact_table), artifacts)
    store.close()


def main() -> None:
    contenders = {"this one": COMMAND} | {name: (name,) for name in sys.argv[1:]}
    goals = Goals()
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            fill(Path(folder), size)
            for command in COMMANDS:
                taken: dict[str, list[float]] = {name: [] for name in contenders}
                for _ in range(REPEATS):
                    for name, contender in contenders.items():
                        words = [*contender, *command, "--store", folder]
                        taken[name].append(seconds_of(run, words, check=True, capture_output=True))
                medians = {name: median(values) for name, values in taken.items()}
                what = f"{' '.join(command)}, {size} trials, s"
                goals.at_most(what, medians.pop("this one"), 1)
                for name, value in medians.items():
                    print(f"    {name}: {value:.2f}")
    goals.end()


if __name__ == "__main__":
    main()
