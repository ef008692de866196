"""The loss that a trial reports is scikit-learn's of the predictions that it wrote.

For every algorithm of the catalogue, models that answer oddly, and every metric. Expected losses
come from scikit-learn's functions alone.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from answer_worlds.own_studies import LABELS, own_context, own_outcome, rows, table_text
from answer_worlds.sklearn_losses import Judged, sklearn_loss
from inputs import write_table
from sklearn.metrics import get_scorer_names
from studies import context_of, outcome, problem_of, store_of

from prefect_tune.optimizers import Evaluation, Failure, Query
from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.storage.key import predictions_record
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary
from prefect_tune.tasks.fitting.recipe import recipe
from prefect_tune.tasks.objective.metric import Predictions, metric_named
from prefect_tune.tasks.objective.scorers import OF_CLASSES, OF_NUMBERS

CLASS_METRICS = ("error", "auroc", *OF_CLASSES)
NUMBER_METRICS = sorted(OF_NUMBERS.intersection(get_scorer_names()))


def unique_models():
    """Every model of the catalogue once, with the kind of target that it predicts."""
    found = {}
    for space in SPACES.values():
        for algorithm in space.steps[-1].algorithms:
            key = (space.target, algorithm.import_path, str(dict(algorithm.fixed)))
            found.setdefault(key, (space.target, algorithm))
    return [pytest.param(*pair, id=f"{pair[1].id}-{key[1]}") for key, pair in found.items()]


def check_all(y: np.ndarray, predictions: Predictions, n_classes: int) -> None:
    """Every metric has scikit-learn's loss of predictions, or raises where that has none."""
    label, score = predictions.label, predictions.score
    cases = [(name, 1) for name in (CLASS_METRICS if n_classes else NUMBER_METRICS)]
    cases += [(name, 0) for name in CLASS_METRICS if n_classes == 2]
    for name, positive in cases:
        expected = sklearn_loss(name, Judged(y, label, score, n_classes, positive))
        metric = metric_named(name, positive)
        if expected is None:
            with pytest.raises(ValueError, match=r".+"):
                metric.loss(y, predictions, n_classes)
        else:
            assert metric.loss(y, predictions, n_classes) == pytest.approx(expected), name


@pytest.mark.parametrize(("target", "algorithm"), unique_models())
def test_every_metric_of_a_model_of_the_catalogue_is_scikit_learns(target, algorithm) -> None:
    for n_classes, labels in LABELS.items() if target == "classes" else [(0, None)]:
        X, y = rows(n_classes)
        is_frame = algorithm.flags.few_categories or "boosting" in algorithm.import_path
        matrix = pd.DataFrame(X, columns=list("abcd")) if is_frame else X
        train, held_out = (matrix[:80], matrix[80:])
        given, classes = (y[:80], np.empty(0)) if labels is None else (labels[y[:80]], labels)
        summary = replace(MatrixSummary.of(train), n_classes=n_classes)
        how = recipe(algorithm, default_choice(algorithm), summary, balanced=False)
        _, predictions = fit_model(how, 0, FoldData(train, held_out, given, classes))
        check_all(y[80:], predictions, n_classes)


def written(context, evaluation: Evaluation):
    """True values and written predictions of each fold."""
    store, problem = store_of(context), context.problem
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    for fold, key in enumerate(evaluation.predictions):
        parts = store.records.get(predictions_record(key))
        yield dataset.y[split.held_out(fold)], Predictions(parts["label"], parts.get("score"))


def check_written(context, evaluation: Evaluation) -> None:
    name, positive = context.problem.metric, context.problem.positive
    n_classes = len(load_dataset(store_of(context), context.problem.dataset).classes)
    folds = list(written(context, evaluation))
    expected = [
        sklearn_loss(name, Judged(y, p.label, p.score, n_classes, positive)) for y, p in folds
    ]
    assert evaluation.loss == pytest.approx(np.mean(expected))
    check_all(*folds[0], n_classes)


HARMLESS = ("Column", "ListOfLabels", "SeriesOfLabels", "FrameOfLabels", "ObjectLabels",
            "ReversedClasses", "NoClasses", "EncodedClasses", "FloatLabels")  # fmt: skip


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("model", HARMLESS)
def test_a_model_that_answers_oddly_has_the_loss_of_the_plain_one(
    tmp_path, model, n_classes
) -> None:
    metric = "auroc" if model.endswith("Classes") else "error"
    found = own_outcome(context := own_context(tmp_path, model, n_classes, metric))
    assert isinstance(found, Evaluation), found.message
    check_written(context, found)
    plain = own_outcome(own_context(tmp_path, "Plain", n_classes, metric))
    assert found.fold_losses == plain.fold_losses


