"""What is believed of losses and seconds on all sizes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from subset_worlds import configuration, cube
from worlds import mixed_space, recorded

from prefect_tune.optimizers import Configuration, Evaluation, Objective, Query, Space, Trial
from prefect_tune.optimizers.acquisitions.entropy import (
    Minimiser,
    information_gain,
    whitened_normals,
)
from prefect_tune.optimizers.methods.fabolas import belief as belief_module
from prefect_tune.optimizers.methods.fabolas.belief import (
    SubsetBelief,
    SubsetLearner,
    pipeline_inputs,
)
from prefect_tune.optimizers.methods.fabolas.inference import EVERYTHING, Inference, Posterior
from prefect_tune.optimizers.methods.fabolas.observations import LossScale, SubsetObservations
from prefect_tune.optimizers.methods.fabolas.recipe import (
    COST,
    FULL,
    LOG_LOSS,
    RAW_LOSS,
    SearchRecipe,
    Sizes,
)
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.surrogates.fidelity_kernel import FidelityKernel, Latents
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import ConstantNoise, FallingNoise, Matern52

SIZES = Sizes(100, 50_000, (1 / 512, 1 / 64, 1 / 8, 1.0))
ERROR = Objective(n_held_out=1000)
AUROC = Objective("auroc", unit="", upper=1.0)
RECIPE = SearchRecipe(log_basis=LOG_LOSS, raw_basis=RAW_LOSS)
PLANE = cube(2)


def plane_trials(n: int, seed: int = 0) -> list[Trial]:
    """At random in the plane on four small sizes, losses and seconds as powers of the rows.

    Seconds are c = 2e-7 n^1.8 e^(x1 / 2) (Fabolas sheet, T11).
    """
    rng = np.random.default_rng(seed)
    trials = []
    for number in range(n):
        x, rows = rng.random(2), (781, 1562, 3125, 6250)[number % 4]
        loss = 100 * rows**-0.3 * (0.5 + (x[0] - 0.4) ** 2 + (x[1] - 0.6) ** 2)
        seconds = 2e-7 * rows**1.8 * np.exp(0.5 * x[0])
        outcome = Evaluation(float(loss), (), float(seconds), float(seconds))
        trials.append(Trial(number, Query(configuration(tuple(x)), rows / 50_000)).ended(outcome))
    return trials


def in_full(number: int, x: float, loss: float, seconds: float = 60.0) -> Trial:
    return Trial(number, Query(configuration((x, 0.5)))).ended(
        Evaluation(loss, (), seconds, seconds)
    )


INPUTS = pipeline_inputs(PLANE)
CENTRE = INPUTS.at(INPUTS.encode([configuration((0.5, 0.5))]), 1)


def seen_of(trials: list[Trial], n_folds: int = 1, space: Space = PLANE) -> SubsetObservations:
    return SubsetObservations.of(recorded(*trials), SIZES, pipeline_inputs(space), n_folds)


def learner(
    recipe: SearchRecipe = RECIPE,
    objective: Objective = ERROR,
    *,
    inference: Inference = "map",
    n_samples: int = 1,
    subset_folds: int | None = None,
    space: Space = PLANE,
) -> SubsetLearner:
    return SubsetLearner(
        pipeline_inputs(space),
        recipe,
        objective,
        inference=inference,
        n_samples=n_samples,
        subset_folds=subset_folds,
    )


def learned(of, trials, kept=None, **options) -> tuple[SubsetBelief, dict[str, Any]]:
    return of.learn(seen_of(trials), kept or {}, np.random.default_rng(0), **options)


def posterior(theta_seed: int) -> Posterior:
    rng = np.random.default_rng(theta_seed)
    kernel = FidelityKernel(Matern52([0, 1]), 2, LOG_LOSS)
    theta = np.append(rng.normal(-0.4, 0.5, len(kernel.parameters)), rng.normal(-3, 1, 2))
    data = np.random.default_rng(0)
    process = GaussianProcess.given(
        kernel, theta, data.random((6, 3)), data.normal(size=6), mean=0.0, noise=FallingNoise(2)
    )
    return Posterior({EVERYTHING: process})


SAMPLES = tuple(posterior(seed) for seed in range(4))
MIXTURE = SubsetBelief(
    SAMPLES, None, LossScale(0.05, mean=1.5, deviation=2.0), (0.0, 1.0, 0.0, 0.0), LOG_LOSS
)
ROWS = np.random.default_rng(5).random((3, 3))


def test_predictions_form_a_mixture_and_outcomes_scatter_by_the_noise() -> None:
    means, variances = np.array([sample.predict(ROWS) for sample in SAMPLES]).transpose(1, 0, 2)
    mean, deviation = MIXTURE.predict(ROWS)
    assert mean == pytest.approx(means.mean(axis=0))
    second = (variances + means**2).mean(axis=0)
    assert deviation**2 == pytest.approx(second - mean**2)
    assert (deviation**2 > variances.mean(axis=0)).all()
    mean, deviation = MIXTURE.predict(ROWS[:1])
    outcome, spread = MIXTURE.outcome(ROWS[:1])
    assert outcome == pytest.approx(1.5 + 2.0 * float(mean[0]))
    assert spread**2 == pytest.approx(4 * float(deviation[0] ** 2 + MIXTURE.noise(ROWS[:1])[0]))


def test_outcomes_under_way_are_drawn_by_each_sample() -> None:
    after = MIXTURE.with_outcomes_drawn(ROWS[:2], np.random.default_rng(0))
    drawn = [s.processes[EVERYTHING].standardised[-2:, 0].tolist() for s in after.samples]
    assert [len(s.processes[EVERYTHING].inputs) for s in after.samples] == [8] * 4
    assert len({tuple(values) for values in drawn}) == 4
    assert (after.predict(ROWS[:2])[1] < MIXTURE.predict(ROWS[:2])[1]).all()
    assert after.scale is MIXTURE.scale


def costs_of(log_seconds, range_, folds) -> SubsetBelief:
    """A belief that predicts these ln seconds everywhere, of which a range was seen."""
    kernel = FidelityKernel(Matern52([0, 1]), 2, COST)
    theta = np.append(np.zeros(len(kernel.parameters)), np.log(1e-6))
    process = GaussianProcess.given(
        kernel, theta, ROWS, np.full(3, log_seconds), mean=0.0, noise=ConstantNoise()
    )
    costs = Posterior({EVERYTHING: process})
    return replace(MIXTURE, costs=costs, cost_scale=(0.0, 1.0, *range_), folds=folds)


def test_seconds_are_of_as_many_folds_as_are_evaluated() -> None:
    belief = costs_of(1.0, (0.0, 2.0), (1, 3))
    at = ROWS.copy()
    at[0, 2], at[1:, 2] = 1.0, 0.2
    belief = replace(belief, small=0.5)
    of_one_fold = replace(belief, folds=(1, 1)).seconds(at)
    assert belief.seconds(at) == pytest.approx(of_one_fold * [3, 1, 1])
    assert of_one_fold[1:] == pytest.approx(np.e, rel=0.02)


@pytest.mark.parametrize(("predicted", "expected"), [(-9.0, -1.0), (9.0, 5.0), (1.5, 1.5)])
def test_seconds_are_not_far_beyond_those_seen(predicted: float, expected: float) -> None:
    """Fabolas sheet, 1.6: a factor of e below the least, e^3 above the most."""
    belief = costs_of(predicted, (0.0, 2.0), (1, 1))
    assert np.log(belief.seconds(ROWS)) == pytest.approx(expected, abs=1e-3)


def test_other_losses_and_the_paper_s_errors_are_learned_as_they_are() -> None:
    of_auroc, _ = learned(learner(objective=AUROC), plane_trials(8))
    of_paper, _ = learned(learner(replace(RECIPE, is_log=False)), plane_trials(8))
    for belief in (of_auroc, of_paper):
        assert belief.basis is RAW_LOSS
        assert belief.scale.floor is None


@pytest.mark.parametrize("full_only", [False, True])
def test_what_was_kept_makes_the_same_belief_again(*, full_only: bool) -> None:
    trials = [*plane_trials(11), in_full(11, 0.3, 4.0), in_full(12, 0.8, 9.0)]
    of = learner(inference="ensemble", n_samples=3)
    belief, kept = learned(of, trials, full_only=full_only)
    again = of.recall(seen_of(trials), kept, full_only=full_only)
    assert again.outcome(CENTRE) == belief.outcome(CENTRE)
    assert again.seconds(CENTRE) == belief.seconds(CENTRE)


def test_what_else_was_kept_stays() -> None:
    trials = [*plane_trials(11), in_full(11, 0.3, 4.0), in_full(12, 0.8, 9.0)]
    of = learner()
    _, first = learned(of, trials, {"something": 1})
    _, second = learned(of, trials, first, full_only=True)
    assert first["something"] == second["something"] == 1
    assert second["losses"] == first["losses"]
    assert set(second) == {"something", "losses", "costs", "full"}


def test_full_evaluations_can_be_learned_from_alone() -> None:
    trials = [*plane_trials(9), in_full(9, 0.3, 4.0), in_full(10, 0.8, 9.0)]
    belief, _ = learned(learner(), trials, full_only=True)
    (sample,) = belief.samples
    process = sample.processes[EVERYTHING]
    assert process.inputs[:, -1].tolist() == [1.0, 1.0]
    assert belief.basis is FULL
    assert belief.scale.mean == pytest.approx(np.log([4.0, 9.0]).mean())
    assert len(belief.costs.processes[EVERYTHING].inputs) == 11


def test_failures_that_tell_nothing_of_the_loss_tell_of_the_seconds() -> None:
    seen = seen_of(plane_trials(8))
    lost = replace(seen, losses=np.where(np.arange(8) == 3, np.nan, seen.losses))
    belief, _ = learner().learn(lost, {}, np.random.default_rng(0))
    assert len(belief.samples[0].processes[EVERYTHING].inputs) == 7
    assert len(belief.costs.processes[EVERYTHING].inputs) == 8


MIXED = mixed_space()


def mixed_trials(n: int) -> list[Trial]:
    """Trees and Bayes in turn, on small subsets."""
    trees = [Configuration.of(MIXED, ("none", "tree"), [{}, {"depth": d}]) for d in range(1, 51)]
    bayes = Configuration.of(MIXED, ("none", "bayes"), [{}, {}])
    trials = []
    for number in range(n):
        drawn = trees[number % 50] if number % 2 else bayes
        loss = 10.0 + number % 7 if number % 2 else 50.0
        outcome = Evaluation(loss, (), 1.0, 1.0 + number % 3)
        trials.append(Trial(number, Query(drawn, 1 / 64)).ended(outcome))
    return trials


def learned_mixed(n, kept=None) -> tuple[SubsetBelief, dict[str, Any]]:
    seen = seen_of(mixed_trials(n), space=MIXED)
    return learner(space=MIXED).learn(seen, kept or {}, np.random.default_rng(0))


@pytest.fixture
def _thirty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are parted from 31 results on, not from 301."""
    monkeypatch.setattr(belief_module, "RULES", replace(RULES, one_process=30))


