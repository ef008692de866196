"""The stepwise reference method, in a world whose best algorithm of each step is planted."""

from simulation import Outcome, Simulation
from worlds import counted_space

from prefect_tune.optimizers import Query, make_optimizer
from prefect_tune.optimizers.trials.objective import Objective

BEST = ("a3", "a1", "a4", "a6")


def planted_loss(query: Query) -> Outcome:
    """Return the number of steps without the planted algorithm, and a small share of the values."""
    loss = 0.0
    for best, (_, choice) in zip(BEST, query.configuration.choices, strict=True):
        loss += (choice.algorithm != best) + 0.1 * dict(choice.values)["h0"]
    return loss, 1.0


def test_stepwise_search_chooses_the_model_first_and_then_tunes_the_chosen_pipeline() -> None:
    optimizer = make_optimizer("stepwise", counted_space((4, 2, 5, 7)), 0, Objective(), {})
    Simulation(optimizer, planted_loss, trials=40).run()
    paths = [t.query.configuration.path for t in optimizer.history]
    n_choices = 7 + 3 + 1 + 4  # the best pipeline so far is known at each later step
    assert {path[:3] for path in paths[:7]} == {("a0", "a0", "a0")}
    assert {path[3] for path in paths[7:n_choices]} == {BEST[3]}
    assert set(paths[n_choices:]) == {BEST}
