"""The output of a trial, as the store keeps it."""

from dataclasses import asdict, dataclass
from typing import Any

from prefect_tune.flows.results.explained import trial_numbered
from prefect_tune.flows.results.timeline import moments_of
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.storage.key import output_record
from prefect_tune.storage.privacy.masking import masked
from prefect_tune.storage.store import ArtifactStore

__all__ = ["TrialOutput", "trial_output"]


@dataclass(frozen=True, slots=True)
class TrialOutput:
    """The output of the last attempt of a trial.

    Attributes:
        study: Name of the study.
        trial: Number of the trial.
        output: The text; None where none is known.
        is_cut: Whether more was printed before.
        missing: Reason why there is no text; empty if there is.
    """

    study: str
    trial: int
    output: str | None
    is_cut: bool
    missing: str

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


def trial_output(store: ArtifactStore, study: str, number: int) -> TrialOutput:
    """Return what a trial printed.

    Raises:
        UnknownName: If there is no such study.
        BadInput: If there is no such trial in it.
        RecordDamaged: If the output was lost.
    """
    find_study(store, study)
    trial = trial_numbered(store, study, number)
    moments = moments_of(store, study).get(number)
    output_bytes = None if moments is None else moments.output_bytes
    if output_bytes:
        kept = store.records.get(output_record(study, number))["output"]
        return TrialOutput(study, number, masked(kept["text"]), kept["is_cut"], "")
    if output_bytes == 0:
        return TrialOutput(study, number, "", False, f"trial {number} printed nothing")
    if trial.state.is_told:
        missing = f"trial {number} was run by a version of prefect-tune that kept no output"
    else:
        missing = f"trial {number} has not ended; what it prints is kept when it ends"
    return TrialOutput(study, number, None, False, missing)
