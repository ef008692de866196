"""Where the time went by step: what was made, what the cache served and saved, what is gone."""

from dataclasses import asdict, dataclass, field

from prefect_tune.flows.study.documents import TrialDocument
from prefect_tune.storage.cache.index import ArtifactIndex


@dataclass(slots=True)
class StepTime:
    """The cost of one step over all folds of all trials.

    Attributes:
        step: Its name.
        made: How often it ran.
        made_seconds: Seconds that took.
        served: How often the cache served it.
        load_seconds: Seconds that reading took.
        saved_seconds: Seconds that were saved by it.
        kept: Artifacts of it in the cache that this study was the last to make.
        kept_bytes: Their bytes.
        evicted: Such artifacts whose bytes have gone since.
        evicted_bytes: Their bytes.
        refused: Artifacts that there was no room for.
    """

    step: str
    made: int = 0
    made_seconds: float = 0.0
    served: int = 0
    load_seconds: float = 0.0
    saved_seconds: float = 0.0
    kept: int = 0
    kept_bytes: int = 0
    evicted: int = 0
    evicted_bytes: int = 0
    refused: int = 0


@dataclass(slots=True)
class StepTimesPass:
    """Takes trials and adds up their steps; those of a failed trial that had ended count too."""

    _steps: dict[str, StepTime] = field(default_factory=dict)

    def add(self, trial: TrialDocument) -> None:
        """Take a trial."""
        self._steps = self._steps or {step: StepTime(step) for step in trial.configuration}
        costs = trial.all_steps
        names = list(dict.fromkeys(str(cost["step"]) for cost in costs))
        for place, name in enumerate(names):
            if name not in self._steps:
                # A fixed step, which no configuration has, goes behind the step before it.
                known = list(self._steps.items())
                at = list(self._steps).index(names[place - 1]) + 1 if place else 0
                self._steps = dict([*known[:at], (name, StepTime(name)), *known[at:]])
        for cost in costs:
            step = self._steps[str(cost["step"])]
            step.load_seconds += cost["load_seconds"]
            if cost["hit"]:
                step.served += 1
                step.saved_seconds += cost["seconds"] - cost["load_seconds"]
            else:
                step.made += 1
                step.made_seconds += cost["seconds"]

    def found(self, index: ArtifactIndex, study: str) -> list[StepTime]:
        """Return the steps in the order in which they run, with what the index knows of them."""
        steps = {name: StepTime(**asdict(step)) for name, step in self._steps.items()}
        for name, whereabouts, n, size_bytes in index.made_by(study):
            if name not in steps:
                continue
            if whereabouts == "present":
                steps[name].kept, steps[name].kept_bytes = n, size_bytes
            elif whereabouts == "evicted":
                steps[name].evicted, steps[name].evicted_bytes = n, size_bytes
            else:
                steps[name].refused = n
        return [step for step in steps.values() if step.made or step.served]
