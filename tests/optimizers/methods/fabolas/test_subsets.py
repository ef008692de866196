import pytest
from subset_worlds.problems import configuration

from prefect_tune.optimizers import History, Query, Trial
from prefect_tune.optimizers.methods.fabolas.recipe import Subsets

HERE = configuration(0.5)


def asked(*queries: Query) -> History:
    history = History()
    for number, query in enumerate(queries):
        history.record(Trial(number, query))
    return history


def test_families_are_given_in_turn_and_full_queries_take_none() -> None:
    subsets, history = Subsets(3), History()
    for i, share in enumerate([0.25, 0.5, 1.0, 0.25, 0.25, 1.0, 0.25]):
        history.record(Trial(i, subsets.query(configuration(i / 10), share, history)))
    assert [t.query.subset_draw for t in history] == [0, 1, 0, 2, 0, 0, 1]


def test_a_configuration_has_another_family_each_time_it_comes_back_to_a_size() -> None:
    history = asked(Query(HERE, 0.25, 2), Query(configuration(0.1), 0.25, 0))
    # The turn is that of the family that it has had.
    assert Subsets(3).query(HERE, 0.25, history).subset_draw == 0
    assert Subsets(3).query(HERE, 0.5, history).subset_draw == 2


def test_with_all_families_taken_it_is_still_a_query() -> None:
    history = asked(Query(HERE, 0.25, 0), Query(HERE, 0.25, 1))
    assert Subsets(2).query(HERE, 0.25, history).subset_draw in (0, 1)


def test_small_subsets_are_on_the_first_folds_and_others_on_all_of_them() -> None:
    subsets = Subsets(folds=1)
    assert subsets.query(HERE, 0.125, History()).folds == 1
    assert subsets.query(HERE, 0.25, History()).folds is None
    assert subsets.query(HERE, 1.0, History()) == Query(HERE)
    assert Subsets().query(HERE, 0.125, History()).folds is None


@pytest.mark.parametrize(("n_draws", "share", "most"), [(3, 0.25, 3), (3, 1.0, 1), (1, 0.25, 1)])
def test_a_size_is_asked_for_as_often_as_it_has_families(
    n_draws: int, share: float, most: int
) -> None:
    assert Subsets(n_draws).most(share) == most
