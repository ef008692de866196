"""What is asked for next: confirmations, verifications, and what a search finds."""

from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest
from flash_worlds import counted_space
from numpy.typing import NDArray
from subset_worlds import (
    BEST,
    DEFAULT,
    ROWS,
    Result,
    belief_of,
    configuration,
    cube,
    history_of,
    position,
    seen_of,
)
from worlds import told

from prefect_tune.optimizers import Budget, Configuration, History, NotYet, Query, SpaceExhausted
from prefect_tune.optimizers.methods.fabolas.belief import (
    SubsetBelief,
    SubsetLearner,
    pipeline_inputs,
)
from prefect_tune.optimizers.methods.fabolas.decisions import AnswerStanding
from prefect_tune.optimizers.methods.fabolas.observations import SubsetObservations
from prefect_tune.optimizers.methods.fabolas.recipe import SearchRecipe, Sizes, Subsets
from prefect_tune.optimizers.methods.fabolas.search import ScoredCandidate, Search
from prefect_tune.optimizers.methods.fabolas.turn import FabolasTurn, Proposal
from prefect_tune.optimizers.space.candidate_space import Candidates

LINE = pipeline_inputs(cube())
FULL_SECONDS = 100.0


def on_subsets(*places: float, share: float = 1 / 64) -> list[Result]:
    """Results of a parabola about 0.4, in seconds that are proportional to the rows."""
    return [(x, share, (x - 0.4) ** 2 + 0.1, FULL_SECONDS * share) for x in places]


def in_full(*places: float) -> list[Result]:
    return [(x, 1.0, (x - 0.4) ** 2, FULL_SECONDS) for x in places]


FIRST = [*on_subsets(0.1, 0.42, 0.7, 0.9), *on_subsets(0.1, 0.5, share=1 / 8)]


def turn_of(
    history: History,
    *,
    budget: Budget | None = None,
    recipe: SearchRecipe = DEFAULT,
    seed: int = 0,
    parameters: dict[str, float] | None = None,
    **others: Any,
) -> FabolasTurn:
    belief = belief_of(history, recipe=recipe, parameters=parameters or {"lengthscale 0": log(0.4)})
    seen = seen_of(history)
    return FabolasTurn(
        inputs=LINE,
        sizes=Sizes.of(ROWS),
        recipe=recipe,
        history=history,
        budget=budget or Budget(),
        belief=belief,
        standing=AnswerStanding.of(belief, seen, LINE, history, recipe.kappa),
        rng=np.random.default_rng(seed),
        **{"gives_up_subsets": False, "is_proven": False, "n_first": 0, "n_confirmed": 0, **others},
    )


def proposal_of(history: History, **given: Any) -> Proposal:
    return turn_of(history, **given).proposal()


def best_places(turn: FabolasTurn, n: int = 3) -> list[float]:
    return [position(t.query)[0] for t in turn.standing.trials[:n]]


# Confirmations.
def test_when_nothing_may_be_begun_the_best_by_prediction_are_confirmed_in_their_order() -> None:
    results, confirmed = list(FIRST), list[float]()
    for n in range(3):
        turn = turn_of(history_of(*results), budget=Budget(trials_left=0), n_confirmed=n)
        proposal = turn.proposal()
        assert proposal.reason == "confirm"
        assert proposal.query == Query(proposal.query.configuration)
        (x,) = position(proposal.query)
        assert x == next(place for place in best_places(turn) if place not in confirmed)
        confirmed.append(x)
        results += in_full(x)
    with pytest.raises(SpaceExhausted, match="have ended"):
        proposal_of(history_of(*results), budget=Budget(trials_left=0), n_confirmed=3)


def test_no_more_are_confirmed_than_there_are_to_be_and_one_under_way_is_awaited() -> None:
    recipe = replace(DEFAULT, n_confirmed=1)
    history = history_of(*FIRST, *in_full(0.42))
    with pytest.raises(SpaceExhausted):
        proposal_of(history, recipe=recipe, budget=Budget(trials_left=0), n_confirmed=1)
    recipe = replace(DEFAULT, n_confirmed=1)
    history = history_of(*FIRST, pending=[(0.42, 1.0)])
    with pytest.raises(NotYet):
        proposal_of(history, recipe=recipe, budget=Budget(trials_left=0), n_confirmed=1)


def test_the_best_are_confirmed_once_the_seconds_left_are_what_that_takes() -> None:
    history = history_of(*FIRST)
    each = turn_of(history).belief.seconds(LINE.at(LINE.encode([configuration(0.42)]), 1.0))
    assert each[0] > 50
    one = float(each[0])
    late = proposal_of(history, budget=Budget(seconds_spent=40 * one, seconds_left=3 * one))
    early = proposal_of(history, budget=Budget(seconds_spent=40 * one, seconds_left=20 * one))
    assert late.reason == "confirm"
    assert early.reason != "confirm"


