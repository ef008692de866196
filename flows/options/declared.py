"""The options of a study and of a comparison, each declared once as a field.

Flow parameters, command-line options, forms, plans, printed commands, completion and help are made
of them. Light to import, so that the command line shows its help at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

from prefect_tune.flows.options.values import (
    ASSIGNED,
    CONSTRAINTS,
    DURATION,
    ENSEMBLE,
    ENSEMBLE_KINDS,
    LOCATION,
    MEMORY,
    SIZE,
    STORE,
    EnsembleRule,
    StopRule,
    TaskRuns,
    bad_value,
)
from prefect_tune.optimizers.converter import from_document, to_document
from prefect_tune.optimizers.options import Option, options_of
from prefect_tune.optimizers.options import option as declare
from prefect_tune.optimizers.registry import DEFAULT_METHOD, METHODS
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.formats.registry import FORMATS
from prefect_tune.tasks.data.source import GAPS, Source
from prefect_tune.tasks.objective.declaration import METRICS, QuantityBound

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_OF_NAMES = "a name is made of letters, digits, dots, dashes and underscores, at most 100 of them, and begins with a letter or digit"


def _format_help() -> str:
    *others, last = FORMATS.own
    return f"Format of DATA: {', '.join(others)} or {last}. Found out from DATA when left out."


def _gap_texts() -> str:
    return ", ".join(filter(None, GAPS))


def _method_help() -> str:
    *others, last = METHODS.own
    return f"How to search: {', '.join(others)} or {last}; prefect-tune methods describes each."


def _compared_methods() -> str:
    return ",".join(m.name for m in METHODS.without_plugins() if m.compared_by_default)


def _declared_ensembles() -> str:
    by_kind: dict[str, list[str]] = {}
    for method in METHODS.without_plugins():
        if method.ensemble:
            by_kind.setdefault(method.ensemble, []).append(method.name)
    of_kinds = [
        f"{kind} for {', '.join(names)}{' without constraints' if kind == 'auto' else ''}"
        for kind, names in by_kind.items()
    ]
    return "; ".join([*of_kinds, "single otherwise"])


def _raced_methods() -> str:
    raced = ", ".join(method.name for method in METHODS.without_plugins() if method.is_raced)
    return f"for {raced} with several folds and a cache, or many rows"


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Options of a study, parsed. An option that was left out has its field's default."""

    # fmt: off
    data: str = declare("Data to learn from: a table or a table of events as CSV, Parquet or ARFF, a folder of MEDS, OMOP or Synthea, sklearn:NAME, or cohort:NAME; any URL that fsspec reads.", group="Data", metavar="DATA", examples=("patients.csv", "/data/meds", "sklearn:wine", "cohort:demo"), written=LOCATION, is_argument=True, default="cohort:demo")
    target: str | None = declare("Column of a table to predict, or column of the class in a table of labels.", group="Data", metavar="COLUMN")
    labels: str | None = declare("For events: table of labels (patient, prediction time, class), a file or a folder of Parquet files; looked for as named, then below DATA.", group="Data", metavar="PATH", written=LOCATION)
    format: str | None = declare(_format_help, group="Data", metavar="FORMAT", choices=lambda: FORMATS)
    test: str | None = declare("Test rows, scored once at the end: a table like DATA, or for events a table like the --labels.", group="Data", metavar="PATH", written=LOCATION, in_compare="Test rows, the same for all repeats: a table like DATA, or for events a table like the --labels.")
    test_size: float | None = declare("Share of the rows held back and scored once at the end, without --test; 0 for none.", group="Data", metavar="SHARE", default_text="0.2", standard=0.2, at_least=0, at_most=0.5, on_resume="same", is_shared=True, in_compare="Share of the rows that each repeat holds back, without --test; the best pipelines of fixed times are scored on them after the search.")
    folds: int | None = declare("Folds of the stratified cross-validation.", group="Data", metavar="N", default_text="3; on 50,000 training rows or more one held-out part", standard=3, at_least=2, at_most=100, on_resume="same", is_shared=True)
    holdout: float | None = declare("Share of the training rows to hold out, once, instead of cross-validation.", group="Data", metavar="SHARE", more_than=0, at_most=0.5, on_resume="same", is_shared=True)
    group: str | None = declare("Column of a table whose equal values stay in one fold, for instance the patient; it is no feature.", group="Data", metavar="COLUMN")
    drop: tuple[str, ...] = declare("Column to leave out of the features (repeatable).", default=(), group="Data", metavar="COLUMN")
    categorical: tuple[str, ...] = declare("Column to take as categories whatever it holds (repeatable).", default=(), group="Data", metavar="COLUMN")
    drop_missing_target: bool = declare("Leave out rows that have no target.", default=False, group="Data")
    na_values: tuple[str, ...] | None = declare("Text that counts as missing, instead of the default ones (repeatable); an empty text for empty cells alone, which always are.", group="Data", metavar="TEXT", default_text=_gap_texts)
    input: Literal["stored"] | None = declare("stored continues a study on its imported copy of the data, labels and test rows, whatever their files hold now.", group="Data", metavar="stored", default_text="a study whose files have changed is not continued", on_resume="anew", is_stored=False, in_compare="stored continues a comparison on its imported copy of the data, labels and test rows, whatever their files hold now.")
    space: str | None = declare("Space of pipelines to search, as `prefect-tune spaces` lists them, or FILE.py:NAME for one of your own.", group="Search", metavar="NAME", default_text="by the data", choices=lambda: SPACES, is_open=True, examples=("my_space.py:space",), on_resume="same", is_shared=True)
    method: str | None = declare(_method_help, group="Search", metavar="METHOD", default_text=DEFAULT_METHOD, choices=lambda: METHODS, is_open=True, on_resume="same", in_compare=False)
    metric: str | None = declare("Loss to minimise: error (percent), auroc (1 - area), or one of scikit-learn's scorers by its name (1 - score, or what follows neg_).", group="Search", metavar="METRIC", default_text="error for classes, r2 for numbers", choices=lambda: METRICS, is_open=True, examples=("recall",), on_resume="same", is_shared=True)
    positive: str | None = declare("Positive class, if there are two; for precision, recall, f1 and the like.", group="Search", metavar="LABEL", default_text="the rarer", on_resume="same", is_shared=True)
    constraint: tuple[QuantityBound, ...] | None = declare("Bound that a pipeline must meet, QUANTITY<=VALUE (repeatable): latency_us, model_size_bytes, false_positive_rate, disparate_impact(COLUMN, bins=20:40:60, metric=auroc), or FILE.py:FUNCTION; none lifts those of a study.", group="Search", metavar="CONSTRAINT", examples=("latency_us<=50",), written=CONSTRAINTS, in_compare=False)
    ensemble: EnsembleRule | None = declare("Final model: single for the best trial; N for an ensemble of up to N of the best trials, picked one by one with replacement by their held-out predictions, and greedy for up to 32; agnostic for trials weighted by how often they are best in bootstraps of the held-out rows; auto for the best of these that takes at most three times as long to fit as the best trial, or a second.", group="Search", metavar="N|KIND", default_text=_declared_ensembles, choices=lambda: ENSEMBLE_KINDS, or_whole=True, at_least=1, on_resume="changed", written=ENSEMBLE, in_compare=False)
    epochs: int | None = declare("Train iterative models epoch by epoch, this many in a full training, with checkpoints; the loss of the best epoch counts.", group="Search", metavar="N", default_text="models are fitted at once", at_least=5, at_most=1000, why="a curve of fewer epochs says little", on_resume="same", is_shared=True)
    race: bool | None = declare("End a configuration after its first fold where it is clearly behind the best one, on more than 20,000 training rows after a part of that fold; the others go on with the rest.", group="Search", default_text=_raced_methods, on_resume="same")
    start: str | None = declare("Known configurations to begin with: a JSON file with a list of them, or with what `prefect-tune trials --json` prints; the name of a study, for its ten best trials within its constraints; portfolio, configurations that did well on many tables; or none.", group="Search", metavar="FILE|STUDY|portfolio|none", choices=lambda: ("portfolio", "none"), is_open=True, examples=("responders",), on_resume="same", in_compare=False)
    seed: int | None = declare("Source of all randomness.", group="Search", metavar="N", default_text="0", standard=0, at_least=0, at_most=2**32 - 2, on_resume="same", in_compare="Source of all randomness of the first repeat; the next ones take the next numbers.")
    option: Mapping[str, Any] = declare("Option of the method itself (repeatable).", group="Search", metavar="NAME=VALUE", on_resume="same", written=ASSIGNED, default_factory=dict, in_compare=False)
    trials: int | None = declare("Configurations to begin in all, including those of earlier runs of the study; a configuration that is trained further counts once.", group="Budget", metavar="N", at_least=1, on_resume="changed", in_compare="Configurations that each replicate (one method in one repeat) begins, for a comparison at equal trials.")
    budget: float | None = declare("Time in all, from the start of the command to its final model, including earlier runs; for instance 30m or 8h. The search ends at the first limit, --trials or --budget; without either after 10m.", group="Budget", metavar="TIME", standard=600.0, examples=("30m", "8h"), on_resume="changed", written=DURATION, in_compare="Time of each replicate (one method in one repeat), for instance 2m, for a comparison at equal time.")
    trial_timeout: float | None = declare("Longest that a trial may take, for instance 60s; a longer one is ended and counts as failed.", group="Budget", metavar="TIME", default_text="follows predicted costs", examples=("60s",), on_resume="changed", is_shared=True, written=DURATION)
    trial_memory: int | None = declare("Most memory that a trial may take, for instance 4GB; a larger one is ended and counts as failed.", group="Budget", metavar="SIZE", default_text="the machine's, shared by the workers", examples=("4GB",), on_resume="changed", is_shared=True, written=MEMORY)
    study: str | None = declare("Name of the study; an existing study of that name is resumed.", group="Where", metavar="NAME", default_text="data, method and time", pattern=_NAME, why=_OF_NAMES, on_resume="anew", in_compare=False, is_stored=False)
    workers: int | None = declare("Trials at the same time.", group="Where", metavar="N", default_text="the cores", at_least=1, on_resume="anew", in_compare="Replicates at the same time, each on a worker process of its own.", is_stored=False)
    dask: str | None = declare("Address of a Dask scheduler to use instead of local processes, for instance tcp://host:8786.", group="Where", metavar="ADDRESS", on_resume="anew", written=LOCATION, is_stored=False)
    store: str | None = declare("Folder or URL of the artifact store, or block:NAME for a Prefect block.", group="Where", metavar="URL", default_text="below PREFECT_TUNE_HOME", on_resume="anew", written=STORE, is_stored=False)
    database: str | None = declare("SQLAlchemy URL of the store's index and of the ledger, without a password: one with it goes into PREFECT_TUNE_DATABASE.", group="Where", metavar="URL", default_text="PREFECT_TUNE_DATABASE, or SQLite in the store", on_resume="anew", is_stored=False)
    cache_budget: int | None = declare("Maximum size of the store's cache, for instance 5GB; a property of the store from then on.", group="Where", metavar="SIZE", default_text="the store's own, 10GB for a new one", examples=("5GB",), on_resume="anew", written=SIZE, is_stored=False)
    no_cache: bool = declare("Neither look for cached steps nor keep any.", default=False, group="Where", on_resume="anew", in_compare="Neither look for cached steps nor keep any. Without it each replicate has a cache of its own, empty at first.")
    task_runs: TaskRuns = declare("Steps to show in Prefect as task runs: steps (all), misses (those not cached), trial (none), or auto (all, until the server cannot keep up).", group="Where", metavar="WHICH", default="auto", default_text="auto", on_resume="anew", in_compare="Steps to show in Prefect as task runs, as for `run`.", is_stored=False)
    # fmt: on

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Parse written forms, as flows take them; a missing one or None counts as left out.

        Raises:
            BadInput, UnknownName: If one of them cannot be used; names it.
        """
        options = cls(**_parsed(given, OPTIONS))
        for one, other in (("test", "test_size"), ("folds", "holdout")):
            values = [getattr(options, name) for name in (one, other)]
            if None not in values:
                flags = [OPTIONS[name].flag for name in (one, other)]
                raise BadInput(
                    f"{flags[0]} {values[0]} with {flags[1]} {values[1]}: use only one of them"
                )
        return options

    def to_json(self) -> dict[str, Any]:
        """Return what a study keeps of its options, as JSON values."""
        document = to_document(self)
        return {name: document[name] for name, one in OPTIONS.items() if one.is_stored}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the inverse of `to_json`; an option that is missing has its default.

        Raises:
            ValueError: If the document is damaged.
        """
        return from_document(cls, document)

    def is_given(self, name: str) -> bool:
        """Return whether an option has another value than its default."""
        value: object = getattr(self, name)
        return value != OPTIONS[name].default

    @property
    def source(self) -> Source:
        """Where the data comes from; what its target holds is not known yet."""
        shared = {
            one.name: getattr(self, one.name) for one in fields(Source) if one.name in OPTIONS
        }
        of_groups = {bounded.quantity.column for bounded in self.bounds}
        aside = tuple(column for column in self.drop if column in of_groups)
        return Source(**shared, aside=aside)

    @property
    def bounds(self) -> tuple[QuantityBound, ...]:
        """The constraints."""
        return self.constraint or ()

    @property
    def stop_rule(self) -> StopRule:
        """The end of the search."""
        return StopRule(self.trials, self.budget)

    @property
    def use_cache(self) -> bool:
        """Whether to look for artifacts, and to keep them."""
        return not self.no_cache


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Options of a comparison that no study has, parsed."""

    # fmt: off
    methods: str | None = declare("Methods to compare, separated by commas; with options of their own as in flash:variant=paper:r=5.", group="Search", metavar="METHODS", default_text=_compared_methods)
    repeats: int | None = declare("How often to run each method; each repeat has its own test part, folds and seed, the same for all methods.", group="Search", metavar="N", default_text="3", standard=3, at_least=1)
    name: str | None = declare("Name of the comparison; an existing one is resumed, with more repeats or methods if you name them.", group="Where", metavar="NAME", default_text="data and time", pattern=_NAME, why=_OF_NAMES)
    out: str | None = declare("Parquet file for the curves of all replicates.", group="Where", metavar="FILE", default_text="NAME.parquet")
    # fmt: on

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Parse written forms, as the flow `compare` takes them.

        Raises:
            BadInput: If one of them cannot be used; names it.
        """
        return cls(**_parsed(given, _ONLY_COMPARE))


