from contracts.optimizer import OptimizerContract
from worlds import mixed_space

from prefect_tune.optimizers import Budget


class TestRandomSearch(OptimizerContract):
    method = "random"
    margin = 0.0  # it is what the others are compared with
    margin_share = 0.0

    def test_nothing_is_asked_for_twice_while_there_is_something_new(self) -> None:
        optimizer = self.make(mixed_space())
        asked = [optimizer.ask(Budget()).configuration for _ in range(300)]
        assert len(set(asked)) == 300
        assert {c.path for c in asked} == set(mixed_space().paths())
