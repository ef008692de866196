"""SMAC3's hyperparameter facade, over one of our spaces as a single conditional space.

Options: the `space`, by default the space of the product. Pairs of algorithms that no path contains
are forbidden. SMAC begins with 25 configurations, the default of the facade for 100 trials. Losses
are means over three folds by our own evaluation without a cache; as in our product, a trial may
take a tenth of the budget (at least 10 s). Failed or slow trials are reported as crashed. Time
counts from the start of the process; incumbents are fitted on all training rows afterwards, outside
the counted time.
"""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from peer_tools.task import Answer, Incumbents, Task

DISTRIBUTION = "smac"
INITIAL = 25


def answers(task: Task) -> Iterator[Answer]:
    """Search, then predict with the incumbent of each stage."""
    from smac import HyperparameterOptimizationFacade as Facade
    from smac import Scenario
    from smac.runhistory import StatusType, TrialValue

    from peer_tools.plain_evaluation import PlainEvaluator

    found, worst = Incumbents(), 100.0 if task.kind == "classes" else 1.0
    with PlainEvaluator(task) as evaluator:
        scenario = Scenario(
            joint_space(evaluator.space, task.seed),
            deterministic=True,
            n_trials=100_000,
            output_directory=Path(task.folder, "smac"),
            seed=task.seed,
        )
        facade = Facade(
            scenario,
            lambda configuration, seed=0: 0.0,  # noqa: ARG005 - it is asked and told
            initial_design=Facade.get_initial_design(scenario, n_configs=INITIAL, max_ratio=1.0),
            overwrite=True,
            logging_level=False,
        )
        while task.left() > 0:
            info, asked = facade.ask(), task.elapsed()
            configuration = in_our_space(info.config, evaluator.space)
            is_possible = evaluator.space.is_feasible(configuration.path)
            loss = evaluator.loss(configuration) if is_possible else None
            status = StatusType.CRASHED if loss is None else StatusType.SUCCESS
            cost, seconds = worst if loss is None else loss, task.elapsed() - asked
            facade.tell(info, TrialValue(cost, time=seconds, status=status))
            found.ended(task.elapsed(), loss, configuration)
        yield from found.answers(task, evaluator.predictions)


def joint_space(space: Any, seed: int) -> Any:
    """Return a joint space: a category per step, with conditional hyperparameters."""
    from ConfigSpace import Categorical, ConfigurationSpace
    from ConfigSpace import ForbiddenAndConjunction as Both
    from ConfigSpace import ForbiddenEqualsClause as Is

    paths = list(space.paths())
    together = {pair for path in paths for pair in combinations(enumerate(path), 2)}
    joint, steps = ConfigurationSpace(seed=seed), []
    for step, default in zip(space.searched, paths[0], strict=True):
        steps.append(Categorical(step.name, [a.id for a in step.algorithms], default=default))
        joint.add(steps[-1])
        for a in step.algorithms:
            joint.add_configuration_space(
                prefix=f"{step.name}:{a.id}",
                configuration_space=a.hyperparameters,
                parent_hyperparameter={"parent": steps[-1], "value": a.id},
            )
    for (i, first), (j, second) in combinations(enumerate(steps), 2):
        for a in first.choices:
            for b in second.choices:
                if ((i, a), (j, b)) not in together:
                    joint.add(Both(Is(first, a), Is(second, b)))
    return joint


def in_our_space(configuration: Any, space: Any) -> Any:
    """Return a configuration of the joint space as a configuration of our space."""
    from prefect_tune.optimizers import Configuration
    from prefect_tune.optimizers.documents import plain_value

    given = {name: plain_value(value) for name, value in dict(configuration).items()}
    path = tuple(given[step.name] for step in space.searched)
    values = []
    for step, algorithm in zip(space.searched, path, strict=True):
        prefix = f"{step.name}:{algorithm}:"
        values.append({n.removeprefix(prefix): v for n, v in given.items() if n.startswith(prefix)})
    return Configuration.of(space, path, values)
