"""Beliefs in a problem with parameters as given, so that what follows from them is known."""

from collections.abc import Mapping

from prefect_tune.optimizers import History, Objective
from prefect_tune.optimizers.methods.fabolas.belief import (
    SubsetBelief,
    SubsetLearner,
    pipeline_inputs,
)
from prefect_tune.optimizers.methods.fabolas.observations import SubsetObservations
from prefect_tune.optimizers.methods.fabolas.recipe import (
    COST,
    LOG_LOSS,
    RAW_LOSS,
    SearchRecipe,
    Sizes,
)
from prefect_tune.optimizers.surrogates.fidelity_kernel import FidelityKernel
from prefect_tune.optimizers.surrogates.kernel import ConstantNoise, FallingNoise
from subset_worlds.problems import ROWS, cube, position

__all__ = ["DEFAULT", "belief_of", "seen_of"]

DEFAULT = SearchRecipe(log_basis=LOG_LOSS, raw_basis=RAW_LOSS)


def seen_of(history: History, objective: Objective = ROWS) -> SubsetObservations:
    """Its results, as a method learns from them."""
    d = max((len(position(t.query)) for t in history), default=1)
    return SubsetObservations.of(history, Sizes.of(objective), pipeline_inputs(cube(d)), 1)


def belief_of(
    history: History,
    *,
    recipe: SearchRecipe = DEFAULT,
    parameters: Mapping[str, float] | None = None,
    costs: Mapping[str, float] | None = None,
) -> SubsetBelief:
    """What follows from a history with parameters as given, nothing fitted.

    Args:
        history: Of the cube.
        recipe: The method.
        parameters: Of the process of losses, by name; others are where their search starts.
        costs: Of the process of seconds.
    """
    d = max(len(position(t.query)) for t in history)
    inputs = pipeline_inputs(cube(d))
    learner = SubsetLearner(inputs, recipe, ROWS, inference="map", n_samples=1)
    within, s = inputs.within, inputs.width
    assert within is not None
    noise = FallingNoise(s) if recipe.has_falling_noise else ConstantNoise()
    of_losses = (*FidelityKernel(within, s, recipe.raw_basis).parameters, *noise.parameters)
    of_costs = (*FidelityKernel(within, s, COST).parameters, *ConstantNoise().parameters)
    kept = {
        name: {"-1": {"thetas": [[(given or {}).get(p.name, p.start) for p in all_of]], "n": 1}}
        for name, all_of, given in (("losses", of_losses, parameters), ("costs", of_costs, costs))
    }
    return learner.recall(seen_of(history), kept)