def test_workers_share_the_seconds_that_are_left() -> None:
    history = history_of(*FIRST)
    each = float(
        turn_of(history).belief.seconds(LINE.at(LINE.encode([configuration(0.42)]), 1.0))[0]
    )
    # One worker has time for much besides three confirmations, each of eight has not.
    one = proposal_of(history, budget=Budget(seconds_left=10 * each))
    eight = proposal_of(history, budget=Budget(seconds_left=10 * each, n_workers=8))
    assert one.reason != "confirm"
    assert eight.reason == "confirm"


# Verifications.
def test_an_unverified_leader_is_verified_once_subsets_have_cost_as_much() -> None:
    few = history_of(*FIRST)
    assert proposal_of(few).reason == "search"
    paid = history_of(*[(x, q, y, 10 * t) for x, q, y, t in FIRST], *in_full())
    belief = turn_of(paid).belief
    cheap = replace(belief, cost_scale=(log(5.0), *belief.cost_scale[1:]))
    turn = replace(turn_of(paid), belief=cheap)
    proposal = turn.proposal()
    assert proposal.reason == "verify"
    assert proposal.query == Query(turn.standing.trials[0].query.configuration)


def test_seconds_of_asking_pay_for_a_verification_and_the_first_trials_do_not() -> None:
    history = history_of(*FIRST)
    slow = Budget(last_ask_seconds=(500.0,) * 5)
    assert proposal_of(history, budget=slow).reason == "verify"
    history = history_of(*FIRST)
    slow = Budget(last_ask_seconds=(500.0,) * 5)
    assert proposal_of(history, budget=slow, n_first=0).reason == "verify"
    assert proposal_of(history, budget=slow, n_first=len(history)).reason == "search"


def test_a_leader_is_verified_once_and_not_while_that_is_under_way() -> None:
    slow = Budget(last_ask_seconds=(500.0,) * 5)
    (leader,) = best_places(turn_of(history_of(*FIRST)), 1)
    done = history_of(*FIRST, (leader, 1.0, 0.0, FULL_SECONDS))
    under_way = history_of(*FIRST, pending=[(leader, 1.0)])
    for history in (done, under_way):
        assert best_places(turn_of(history), 1) == [leader]
        proposal = proposal_of(history, budget=slow, recipe=replace(DEFAULT, verify_every=1))
        assert proposal.query != Query(configuration(leader))


# Queries.
@pytest.mark.slow
@pytest.mark.parametrize("seconds_left", [1.0, 5.0, 30.0])
def test_nothing_is_asked_for_that_cannot_end_in_time(seconds_left: float) -> None:
    recipe = replace(DEFAULT, n_confirmed=0)
    history = history_of(*FIRST)
    for seed in range(3):
        turn = turn_of(history, budget=Budget(seconds_left=seconds_left), recipe=recipe, seed=seed)
        query = turn.proposal().query
        s = float(turn.sizes.s(query.subset))
        predicted = turn.belief.seconds(LINE.at(LINE.encode([query.configuration]), s))
        assert predicted[0] <= seconds_left


def test_where_nothing_ends_in_time_nothing_is_left_to_ask_for() -> None:
    recipe = replace(DEFAULT, n_confirmed=0)
    with pytest.raises(SpaceExhausted, match="the budget"):
        proposal_of(history_of(*FIRST), budget=Budget(seconds_left=1e-3), recipe=recipe)
    with pytest.raises(NotYet):
        proposal_of(
            history_of(*FIRST, pending=[(0.3, 1 / 64)]),
            budget=Budget(seconds_left=1e-3),
            recipe=recipe,
        )


def test_what_is_under_way_is_imagined_at_its_place_and_size(monkeypatch) -> None:
    imagined = []
    drawn = SubsetBelief.with_outcomes_drawn

    def watched(self: SubsetBelief, inputs: np.ndarray, rng: np.random.Generator) -> SubsetBelief:
        imagined.append(inputs.tolist())
        return drawn(self, inputs, rng)

    monkeypatch.setattr(SubsetBelief, "with_outcomes_drawn", watched)
    proposal_of(history_of(*FIRST, pending=[(0.3, 1 / 8), (0.6, 1.0)]))
    s = float(Sizes.of(ROWS).s(1 / 8))
    assert imagined == [[[0.3, pytest.approx(s)], [0.6, 1.0]]]


