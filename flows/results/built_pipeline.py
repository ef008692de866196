"""The unfitted pipeline of a trial, the pipeline's code, and the trial's stored output."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from prefect_tune.flows.reading.opened_study import OpenedStudy, open_study
from prefect_tune.optimizers.registry import loaded, method_named
from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import output_record
from prefect_tune.storage.masking import masked
from prefect_tune.tasks.catalogue.spaces import check_libraries
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.final.export import TrialPipeline, code_of, trial_pipeline
from prefect_tune.tasks.problem import StudyContext


@dataclass(frozen=True, slots=True)
class TrialOutput:
    """Output that the latest attempt of a trial printed.

    Attributes:
        is_cut: Whether the beginning of the output was truncated.
        missing: Reason why no output is stored; empty if there is output.
    """

    study: str
    trial: int
    output: str | None
    is_cut: bool
    missing: str


def trial_output(store: ArtifactStore, study: str, number: int) -> TrialOutput:
    """Return a trial's output. May raise `UnknownName`, `BadInput` or `RecordDamaged`."""
    opened = open_study(store, study)
    opened.trial(number)  # raises if missing
    moments = opened.moments(number).get(number)
    output_bytes = moments.output_bytes if moments else None
    if output_bytes:
        kept = store.records.get(output_record(study, number))["output"]
        return TrialOutput(study, number, masked(kept["text"]), kept["is_cut"], "")
    if output_bytes == 0:
        return TrialOutput(study, number, "", False, f"trial {number} printed nothing")
    missing = f"trial {number} has not ended; its output is stored at the end"
    return TrialOutput(study, number, None, False, missing)


def built_pipeline(store: ArtifactStore, study: str, number: int) -> TrialPipeline:
    """Return the pipeline of a trial, configured as in the final model or in the first fold.

    The first fold is used if the trial is not in the final model. Raises `UnknownName` or
    `BadInput` if the study or trial does not exist, this machine has another version of the space,
    or a library is missing. Raises `StoreLost` if the study's data is lost.
    """
    opened = open_study(store, study)
    plan, trial, space = opened.plan, opened.trial(number), opened.plan.find_space()
    query = Query.from_json(trial.query, space)
    check_libraries(f"trial {number}", space.algorithms(query.configuration.path))
    context = StudyContext(
        study,
        plan.problem,
        store.address,
        use_cache=plan.options.use_cache,
        epochs=plan.options.epochs,
    )
    evaluation, failure = trial.evaluation, trial.failure
    is_final = is_in_final_model(opened, number)
    if evaluation and is_final:
        method = loaded(method_named(plan.method).implementation)
        query = method.refit(Trial(number, query).completed(evaluation))
    elif evaluation:
        epochs = evaluation.best_epoch or query.epochs
        query = replace(query, epochs=epochs, rounds=evaluation.rounds)
    return trial_pipeline(
        context,
        query,
        failed_step=(failure.step or "") if failure else None,
        is_final=is_final,
    )


def is_in_final_model(study: OpenedStudy, number: int) -> bool:
    """Return whether the final model contains a refit of the trial on all training rows."""
    model = study.facts.model
    return not model.model_of_folds and number in {member.trial for member in model.members}


def pipeline_code(
    store: ArtifactStore, study: str, number: int, note: Callable[[str], None]
) -> str:
    """Return Python code that builds the pipeline of a trial and fits it to `X` and `y`.

    If earlier steps must be rerun, `note` is called with a message. Raises the errors of
    `built_pipeline`, and `BadInput` if an estimator has a value that cannot be written as code.
    """
    opened = open_study(store, study)
    plan = opened.plan
    if not plan.options.use_cache:
        note(f"study {study} has no cache, so the steps before the model are rerun")
    built = built_pipeline(store, study, number)
    is_users = bool(plan.problem.space_code)
    dataset = load_dataset(store, plan.problem.dataset)
    texts = dataset.row_reader.texts if dataset.row_reader else []
    part = "the final model" if is_in_final_model(opened, number) else "its first fold"
    heading = [
        f"The pipeline of trial {number} of the study {study}, as built for {part}.",
        "",
        "Fit the pipeline to rows X with the columns of the study, and to their targets y.",
        "The final model was fitted to all rows except the test rows.",
        *([f"Columns of a file to read as strings: {', '.join(texts)}."] if texts else []),
    ]
    user_file = plan.problem.space.partition(":")[0] if is_users else ""
    return code_of(built, heading, user_file, dataset)
