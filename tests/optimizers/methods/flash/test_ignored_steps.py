"""FLASH where algorithms ignore steps: of equal paths it knows one."""

import numpy as np
import pytest
from worlds import ignoring_space, told

from prefect_tune.optimizers import Budget, Objective, Space, make_optimizer
from prefect_tune.optimizers.methods.flash.phases import subspace_of
from prefect_tune.optimizers.paths.table import PathTable
from prefect_tune.optimizers.trials.history import History
from prefect_tune.tasks.catalogue.spaces import SPACES

BUDGET = Budget(trials_left=80)


def loss_of(path: tuple[str, ...]) -> float:
    """Boosted trees and trees are best, whatever stands before them."""
    return 1.0 + len(path[-1]) / 10 + sum(map(len, path[:-1])) / 100


@pytest.mark.parametrize("variant", ["default", "paper"])
@pytest.mark.parametrize("space", [ignoring_space(), SPACES["modern"]], ids=lambda s: s.name)
def test_all_phases_ask_canonical_paths_only(space: Space, variant: str) -> None:
    given = {} if variant == "default" else {"variant": "paper"}
    flash = make_optimizer("flash", space, 0, Objective(), {"n_init": 12, "n_prune": 6, **given})
    for number in range(26):
        query = flash.ask(BUDGET)
        path = query.configuration.path
        assert space.settled(path) == path
        flash.tell(told(number, query, loss_of(path)))
    decisions = flash.decisions
    assert decisions["phase"] == 3
    assert all(space.canonical(tuple(path)) == tuple(path) for path in decisions["design"])
    assert all(space.is_feasible(tuple(row["path"])) for row in decisions["ranking"] or ())


def test_a_sub_space_holds_what_does_nothing_for_models_that_ignore_steps() -> None:
    space = ignoring_space()
    kept = subspace_of(space, [("mean", "unit", "none", "svm")], History())
    assert kept == {"impute": ["mean"], "scale": ["unit"], "select": ["none"], "model": ["svm"]}
    history = History()
    both = [("mean", "unit", "none", "svm"), ("none", "none", "none", "tree")]
    kept = subspace_of(space, both, history)
    part = space.restricted_to(kept)
    assert set(both) <= set(part.paths())


def test_the_rank_is_that_of_the_paths_there_are() -> None:
    table = PathTable(ignoring_space(), 0, {})
    assert len(table) == 13
    assert table.rank == np.linalg.matrix_rank(table.one_hot)
    assert table.rank < sum(len(s.algorithms) for s in ignoring_space().searched) - 3
    plain = [table.paths[i] for i in table.plain]
    assert plain == [
        ("none", "none", "none", "tree"),
        ("mean", "none", "none", "bayes"),
        ("mean", "none", "none", "svm"),
    ]


def test_a_model_whose_plain_path_cannot_run_is_seen_by_the_one_most_like_it() -> None:
    space = SPACES["modern_healthcare"]
    table = PathTable(space, 0, {})
    plain = [table.paths[i] for i in table.plain]
    assert [path[-1] for path in plain] == [a.id for a in space.steps[-1].algorithms]
    assert plain[0][1:] == ("to_dense", "none", "none", "none", "hist_gradient_boosting")