def test_after_the_confirmations_of_a_short_rest_only_all_rows_are_asked_for() -> None:
    history = history_of(*FIRST, *in_full(0.1, 0.5, 0.9))
    seconds = Budget(seconds_spent=1e6, seconds_left=1e5)
    for seed in range(3):
        rest = proposal_of(history, budget=seconds, n_confirmed=3, seed=seed)
        assert rest.query.is_full
        assert rest.reason != "confirm"


def test_subsets_that_are_given_up_are_not_asked_for() -> None:
    history = history_of(*FIRST, *in_full(0.1, 0.5, 0.9))
    for seed in range(3):
        proposal = proposal_of(history, gives_up_subsets=True, seed=seed)
        assert proposal.query.is_full
        assert proposal.reason in ("improve", "verify")
        assert proposal.query.configuration not in {
            t.query.configuration for t in history if t.query.is_full
        }


def test_a_configuration_goes_upwards_only() -> None:
    history = history_of(*FIRST, *in_full(0.1))
    turn = turn_of(history, recipe=replace(DEFAULT, subsets=Subsets(2)))
    rows = [configuration(x) for x in (0.1, 0.42, 0.5)]
    found = turn.inputs.encode(rows)
    shares = turn.sizes.shares
    scores = np.ones((len(rows), len(shares)))
    from_search = ScoredCandidate(found, scores, scores)
    asked = {(position(q)[0], q.subset) for q in turn._queries(from_search, shares)}
    assert {q for x, q in asked if x == 0.1} == set()
    # Another family of the largest size so far, and all sizes above it.
    assert {q for x, q in asked if x == 0.42} == {q for q in shares if q >= 1 / 64}
    assert {q for x, q in asked if x == 0.5} == {q for q in shares if q >= 1 / 8}
    single = turn_of(history)
    above = {(position(q)[0], q.subset) for q in single._queries(from_search, shares)}
    assert {q for x, q in above if x == 0.42} == {q for q in shares if q > 1 / 64}


def test_what_failed_on_a_subset_does_not_come_back_to_its_size() -> None:
    history = history_of(*FIRST, (0.3, 1 / 64, None, 1.0))
    turn = turn_of(history, recipe=replace(DEFAULT, subsets=Subsets(3)))
    scores = np.ones((1, len(turn.sizes.shares)))
    found = ScoredCandidate(turn.inputs.encode([configuration(0.3)]), scores, scores)
    asked = {q.subset for q in turn._queries(found, turn.sizes.shares)}
    assert asked == {q for q in turn.sizes.shares if q > 1 / 64}


LEVELS = np.array([0.25, 0.5, 0.75, 1.0])
SMOOTH = {"lengthscale 0": log(0.3)}


def parabola(*, of_x: float = 0.0, drop: float = 60.0) -> list[Result]:
    """Results about 0.5; seconds rise with x by e^of_x, and by the drop from s = 0 to 1."""
    return [
        (x, 256 ** (s - 1), (x - 0.5) ** 2, float(np.exp(of_x * x)) * drop**s)
        for x in (0.1, 0.3, 0.5, 0.7, 0.9)
        for s in (0.25, 0.5)
    ] + [(x, 1.0, (x - 0.5) ** 2, float(np.exp(of_x * x)) * drop) for x in (0.0, 1.0)]


def search_in(belief: SubsetBelief, seed: int = 0, sizes: NDArray[np.float64] = LEVELS) -> Search:
    return Search(
        LINE,
        belief,
        sizes=sizes,
        evaluated=LINE.encode([configuration(0.1), configuration(0.9)]),
        best=0.0,
        rng=np.random.default_rng(seed),
    )


def run(belief, acquisition="gain_per_cost", overhead=0.0, seed=0) -> ScoredCandidate:
    return search_in(belief, seed).run(acquisition, overhead)


def seconds_of(belief: SubsetBelief, candidates: Candidates) -> NDArray[np.float64]:
    columns = [belief.seconds(LINE.at(candidates, float(s))) for s in LEVELS]
    return np.column_stack(columns)


def test_the_best_comes_first_and_what_is_not_to_be_asked_for_never() -> None:
    scores = np.array([[0.1, -np.inf], [0.3, 0.2], [-np.inf, 0.4]])
    candidates = Candidates(np.zeros((3, 1), dtype=np.intp), np.zeros((3, 1)))
    found = ScoredCandidate(candidates, scores, scores)
    assert list(found.best_first()) == [(2, 1), (1, 0), (1, 1), (0, 0)]