@pytest.mark.usefixtures("_thirty")
def test_with_many_results_each_model_has_a_process_of_its_own() -> None:
    together, kept = learned_mixed(30)
    assert set(together.samples[0].processes) == {EVERYTHING}
    parted, new = learned_mixed(31, kept)
    models = [a.id for a in MIXED.steps[-1].algorithms]
    tree, bayes = models.index("tree"), models.index("bayes")
    (sample,) = parted.samples
    assert {k: len(p.inputs) for k, p in sample.processes.items()} == {tree: 15, bayes: 16}
    assert set(new["losses"]) == set(new["costs"]) == {str(tree), str(bayes)}
    inputs = pipeline_inputs(MIXED)
    svm = Configuration.of(MIXED, ("unit", "svm"), [{}, {"C": 1.0, "kernel": "rbf"}])
    rows = inputs.at(inputs.encode([svm, mixed_trials(2)[1].query.configuration]), 1.0)
    assert parted.knows(rows).tolist() == [False, True]
    assert together.knows(rows).all()
    assert parted.scale.mean == pytest.approx(together.scale.mean, abs=0.1)


@pytest.mark.usefixtures("_thirty")
@pytest.mark.parametrize(("kept_at", "now"), [(30, 31), (31, 30)])
def test_a_belief_is_recalled_when_models_have_been_parted_since(kept_at: int, now: int) -> None:
    _, kept = learned_mixed(kept_at)
    trials = mixed_trials(now)
    belief = learner(space=MIXED).recall(seen_of(trials, space=MIXED), kept)
    inputs = pipeline_inputs(MIXED)
    rows = inputs.at(inputs.encode([t.query.configuration for t in trials[:2]]), 1.0)
    assert belief.knows(rows).all()
    mean, _ = belief.predict(rows)
    assert mean[1] < mean[0]
    assert np.isfinite(belief.seconds(rows)).all()


