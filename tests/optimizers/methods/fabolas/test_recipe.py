import pytest

from prefect_tune.optimizers.methods.fabolas.recipe import Acquisition, SearchRecipe
from prefect_tune.optimizers.methods.fabolas.sizes import FULL, LOG_LOSS


@pytest.mark.parametrize(
    ("acquisition", "has_costs"),
    [
        ("gain_per_cost", True),
        ("divergence_per_cost", True),
        ("gain", False),
        ("improvement", False),
    ],
)
def test_seconds_are_learned_where_they_divide(acquisition: Acquisition, has_costs: bool) -> None:
    recipe = SearchRecipe(log_basis=LOG_LOSS, raw_basis=LOG_LOSS, acquisition=acquisition)
    assert recipe.has_costs is has_costs


def test_on_all_rows_there_is_nothing_to_verify_to_confirm_or_to_give_up() -> None:
    recipe = SearchRecipe.on_all_rows(FULL, "gain")
    assert recipe.log_basis is recipe.raw_basis is FULL
    assert (recipe.verify_every, recipe.n_confirmed, recipe.has_gate) == (None, 0, False)
    assert not recipe.has_falling_noise
    assert recipe.kappa == 0
