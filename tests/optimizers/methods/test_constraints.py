"""Methods whose search takes constraints into account."""

from dataclasses import replace

import numpy as np
import pytest
from ConfigSpace import Float
from worlds import counted_space, one_algorithm, recorded, told

from prefect_tune.optimizers import (
    METHODS,
    Budget,
    Configuration,
    Constraint,
    Evaluation,
    History,
    Objective,
    Query,
    Trial,
    make_optimizer,
)
from prefect_tune.optimizers.trials.history import excesses, worst_excess

LINE = one_algorithm(Float("x", (0.0, 1.0), default=1.0))
BOUNDED = Objective("share", "", 0.0, 1.0, constraints=(Constraint("size", 100.0),))


@pytest.mark.parametrize("method", ["flash", "admm", "smac", "tpe", "jopt", "esmbo"])
def test_proposals_are_feasible_although_losses_fall_beyond_the_bound(method: str) -> None:
    """The size is at most 100 in a tenth of the space, and 1,000 at the lowest loss."""
    optimizer = make_optimizer(method, LINE, 0, BOUNDED, {})
    n, places = 30, []
    for number in range(n):
        query = optimizer.ask(Budget(trials_spent=number, trials_left=n - number))
        x = float(query.configuration["s"].values[0][1])
        outcome = Evaluation(1 - x, (1 - x,), constraints={"size": 1000 * x})
        optimizer.tell(Trial(number, query).started().completed(outcome))
        places.append(x)
    assert METHODS[method].honors_constraints
    assert np.mean(np.array(places[-15:]) < 0.15) >= 0.4
    assert max(x for x in places if x <= 0.1) > 0.08


def test_paths_of_the_second_phase_of_flash_are_feasible() -> None:
    """The size of a path is the sum of its numbers, and its loss falls with the size."""
    objective = replace(BOUNDED, constraints=(Constraint("size", 3.0),))
    options = {"n_init": 11, "n_prune": 9}
    optimizer = make_optimizer("flash", counted_space((6, 6)), 0, objective, options)
    sizes = []
    for number in range(20):
        query = optimizer.ask(Budget(trials_spent=number, trials_left=20 - number))
        sizes.append(sum(int(name[1:]) for name in query.configuration.path))
        loss = 1 - sizes[-1] / 10
        outcome = Evaluation(loss, (loss,), constraints={"size": float(sizes[-1])})
        optimizer.tell(Trial(number, query).started().completed(outcome))
    assert np.mean(sizes[-9:]) < 5


def sized(*sizes: float | None, bound: float = 100.0) -> History:
    """Return a history of trials with these sizes; the size of a failed trial is None."""
    query = Query(Configuration.of(LINE, ("a",), [{"x": 0.5}]))
    trials = []
    for number, size in enumerate(sizes):
        measured = {} if size is None or np.isnan(size) else {"size": size}
        outcome = Evaluation(0.5, (0.5,), constraints=measured)
        trial = Trial(number, query).started().completed(outcome)
        trials.append(told(number, query, None) if size is None else trial)
    return recorded(*trials, constraints=(Constraint("size", bound),))


@pytest.mark.parametrize(
    ("sizes", "bound", "excess"),
    [
        ((50.0, 300.0), 100.0, [-0.5, 2.0]),
        # An undefined quantity is infeasible, and a failed trial counts as typical.
        ((50.0, 60.0, np.nan), 100.0, [-0.5, -0.4, 1.0]),
        ((50.0, 300.0, np.nan, None), 100.0, [-0.5, 2.0, 2.0, 0.75]),
        # With a bound of 0, the unit of the quantity does not matter.
        ((0.0, 4.0, 8.0), 0.0, [0.0, 4 / 6, 8 / 6]),
        ((0.0, 4e6, 8e6), 0.0, [0.0, 4 / 6, 8 / 6]),
        ((None,), 100.0, [0.0]),
    ],
)
def test_excesses_are_relative_to_the_bound(sizes, bound, excess) -> None:
    history = sized(*sizes, bound=bound)
    assert excesses(history, list(history))[:, 0] == pytest.approx(excess)
    logs = [np.sign(e) * np.log(1 + abs(e)) for e in excess]
    assert worst_excess(history, list(history)) == pytest.approx(logs)


def test_most_exceeded_of_several_bounds_counts() -> None:
    outcome = Evaluation(0.5, (0.5,), constraints={"size": 300.0, "time": 3.0})
    trial = replace(sized(50.0)[0], evaluation=outcome)
    history = recorded(trial, constraints=(Constraint("size", 100.0), Constraint("time", 2.0)))
    assert worst_excess(history, [trial]) == pytest.approx(np.log([3.0]))


def test_worst_loss_is_improved_on_until_a_trial_is_feasible() -> None:
    history = sized(300.0, 400.0)
    better = replace(history[0].evaluation, loss=0.2, fold_losses=(0.2,))
    history.record(replace(history[0], evaluation=better))
    assert history.loss_to_improve == 0.5
    history.record(sized(None, None, 50.0)[2])
    assert history.loss_to_improve == 0.5
    assert not worst_excess(recorded(*history), list(history)).any()


def test_tpe_ranks_excesses_in_the_unit_of_the_losses() -> None:
    ranked = []
    for unit in (1.0, 2.0**20):
        optimizer = make_optimizer("tpe", LINE, 0, BOUNDED, {"n_startup": 1})
        for number, (loss, size) in enumerate([(0.5 * unit, 300.0), (0.25 * unit, 50.0)]):
            query = optimizer.ask(Budget(trials_spent=number))
            outcome = Evaluation(loss, (loss,), constraints={"size": size})
            optimizer.tell(Trial(number, query).started().completed(outcome))
        optimizer.ask(Budget(trials_spent=2))
        ranked.append([known.value / unit for known in optimizer._known.values()])
    assert ranked[0] == ranked[1] == [0.5 + 0.25 * np.log(3), 0.25]