def test_what_is_known_of_losses_alone_is_not_known() -> None:
    without = Posterior({7: SAMPLES[0].processes[EVERYTHING]}, 0)
    assert not replace(MIXTURE, costs=without).knows(ROWS).any()
    assert MIXTURE.knows(ROWS).all()


def test_models_have_less_to_do_with_each_other_than_other_choices() -> None:
    """Fabolas sheet, 7: logit rho ~ N(-2, 1) of the models, N(-0.5, 1.5^2) elsewhere."""
    within = pipeline_inputs(MIXED).within
    priors = [p.prior for p in within.parameters if p.name.startswith("logit rho")]
    assert priors == [(-0.5, 1.5), (-2.0, 1.0)]


THREE_SIZES = np.array([0.0, 0.4, 1.0])


def rows(n: int, model: float, seed: int, s: float | None = None) -> np.ndarray:
    """A model, two numbers and s."""
    inputs = np.random.default_rng(seed).random((n, 4))
    inputs[:, 0] = model
    if s is not None:
        inputs[:, 3] = s
    return inputs


def process(model: float, seed: int, n: int = 10) -> GaussianProcess:
    rng = np.random.default_rng(seed)
    kernel = FidelityKernel(Matern52([1, 2]), 3, LOG_LOSS)
    theta = np.append(rng.normal(-0.4, 0.4, len(kernel.parameters)), np.log([0.02, 0.5]))
    return GaussianProcess.given(
        kernel,
        theta,
        rows(n, model, seed),
        rng.normal(size=n),
        mean=0.0,
        noise=FallingNoise(3),
        scale=1.0,
    )


