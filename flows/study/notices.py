"""Warnings of a study, each shown once in the terminal and in Prefect's log, and stored."""

from dataclasses import replace
from threading import Lock

from prefect.logging import get_run_logger

from prefect_tune.flows.study.progress import Observer, Progress
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.masking import masked
from prefect_tune.storage.notices import Notice
from prefect_tune.tasks.bad_input import for_caller


class StudyNotices(Observer):
    """Observer that also shows the warnings of this process and all workers.

    A warning is shown as soon as it arrives, in any thread. Warnings are written to the ledger by
    the next `tick`, because the ledger itself may be unreachable.
    """

    def __init__(self, observer: Observer, flow_run: str) -> None:
        self._observer, self._flow_run = observer, flow_run
        self._log = get_run_logger()
        self._lock = Lock()
        self._notes: dict[tuple[str, str], str] = {}
        self._n_written = 0
        self._study: Study | None = None

    def attach(self, study: Study) -> None:
        """Store warnings with this study from now on. Stored warnings are not shown again."""
        with self._lock:
            known = {(n.kind, n.subject): n.text for n in study.facts.notices}
            self._n_written = len(known)
            self._notes = known | {k: t for k, t in self._notes.items() if k not in known}
            self._study = study

    def write(self) -> None:
        """Write new warnings to the ledger. If the store is unreachable, the next call retries."""
        with self._lock:
            notes = tuple(
                Notice(kind, text, subject) for (kind, subject), text in self._notes.items()
            )
        if self._study is not None and len(notes) > self._n_written:
            self._study.record(replace(self._study.facts, notices=notes))
            self._n_written = len(notes)

    def warn(self, text: str) -> None:
        """Show a warning."""
        text = for_caller(text)
        self._log.warning(text)
        self._observer.warn(text)

    def note(self, text: str) -> None:
        """Pass a note to the wrapped observer."""
        self._observer.note(for_caller(text))

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Pass an ended trial to the wrapped observer."""
        self._observer.ended(trial, progress)

    def tick(self, progress: Progress) -> None:
        """Write new warnings, and pass the progress to the wrapped observer."""
        self.write()
        self._observer.tick(progress)

    def take(self, notice: Notice) -> None:
        """Receive a warning from `noticed_by`."""
        if notice.flow_run not in ("", self._flow_run):
            return
        key, text = (notice.kind, notice.subject), masked(notice.text)
        with self._lock:
            if key in self._notes:
                return
            self._notes[key] = text
        self.warn(text)
