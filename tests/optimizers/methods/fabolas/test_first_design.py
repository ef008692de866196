from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from worlds import mixed_space, told

from prefect_tune.optimizers import (
    Budget,
    Configuration,
    Constraint,
    Evaluation,
    Failure,
    FailureKind,
    Objective,
    Query,
    Trial,
    make_optimizer,
)
from prefect_tune.optimizers.methods.fabolas.first_design import (
    BeginAlgorithm,
    FirstDesign,
    ScatteredDesign,
    Step,
)
from prefect_tune.optimizers.methods.fabolas.recipe import Sizes
from prefect_tune.optimizers.methods.rungs import Done, Promote, Wait
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import new_configuration
from prefect_tune.optimizers.trials.history import History

SPACE = mixed_space()
LARGE = Sizes.of(Objective(n_rows=50_000, n_classes=10, n_rarest=4_000))
SIXTEENTHS = Sizes.of(Objective(n_rows=800, n_classes=2, n_rarest=400))
EIGHTHS = Sizes.of(Objective(n_rows=400, n_classes=2, n_rarest=200))
SINGLE = Sizes.of(Objective(n_rows=100, n_classes=2, n_rarest=50))


@dataclass
class World:
    """A history that a design fills, with outcomes by configuration and share."""

    design: FirstDesign
    loss: Callable[[int, float], float | None] = lambda n, _: float(n)
    history: History = field(default_factory=History)
    numbers: dict[Configuration, int] = field(default_factory=dict)

    def ask(self, *, may_begin: bool = True) -> Step:
        step = self.design.next(self.history, may_begin=may_begin)
        if isinstance(step, BeginAlgorithm):
            rng = np.random.default_rng(len(self.history))
            configuration = new_configuration(SPACE, self.history.asked, rng)
            self.add(configuration, step.level)
        elif isinstance(step, Promote):
            self.add(step.configuration, step.level)
        return step

    def begin(self, n: int) -> None:
        for _ in range(n):
            self.ask()

    def add(self, configuration: Configuration, share: float) -> Trial:
        self.numbers.setdefault(configuration, len(self.numbers))
        self.history.record(Trial(len(self.history), Query(configuration, share)))
        return self.history[len(self.history) - 1]

    def tell(self, number: int) -> None:
        query = self.history[number].query
        loss = self.loss(self.numbers[query.configuration], query.subset)
        self.history.record(told(number, query, loss))

    def tell_all(self) -> None:
        for trial in self.history.pending:
            self.tell(trial.number)

    def run(self, n_workers: int = 1) -> "World":
        rng = np.random.default_rng(0)
        for _ in range(200):
            step: Step = Done()
            while len(self.history.pending) < n_workers and len(self.history) < 100:
                step = self.ask()
                if isinstance(step, Wait | Done):
                    break
            if not self.history.pending:
                assert isinstance(step, Done)
                return self
            self.tell(int(rng.choice([t.number for t in self.history.pending])))
        pytest.fail("the design does not end")

    def asked(self) -> list[tuple[int, float]]:
        """Of each trial, the number of its configuration and its share."""
        return [(self.numbers[t.query.configuration], t.query.subset) for t in self.history]

    def per_share(self) -> dict[float, int]:
        return dict(Counter(t.query.subset for t in self.history))


def test_the_best_half_of_each_rung_is_promoted_and_the_winner_gets_all_rows() -> None:
    world = World(FirstDesign.of(LARGE), lambda n, _: float(-n)).run()
    assert world.asked() == [
        *((n, 1 / 64) for n in range(10)),
        *((n, 1 / 32) for n in (9, 8, 7, 6, 5)),
        *((n, 1 / 16) for n in (9, 8, 7)),
        *((n, 1 / 8) for n in (9, 8)),
        (9, 1.0),
    ]


def test_the_ranks_follow_the_rung_that_was_reached() -> None:
    def loss(n: int, share: float) -> float:
        return float(n if share < 1 / 8 else -n)

    assert World(FirstDesign.of(LARGE), loss).run().asked()[-1] == (1, 1.0)


@pytest.mark.parametrize(
    ("sizes", "shares", "counts"),
    [
        (LARGE, (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1.0), (10, 5, 3, 2, 1)),
        (SIXTEENTHS, (1 / 16, 1 / 8, 1 / 4, 1.0), (10, 5, 3, 1)),
        (EIGHTHS, (1 / 8, 1 / 4, 1.0), (10, 5, 1)),
        (SINGLE, (1.0,), (10,)),
    ],
)
def test_fewer_sizes_make_fewer_rungs(sizes, shares, counts) -> None:
    design = FirstDesign.of(sizes)
    assert (design.shares, design.counts) == (shares, counts)
    assert World(design).run().per_share() == dict(zip(shares, counts, strict=True))


def test_each_algorithm_begins_as_often_as_the_others_in_an_order_of_the_seed() -> None:
    design = FirstDesign.of(LARGE, n_algorithms=7, seed=3)
    world = World(design)
    begun = [step for _ in range(14) if isinstance(step := world.ask(), BeginAlgorithm)]
    drawn = [step.algorithm for step in begun]
    assert sorted(drawn[:7]) == list(range(7))
    assert drawn[7:] == drawn[:7]
    assert [s.has_defaults for s in begun] == [True] * 7 + [False] * 7
    orders = {FirstDesign.of(LARGE, n_algorithms=7, seed=s).algorithms for s in range(5)}
    assert len(orders) > 1