ONE, TWO = process(0, 1), process(1, 2)
PARTED = Posterior({0: ONE, 1: TWO}, 0)
MIXED_ROWS = np.vstack([rows(2, 0, 3), rows(3, 1, 4), rows(2, 0, 5)])
OF_ONE = np.array([0, 1, 5, 6])


def test_rows_of_a_model_without_results_are_not_known() -> None:
    unknown = np.vstack([MIXED_ROWS, rows(1, 2, 0)])
    assert PARTED.knows(unknown).tolist() == [True] * 7 + [False]
    assert Posterior({EVERYTHING: ONE}).knows(unknown).all()


def test_each_row_is_predicted_by_the_process_of_its_model() -> None:
    mean, variance = PARTED.predict(MIXED_ROWS)
    noise = PARTED.noise(MIXED_ROWS)
    of_two = np.arange(2, 5)
    for own, places in ((ONE, OF_ONE), (TWO, of_two)):
        expected, deviation = own.predict(MIXED_ROWS[places])
        assert mean[places] == pytest.approx(expected)
        assert variance[places] == pytest.approx(deviation**2)
        assert noise[places] == pytest.approx(own.noise_variance(MIXED_ROWS[places]))


def test_models_are_independent_and_each_is_joint_within() -> None:
    mean, covariance = PARTED.joint(MIXED_ROWS)
    of_two = np.arange(2, 5)
    assert (covariance[np.ix_(OF_ONE, of_two)] == 0).all()
    assert (covariance[np.ix_(of_two, OF_ONE)] == 0).all()
    for own, places in ((ONE, OF_ONE), (TWO, of_two)):
        expected, block = own.joint(MIXED_ROWS[places])
        assert mean[places] == pytest.approx(expected[:, 0])
        assert covariance[np.ix_(places, places)] == pytest.approx(block)
        assert np.abs(block - np.diag(np.diag(block))).max() > 1e-4
    assert np.linalg.eigvalsh(covariance).min() > -1e-12