@pytest.mark.parametrize("model", ["DuckTyped", "Decides", "ReversedDecision", "OneVsOne"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_that_are_no_probabilities_are_taken_for_none(tmp_path, model, n_classes) -> None:
    found = own_outcome(context := own_context(tmp_path, model, n_classes, "auroc"))
    assert isinstance(found, Evaluation), found.message
    check_written(context, found)
    needy = own_outcome(own_context(tmp_path, model, n_classes, "neg_log_loss"))
    assert isinstance(needy, Failure)
    assert "needs probabilities" in needy.message


@pytest.mark.parametrize("model", ["Number", "NumberColumn", "NumberList", "NumberSeries"])
def test_numbers_in_any_form_have_the_loss_of_the_plain_ones(tmp_path, model) -> None:
    found = own_outcome(context := own_context(tmp_path, model, 0, "r2"))
    assert isinstance(found, Evaluation), found.message
    check_written(context, found)
    plain = own_outcome(own_context(tmp_path, "Number", 0, "r2"))
    assert found.fold_losses == plain.fold_losses


@pytest.mark.parametrize(
    ("model", "n_classes", "value"),
    [
        ("Abstains", 3, "-1 in 3 of 32 rows"),
        ("Abstains", 2, "-1 in 3 of 32 rows"),
        ("Short", 2, "31 of 32 rows"),
        ("NanScores", 3, "nan in 1 of 32 rows"),
        ("OneProbabilityColumn", 2, "shape (32, 1)"),
        ("NumberNan", 0, "nan in 1 of 32 rows"),
        ("NumberColumns", 0, "shape (32, 2)"),
    ],
)
def test_a_trial_fails_with_the_value_that_is_no_prediction(
    tmp_path, model, n_classes, value
) -> None:
    metric = "error" if n_classes else "r2"
    failure = own_outcome(context := own_context(tmp_path, model, n_classes, metric))
    assert isinstance(failure, Failure)
    assert failure.step == "fit model"
    assert "own: predict" in failure.message
    assert value in failure.message
    assert own_outcome(context).message == failure.message  # no record of it is served


def evaluated_models():
    """Every model of every space, each with one metric in turn."""
    for space in SPACES.values():
        names = CLASS_METRICS if space.target == "classes" else NUMBER_METRICS
        of_two = [name for name in names if name != "top_k_accuracy"]
        for position, algorithm in enumerate(space.steps[-1].algorithms):
            name = of_two[(7 * position + len(space.name)) % len(of_two)]
            yield pytest.param(space, algorithm.id, name, id=f"{space.name}-{algorithm.id}-{name}")


@pytest.mark.slow
@pytest.mark.parametrize(("space", "model", "metric"), list(evaluated_models()))
def test_a_trial_of_any_model_reports_scikit_learns_loss(tmp_path, space, model, metric) -> None:
    made = context_of(tmp_path, events=space.data == "events")
    source = Source(str(write_table(tmp_path)), target="target")
    if space.target == "numbers":
        (tmp_path / "numbers.csv").write_text(table_text(0))
        source = Source(str(tmp_path / "numbers.csv"), target="y", predicts="numbers")
    if space.data == "events":
        source = Source(str(tmp_path / "meds"), labels="labels/task")
    problem = replace(problem_of(source, store_of(made), space), metric=metric)
    context, rng = replace(made, problem=problem), np.random.default_rng(0)
    path = next(path for path in space.paths() if path[-1] == model)
    found = outcome(context, Query(sample_configuration(space, rng, path)))
    if isinstance(found, Failure):  # the metric is not defined for what it predicts
        assert metric.removeprefix("neg_") in found.message or "probabilities" in found.message, (
            found.traceback
        )
        return
    check_written(context, found)


def test_predictions_of_another_shape_that_an_older_version_stored_are_made_again(tmp_path) -> None:
    context = own_context(tmp_path, "Column", 3, "error")
    first = own_outcome(context)
    records = store_of(context).records
    for key in first.predictions:
        parts = records.get(predictions_record(key))
        records.put(predictions_record(key), {**parts, "label": parts["label"][:, None]})
    again = own_outcome(context)
    assert all(step.hit for step in again.steps)
    assert again.fold_losses == first.fold_losses
