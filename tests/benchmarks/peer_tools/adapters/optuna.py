"""Optuna's TPE, multivariate and grouped, over one of our spaces.

Options: the `space`, by default the space of the product. Each trial defines the space as it runs:
a category for each step, then the active hyperparameters of its algorithm. Losses are means over
three folds by our own evaluation without a cache; as in our product, a trial may take a tenth of
the budget (at least 10 s). Trials that cannot run, fail or take too long are reported as pruned,
which TPE ranks as worst. Time counts from the start of the process; incumbents are fitted
on all training rows afterwards, outside the counted time.
"""

from collections.abc import Iterator
from typing import Any

from peer_tools.task import Answer, Incumbents, Task

DISTRIBUTION = "optuna"


def answers(task: Task) -> Iterator[Answer]:
    """Search, then predict with the incumbent of each stage."""
    import optuna

    from peer_tools.plain_evaluation import PlainEvaluator

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    options = {"multivariate": True, "group": True, "constant_liar": False, "seed": task.seed}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(**options))
    found = Incumbents()
    with PlainEvaluator(task) as evaluator:
        while task.left() > 0:
            trial = study.ask()
            configuration = suggested(trial, evaluator.space)
            loss = None if configuration is None else evaluator.loss(configuration)
            state = optuna.trial.TrialState.PRUNED if loss is None else None
            study.tell(trial, loss, state=state)
            if configuration is not None:
                found.ended(task.elapsed(), loss, configuration)
        yield from found.answers(task, evaluator.predictions)


def suggested(trial: Any, space: Any) -> Any:
    """Return a configuration of our space; None if its path or its values are forbidden."""
    from prefect_tune.optimizers import Configuration
    from prefect_tune.optimizers.space.configuration import active_hyperparameters, is_allowed

    path, values = [], []
    for step in space.searched:
        names = [a.id for a in step.algorithms]
        algorithm = step.algorithm(trial.suggest_categorical(step.name, names))
        chosen: dict[str, Any] = {}
        for hyperparameter in active_hyperparameters(algorithm.hyperparameters, chosen):
            name = f"{step.name}/{algorithm.id}/{hyperparameter.name}"
            chosen[hyperparameter.name] = _value(trial, name, hyperparameter)
        path.append(algorithm.id)
        values.append(chosen)
    if not space.is_feasible(tuple(path)):
        return None
    configuration = Configuration.of(space, tuple(path), values)
    return configuration if is_allowed(space, configuration) else None


def _value(trial: Any, name: str, h: Any) -> Any:
    from ConfigSpace import hyperparameters as kinds

    from prefect_tune.optimizers.documents import plain_value

    if isinstance(h, kinds.Constant):
        return plain_value(h.value)
    if isinstance(h, kinds.CategoricalHyperparameter):
        return plain_value(h.choices[trial.suggest_categorical(name, range(len(h.choices)))])
    if isinstance(h, kinds.OrdinalHyperparameter):
        return plain_value(h.sequence[trial.suggest_int(name, 0, len(h.sequence) - 1)])
    if isinstance(h, kinds.IntegerHyperparameter):
        return trial.suggest_int(name, int(h.lower), int(h.upper), log=h.log)
    return trial.suggest_float(name, float(h.lower), float(h.upper), log=h.log)