def test_information_is_divided_by_seconds_with_the_overhead() -> None:
    belief = belief_of(history_of(*parabola()), parameters=SMOOTH)
    found = run(belief, overhead=3.0)
    seconds = seconds_of(belief, found.candidates)
    assert seconds.max() > 10 * seconds.min()
    np.testing.assert_allclose(found.scores, found.gains / (seconds + 3.0))


def test_divergence_takes_the_cheapest_subset_where_information_takes_what_tells() -> None:
    # Curves of configurations have little in common, so small subsets tell next to nothing.
    unlike = {**SMOOTH, "ln of the second weight": 3.0, "noise variance": log(1e-4)}
    belief = belief_of(history_of(*parabola(drop=4.0)), parameters=unlike)
    gain, divergence = run(belief), run(belief, "divergence_per_cost")
    assert LEVELS[next(gain.best_first())[1]] == 1.0
    assert LEVELS[next(divergence.best_first())[1]] == LEVELS[0]
    constant = divergence.scores * seconds_of(belief, divergence.candidates) - divergence.gains
    # ln R - H, whatever the candidate and the size.
    assert np.ptp(constant) < 1e-9
    assert constant.min() > 0


def test_improvement_is_sought_on_all_rows_alone() -> None:
    belief = belief_of(history_of(*parabola()), parameters=SMOOTH)
    found = run(belief, "improvement")
    assert (found.scores[:, :-1] == -np.inf).all()
    assert np.isfinite(found.scores[:, -1]).all()
    assert (found.gains[:, -1] > 0).all()
    assert {level for _, level in found.best_first()} == {len(LEVELS) - 1}
    row, _ = next(found.best_first())
    assert abs(found.candidates.units[row, 0] - 0.5) < 0.2


def test_improvement_is_divided_by_seconds_where_they_are_learned_and_only_there() -> None:
    history = history_of(*parabola(of_x=4.0))
    belief = belief_of(history, parameters=SMOOTH)
    with_costs, without = run(belief, "improvement", 1.0), run(
        belief_of(
            history,
            recipe=SearchRecipe(
                log_basis=DEFAULT.log_basis,
                raw_basis=DEFAULT.raw_basis,
                acquisition="improvement",
            ),
            parameters=SMOOTH,
        ),
        "improvement",
        1.0,
    )  # fmt: skip
    np.testing.assert_allclose(without.scores[:, -1], np.log(without.gains[:, -1]))
    seconds = seconds_of(belief, with_costs.candidates)[:, -1] + 1.0
    divided = np.log(with_costs.gains[:, -1] / seconds)
    np.testing.assert_allclose(with_costs.scores[:, -1], divided)


def test_more_results_leave_less_to_learn() -> None:
    results = parabola()
    entropies = []
    more: list[Result] = [(x, 1.0, (x - 0.5) ** 2, 60.0) for x in (0.4, 0.45, 0.5, 0.55, 0.6)]
    for history in (history_of(*results), history_of(*results, *more)):
        search = search_in(belief_of(history, parameters={**SMOOTH, "noise variance": log(1e-5)}))
        search.run("gain_per_cost", 0.0)
        entropies.append(search.entropy)
    assert entropies[1] < entropies[0] - 0.3


def test_the_best_model_is_told_with_its_probability() -> None:
    space = counted_space((2,))
    history, rng = History(ROWS.constraints), np.random.default_rng(0)
    for number in range(16):
        x = float(rng.random())
        chosen = Configuration.of(space, (f"a{number % 2}",), [{"h0": x}])
        history.record(told(number, Query(chosen), (x - BEST) ** 2 + 2.0 * (number % 2)))
    inputs, sizes = pipeline_inputs(space), Sizes.of(ROWS)
    seen = SubsetObservations.of(history, sizes, inputs, 1)
    learner = SubsetLearner(inputs, DEFAULT, ROWS, inference="map", n_samples=1)
    belief, _ = learner.learn(seen, {}, rng)
    best = inputs.encode([history[0].query.configuration])
    search = Search(inputs, belief, sizes=LEVELS, evaluated=best, best=-1.0, rng=rng)
    assert search.models() == {}
    search.run("gain_per_cost", 0.0)
    models = search.models()
    assert models.keys() == {"a0", "a1"}
    assert sum(models.values()) == pytest.approx(1.0, abs=1e-3)
    assert models["a0"] > 0.9


def test_candidates_gather_around_the_best_one() -> None:
    belief = belief_of(history_of(*parabola()), parameters=SMOOTH)
    for seed in range(3):
        found = run(belief, "gain", seed=seed)
        x = found.candidates.units[:, 0]
        row, _ = next(found.best_first())
        assert np.mean(np.abs(x - x[row]) < 0.1) > 0.25  # about 0.1 without refinement
