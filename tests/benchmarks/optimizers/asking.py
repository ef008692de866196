"""What the optimizers take to ask, beside SMAC3.

    tests/benchmarks/run optimizers/asking

The graph of FLASH's benchmark: 1,456 paths with three hyperparameters an algorithm (99 in all), 200
trials told. Every figure is the median of interleaved asks, in milliseconds of processor time: all
run in one thread, and others may share the machine. SMAC3 is measured when it is installed
(`uv sync --group benchmark`), on the same space as one conditional ConfigurationSpace, with the
same trials.
"""

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from ConfigSpace import (
    ConfigurationSpace,
)
from flash_worlds import BENCHMARK, counted_space
from machine import Goals, describe, seconds_of
from peer_tools.adapters.smac import joint_space
from threadpoolctl import threadpool_limits
from worlds import evaluation

from prefect_tune.optimizers import (
    Asked,
    Budget,
    Configuration,
    Objective,
    Optimizer,
    Query,
    Told,
    Trial,
    make_optimizer,
    replay,
)
from prefect_tune.optimizers.space.sampling import sample_configuration

N_HYPERPARAMETERS = 3
N_TOLD = 200
ROUNDS = 9
LONG = {"n_init": 300, "n_prune": 300}


def told_events(space: Any) -> list[Asked | Told]:
    rng = np.random.default_rng(0)
    events: list[Asked | Told] = []
    for number in range(N_TOLD):
        query = Query(sample_configuration(space, rng))
        outcome = evaluation(float(rng.uniform(5, 40)), float(rng.uniform(0.1, 9)))
        events.append(Asked(number, query, Budget()))
        events.append(Told(Trial(number, query).started().completed(outcome)))
    return events


def contestants(space: Any, events: list[Asked | Told]) -> dict[str, Optimizer]:
    made = {
        "flash, phase 1": ("flash", LONG),
        "flash, phase 2": ("flash", {"n_init": 1, "n_prune": 300}),
        "flash, phase 3": ("flash", {"n_init": 30, "n_prune": 0}),
        "smac": ("smac", {"random_share": 0.0}),
        "tpe": ("tpe", {}),
        "random": ("random", {}),
    }
    optimizers = {n: make_optimizer(m, space, 0, Objective(), o) for n, (m, o) in made.items()}
    for optimizer in optimizers.values():
        replay(optimizer, events)
        optimizer.ask(Budget())
    return optimizers


def smac3(space: Any, events: list[Asked | Told], folder: str) -> Callable[[], object] | None:
    """An ask of SMAC3's facade for hyperparameters that was told the same trials."""
    try:
        from smac import HyperparameterOptimizationFacade, Scenario
        from smac.runhistory.dataclasses import TrialInfo, TrialValue
    except ImportError:
        print("SMAC3 is not installed; its figure is left out")
        return None
    logging.disable(logging.CRITICAL)
    joint = joint_space(space, 0)
    scenario = Scenario(
        joint, deterministic=True, n_trials=10_000, output_directory=Path(folder), seed=0
    )
    facade = HyperparameterOptimizationFacade(
        scenario,
        lambda configuration, seed=0: 0.0,  # noqa: ARG005
        initial_design=HyperparameterOptimizationFacade.get_initial_design(scenario, n_configs=1),
        overwrite=True,
        logging_level=False,
    )
    for event in events:
        if isinstance(event, Told) and event.trial.loss is not None:
            configuration = in_joint_space(event.trial.query.configuration, joint)
            facade.tell(TrialInfo(configuration, seed=0), TrialValue(event.trial.loss))

    rng = np.random.default_rng(1)

    def ask() -> object:
        # It fits its forest when something new was told, as ours does at each ask.
        info = facade.ask()
        facade.tell(info, TrialValue(float(rng.uniform(5, 40))))
        return info

    ask()
    return ask


def in_joint_space(configuration: Configuration, joint: ConfigurationSpace) -> Any:
    from ConfigSpace import Configuration as Joint

    values: dict[str, Any] = {}
    for step, choice in configuration.choices:
        values[step] = choice.algorithm
        values |= {f"{step}:{choice.algorithm}:{name}": v for name, v in choice.values}
    return Joint(joint, values=values)


def main() -> None:
    print(describe())
    space = counted_space(BENCHMARK, N_HYPERPARAMETERS)
    events = told_events(space)
    asks: dict[str, Callable[[], object]] = {
        name: lambda o=optimizer: o.ask(Budget())  # type: ignore[misc]
        for name, optimizer in contestants(space, events).items()
    }
    with tempfile.TemporaryDirectory() as folder:
        other = smac3(space, events, folder)
        if other is not None:
            asks["SMAC3"] = other
        times: dict[str, list[float]] = {name: [] for name in asks}
        for _ in range(ROUNDS):
            for name, ask in asks.items():
                times[name].append(1000 * seconds_of(ask, clock=process_time))
    medians = {name: median(values) for name, values in times.items()}
    print("milliseconds of an ask after 200 trials")
    for name, milliseconds in medians.items():
        print(f"  {name:<20} {milliseconds:8.1f}")
    goals = Goals()
    goals.at_most("flash, phase 1, ms", medians["flash, phase 1"], 20)
    goals.at_most("flash, phase 2, ms", medians["flash, phase 2"], 20)
    if "SMAC3" in medians:
        goals.at_most("flash, phase 3 / SMAC3", medians["flash, phase 3"] / medians["SMAC3"], 1)
        goals.at_most("smac / SMAC3", medians["smac"] / medians["SMAC3"], 1)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
