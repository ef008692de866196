"""Output of trials, stored as records of their study; only the last attempt of each trial is kept.

The process that runs the study writes the records, because workers on other machines may lack
access.
"""

import json
import re

from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.keys import output_record
from prefect_tune.storage.masking import masked
from prefect_tune.storage.records import Records
from prefect_tune.tasks.sandbox.output import Printed

_MOST_LINES, _MOST_CHARACTERS = 8, 1_500
"""Limits of lines and characters of an output's end quoted in a failure."""
_MOST_BYTES = 2_000_000
"""Maximum bytes of a record; a byte that is not text takes six."""


def keep_output(records: Records, study: str, trial: Trial, printed: Printed) -> int:
    """Store the output of a trial's last attempt; return its size in bytes, 0 without output."""
    record, text = output_record(study, trial.number), _text(printed)
    if text:
        size = len(json.dumps(text))
        is_long = size > _MOST_BYTES
        text = text[-len(text) * _MOST_BYTES // size :] if is_long else text
        parts = {"output": {"text": text, "is_cut": printed.is_cut or is_long}}
        records.put(record, parts, study, private=True)
    elif trial.attempts > 1:
        records.release(study, [record])
    return len(text.encode())


def last_lines(printed: Printed) -> str:
    """Return the last non-empty lines of an output, truncated."""
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", _text(printed)[-100_000:])]
    end = "\n".join([line for line in lines if line][-_MOST_LINES:])
    return f"…{end[-_MOST_CHARACTERS:]}" if len(end) > _MOST_CHARACTERS else end


def _text(printed: Printed) -> str:
    return masked(printed.data.decode(errors="replace"))