def _parsed(given: Mapping[str, Any], options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the value of each option.

    Raises:
        BadInput, UnknownName: If one cannot be used.
    """
    values = {}
    for name, one in options.items():
        written = given.get(name)
        if written == "" and one.group == "Where":  # as a shell gives a variable that is not set
            written = None
        if written is not None:
            if one.choices and not one.is_open and one.is_literal and written not in one.known:
                raise UnknownName(f"value of {one.flag}", written, one.known)
            is_checked = not one.or_whole  # which its written form checks
            if is_checked and (reason := one.violation(written)):
                shown = repr(written) if isinstance(written, str) else written
                raise bad_value(one, reason, shown)
        values[name] = one.parse(written)
    return values


OPTIONS: Mapping[str, Option] = options_of(StudyOptions)
"""Options of `prefect-tune run`, by name and in the order shown."""
_ONLY_COMPARE = options_of(CompareOptions)
_FOLLOWED_BY = {
    "input": ("methods", "repeats"),
    "trial_memory": ("name",),
    "task_runs": ("out",),
}
"""Places of a comparison's own options among those of its studies."""


def _compare_options() -> Mapping[str, Option]:
    found = {}
    for name, one in OPTIONS.items():
        if one.in_compare:
            text = one.in_compare if isinstance(one.in_compare, str) else one.text
            found[name] = replace(one, text=text)
        found |= {follower: _ONLY_COMPARE[follower] for follower in _FOLLOWED_BY.get(name, ())}
    return {**found, "task_runs": replace(found["task_runs"], default_text="trial")}


COMPARE_OPTIONS: Mapping[str, Option] = _compare_options()
"""Options of `prefect-tune compare`, by name and in the order shown."""