def minimiser_of(posterior: Posterior, representers: np.ndarray) -> Minimiser:
    mean, covariance = posterior.joint(representers)
    normals = whitened_normals(len(representers), 256, np.random.default_rng(0))
    return Minimiser.of(mean, covariance, normals)


def test_gains_equal_joint_predictions() -> None:
    """From covariances of all rows together, and size by size."""
    representers = np.vstack([rows(4, 0, 7, 1.0), rows(4, 1, 8, 1.0)])[[0, 4, 1, 5, 2, 6, 3, 7]]
    minimiser = minimiser_of(PARTED, representers)
    gains = PARTED.gains(minimiser, representers, MIXED_ROWS, LOG_LOSS, THREE_SIZES)
    assert gains.max() > 0.01
    for i, candidate in enumerate(MIXED_ROWS):
        for j, s in enumerate(THREE_SIZES):
            at = candidate.copy()
            at[3] = s
            mean, covariance = PARTED.joint(np.vstack([at[None], representers]))
            latents = Latents(
                mean[:1, None], covariance[:1, :1, None], covariance[None, None, 0, 1:]
            )
            noise = PARTED.noise(at[None])
            alone = information_gain(minimiser, latents, np.ones((1, 1)), noise)
            assert gains[i, j] == pytest.approx(alone[0, 0], abs=1e-8)


@pytest.mark.slow
def test_outcomes_are_drawn_with_the_moments_predicted_noise_included() -> None:
    row = rows(1, 0, 9, 0.1)
    rng = np.random.default_rng(0)
    drawn = [
        float(PARTED.with_outcomes_drawn(row, rng).processes[0].standardised[-1, 0])
        for _ in range(800)
    ]
    mean, deviation = ONE.predict(row)
    variance = float(deviation[0] ** 2 + ONE.noise_variance(row)[0])
    outcomes = np.array(drawn)
    assert ONE.noise_variance(row)[0] > 0.4
    assert outcomes.mean() == pytest.approx(float(mean[0]), abs=4 * np.sqrt(variance / 800))
    assert outcomes.var() == pytest.approx(variance, rel=0.2)


def test_outcomes_are_drawn_in_turn() -> None:
    """Of one configuration twice, without much noise, the second is near to the first."""
    row = np.repeat(rows(1, 0, 9, 1.0), 2, axis=0)
    row[:, 1:3] = 5.0  # far from all that is known
    rng = np.random.default_rng(0)
    pairs = np.array(
        [PARTED.with_outcomes_drawn(row, rng).processes[0].standardised[-2:, 0] for _ in range(300)]
    )
    assert np.corrcoef(pairs.T)[0, 1] > 0.9
