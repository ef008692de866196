"""Which algorithms make the sub-space G'."""

from flash_worlds import counted_space
from worlds import told

from prefect_tune.optimizers import History, Query
from prefect_tune.optimizers.methods.flash.phases import subspace_of
from prefect_tune.optimizers.space.configuration import default_configuration

SPACE = counted_space((4, 4))


def history_of(losses: dict[tuple[str, str], float | None]) -> History:
    history = History()
    for number, (path, loss) in enumerate(losses.items()):
        history.record(told(number, Query(default_configuration(SPACE, path)), loss))
    return history


def test_the_algorithms_of_the_paths_are_kept_in_the_order_of_the_space() -> None:
    kept = subspace_of(SPACE, [("a3", "a1"), ("a0", "a1")], History())
    assert kept == {"step0": ["a0", "a3"], "step1": ["a1"]}


def test_a_share_is_kept_besides_by_the_least_loss_seen_with_each_algorithm() -> None:
    history = history_of({
        ("a3", "a3"): 30.0, ("a2", "a0"): 20.0, ("a1", "a2"): 10.0, ("a0", "a2"): None,
    })  # fmt: skip
    kept = subspace_of(SPACE, [("a0", "a1")], history, 0.5)
    assert kept == {"step0": ["a0", "a1", "a2"], "step1": ["a0", "a1", "a2"]}
    assert subspace_of(SPACE, [("a0", "a1")], history, 0.75)["step0"] == ["a0", "a1", "a2", "a3"]


def test_of_a_small_share_two_are_kept_all_the_same() -> None:
    history = history_of({("a1", "a1"): 10.0, ("a2", "a2"): 20.0, ("a3", "a3"): 30.0})
    assert subspace_of(SPACE, [("a0", "a0")], history, 0.01)["step0"] == ["a0", "a1", "a2"]
