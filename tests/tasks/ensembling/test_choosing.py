"""One kind of ensemble, built on held-out predictions."""

import numpy as np
import pytest
from held_out_worlds import held_out_of, noisy_classes

from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.ensembling.choosing import KINDS, FitLimit, choose, predict_held_out
from prefect_tune.tasks.ensembling.held_out import HeldOut

BOOTSTRAPS = Bootstraps(200, 0.5)


def chosen(kind, held_out: HeldOut, size: int = 32):
    return choose(kind, held_out, size, BOOTSTRAPS, np.random.default_rng(0))


def voters(n: int = 20, skill: float = 0.7) -> HeldOut:
    y, predicted = noisy_classes(n, 90, skill, np.random.default_rng(0))
    return held_out_of(y, predicted, "error", fold=np.arange(90) % 3)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_losses_are_those_of_what_it_predicts(kind) -> None:
    held_out = voters()
    choice = chosen(kind, held_out)
    assert choice.kind == kind
    assert sum(choice.weights.values()) == pytest.approx(1)
    predicted = predict_held_out(choice, held_out)
    assert held_out.fold_losses(predicted).mean() == pytest.approx(choice.losses[-1])
    labels = np.array([np.concatenate([p.label for p in of]) for of in held_out.predictions])
    y = held_out.dataset.y[np.concatenate(held_out.rows)]
    weights = np.array([choice.weights.get(i, 0) for i in range(len(held_out))])
    assert (weights @ labels > 0.5).astype(int).tolist() == np.concatenate(
        [p.label for p in predicted]
    ).tolist()
    assert 100 * np.mean((weights @ labels > 0.5) != y) == pytest.approx(choice.losses[-1])


def test_greedy_selection_that_is_no_better_ends_in_the_best_alone() -> None:
    y = np.arange(30) % 2
    held_out = held_out_of(y, np.stack([1 - y, np.zeros(30, dtype=int), y]), "error")
    assert (chosen("greedy", held_out).kind, chosen("greedy", held_out).weights) == (
        "single", {2: 1.0},
    )  # fmt: skip
    assert chosen("agnostic", held_out).kind == "agnostic"  # whatever its loss


def test_greedy_selection_picks_as_many_as_it_may() -> None:
    held_out = voters(skill=0.6)
    few, many = chosen("greedy", held_out, 3), chosen("greedy", held_out)
    assert len(few.losses) <= 3 < len(many.losses)
    assert few.losses == many.losses[: len(few.losses)]
    best = int(held_out.losses.argmin())
    assert next(iter(many.weights)) == best


def test_an_agnostic_ensemble_has_the_heaviest_first() -> None:
    weights = list(chosen("agnostic", voters()).weights.values())
    assert weights == sorted(weights, reverse=True)
    assert len(weights) > 5


@pytest.mark.parametrize("kind", ["greedy", "agnostic"])
def test_members_fit_within_the_limit(kind) -> None:
    held_out = voters()
    rng = np.random.default_rng(0)
    seconds = np.random.default_rng(1).uniform(0.5, 2.0, len(held_out))
    limit = FitLimit(seconds, 4.0)
    choice = choose(kind, held_out, 32, BOOTSTRAPS, rng, limit=limit)
    free = chosen(kind, held_out)
    assert seconds[list(free.weights)].sum() > 4.0 >= seconds[list(choice.weights)].sum()
    assert sum(choice.weights.values()) == pytest.approx(1)
    predicted = predict_held_out(choice, held_out)
    assert held_out.fold_losses(predicted).mean() == pytest.approx(choice.losses[-1])


def test_a_single_model_is_judged_by_its_own_scores() -> None:
    y = np.array([0, 0, 1, 1, 0, 1])
    values = np.array([[-3.0, -2.5, -1.0, 0.5, -2.0, 2.0]])  # no probabilities; all in order
    held_out = held_out_of(y, np.stack([-values, values], axis=2), "auroc")
    choice = chosen("single", held_out)
    assert choice.losses == (0.0,)
    assert held_out.fold_losses(predict_held_out(choice, held_out)).tolist() == [0.0]
    assert held_out.fold_losses(held_out.blended(np.ones(1)))[0] > 0  # by votes


def test_rows_that_are_left_out_play_no_part() -> None:
    held_out = voters()
    is_kept = np.random.default_rng(1).random(90) < 0.6
    part = held_out.within(is_kept)
    assert np.concatenate(part.rows).size == is_kept.sum()
    for kept, rows in zip(part.rows, held_out.rows, strict=True):
        assert kept.tolist() == rows[is_kept[rows]].tolist()
    y = held_out.dataset.y
    first = zip(part.rows, part.predictions[0], strict=True)
    errors = [100 * np.mean(predicted.label != y[rows]) for rows, predicted in first]
    assert part.losses[0] == pytest.approx(np.mean(errors))
    assert part.losses[0] != held_out.losses[0]