def test_a_free_worker_begins_more_until_there_are_twice_as_many() -> None:
    world = World(FirstDesign.of(LARGE))
    world.begin(10)
    for number in range(1, 10):
        world.tell(number)
    assert isinstance(world.ask(), BeginAlgorithm)  # the tenth trial
    world.tell(10)
    assert world.ask() == Promote(world.history[1].query.configuration, 1 / 32)
    world = World(FirstDesign.of(LARGE))
    steps = [world.ask() for _ in range(21)]
    assert [type(s) for s in steps] == [*[BeginAlgorithm] * 20, Wait]
    for number in range(10):
        world.tell(number)
    assert isinstance(world.ask(), Promote)


def test_without_trials_left_the_rungs_are_decided_with_those_that_there_are() -> None:
    world = World(FirstDesign.of(LARGE))
    world.begin(4)
    assert world.ask(may_begin=False) == Wait()
    while not isinstance(world.ask(may_begin=False), Done):
        world.tell_all()
    assert world.per_share() == {1 / 64: 4, 1 / 32: 2, 1 / 16: 1, 1 / 8: 1, 1.0: 1}


def test_failed_configurations_are_promoted_after_all_others() -> None:
    world = World(FirstDesign.of(LARGE), lambda n, s: float(n) if n in (4, 6) or s > 0.02 else None)
    world.run()
    assert [n for n, share in world.asked() if share == 1 / 32] == [4, 6, 0, 1, 2]
    assert world.asked()[-2:] == [(1, 1 / 8), (4, 1.0)]  # 0 and 1 have failed before


def test_a_configuration_over_the_time_limit_is_not_promoted() -> None:
    world = World(FirstDesign.of(LARGE), lambda n, _: float(n) if n in (4, 6) else None)
    world.begin(10)
    for trial in world.history.pending:
        world.tell(trial.number)
        if (failed := world.history[trial.number]).failure:
            world.history.record(failed.failed(Failure(FailureKind.TIMEOUT, "took too long")))
    world.run()
    assert world.asked()[10:] == [
        *((n, 1 / 32) for n in (4, 6)),
        *((n, 1 / 16) for n in (4, 6)),
        *((n, 1 / 8) for n in (4, 6)),
        (4, 1.0),
    ]


def test_when_a_rung_fails_the_best_below_is_seen_on_all_rows_and_at_last_it_is_done() -> None:
    world = World(FirstDesign.of(LARGE), lambda n, s: None if s == 1 / 8 else float(n)).run()
    assert world.asked()[-3:] == [(0, 1 / 8), (1, 1 / 8), (2, 1.0)]
    world = World(FirstDesign.of(LARGE), lambda *_: None).run()
    assert world.per_share() == {1 / 64: 10, 1 / 32: 5, 1 / 16: 3, 1 / 8: 2}


@pytest.mark.parametrize(
    ("latencies", "promoted"), [([60.0] * 6 + [40.0] * 4, [6, 7]), ([60.0] * 10, [0, 1, 2, 3, 4])]
)
def test_violating_configurations_are_promoted_only_if_all_violate(latencies, promoted) -> None:
    world = World(FirstDesign.of(LARGE), history=History([Constraint("latency_us", 50.0)]))
    world.begin(10)
    for trial, latency in zip(world.history.pending, latencies, strict=True):
        seen = Evaluation(float(trial.number), constraints={"latency_us": latency})
        world.history.record(trial.ended(seen))
    world.run()
    assert [n for n, share in world.asked() if share == 1 / 32] == promoted


def test_a_configuration_as_bad_as_chance_is_not_promoted() -> None:
    world = World(FirstDesign.of(LARGE), lambda n, _: float(8 + n) if n < 3 else 90.0).run()
    assert [n for n, share in world.asked() if share == 1 / 32] == [0, 1, 2]


def test_each_model_begins_with_its_defaults_and_nothing_before_it_where_that_can_run() -> None:
    objective = Objective(n_rows=9_000, n_classes=2, n_rarest=3_000)
    optimizer = make_optimizer("fabolas", SPACE, 0, objective, {"n_first": 6})
    asked = [optimizer.ask(Budget()).configuration for _ in range(6)]
    plain = {default_configuration(SPACE, ("none", model)) for model in ("tree", "bayes")}
    assert plain <= set(asked[:3])  # the other one needs something before it
    assert sorted(c.path[-1] for c in asked[:3]) == ["bayes", "svm", "tree"]
    assert len(set(asked)) == 6


LOSSES = (1.0, 2.0, 5.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 100.0)


@pytest.mark.parametrize(
    ("losses", "promoted"),
    [(LOSSES, 3), (tuple(x - 2 for x in LOSSES), 5)],
    ids=["above 0", "not above 0"],
)
def test_a_loss_nearer_to_the_worst_in_logarithms_is_not_promoted(
    losses: tuple[float, ...], promoted: int
) -> None:
    world = World(FirstDesign.of(LARGE), lambda n, _: losses[n]).run()
    assert [n for n, share in world.asked() if share == 1 / 32] == list(range(promoted))


def test_two_of_each_algorithm_begin_at_least() -> None:
    assert FirstDesign.of(LARGE, n_first=4, n_algorithms=7).counts[0] == 14
    assert FirstDesign.of(LARGE, n_first=20, n_algorithms=7).counts[0] == 20


def test_scattered_configurations_begin_on_each_small_size_in_turn() -> None:
    design = ScatteredDesign.of(LARGE, n_first=6)
    world = World(design)  # type: ignore[arg-type]
    begun = [step for _ in range(7) if isinstance(step := world.ask(), BeginAlgorithm)]
    assert [step.level for step in begun] == [1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 64, 1 / 32]
