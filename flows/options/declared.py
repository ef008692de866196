"""Options of studies and comparisons, each declared once, as a field of a dataclass.

Flow parameters, command-line options, forms, plans, printed commands, completion and help are all
generated from these fields. The module is cheap to import, so that the command line shows help at
once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

from prefect_tune.flows.options.values import (
    ASSIGNED,
    COLUMNS,
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
from prefect_tune.optimizers.documents import UnknownName, from_document, to_document
from prefect_tune.optimizers.options import Option, options_of
from prefect_tune.optimizers.options import option as declare
from prefect_tune.optimizers.registry import DEFAULT_METHOD, METHODS
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.formats.format import FORMATS
from prefect_tune.tasks.data.source import GAPS, Source
from prefect_tune.tasks.objective.metric import METRICS, QuantityBound

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_SERIES_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,89}"  # study names add a number
_OF_SERIES_NAMES = "the name of a series has up to 90 letters, digits, dots, dashes and underscores, and starts with a letter or digit"
_OF_NAMES = "a name has up to 100 letters, digits, dots, dashes and underscores, and starts with a letter or digit"


def _format_help() -> str:
    *others, last = FORMATS.own
    return f"Format of DATA: {', '.join(others)} or {last}. Detected from DATA by default."


def _method_help() -> str:
    *others, last = METHODS.own
    return f"Search method: {', '.join(others)} or {last}; `prefect-tune methods` describes each."


def _raced_methods() -> str:
    raced = ", ".join(method.name for method in METHODS.without_plugins() if method.is_raced)
    return f"on for {raced} if there are several folds and a cache, or many rows"


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Parsed options of a study. An omitted option has the default of its field."""

    # fmt: off
    data: str = declare("Data to learn from: a table or a table of events (CSV, Parquet or ARFF), a MEDS, OMOP or Synthea folder, sklearn:NAME, or cohort:NAME. A path can be any URL that fsspec reads.", group="Data", metavar="DATA", examples=("patients.csv", "/data/meds", "sklearn:wine", "cohort:demo"), written=LOCATION, is_argument=True, default="cohort:demo")
    target: str | None = declare("Column to predict, or the class column of a table of labels.", group="Data", metavar="COLUMN")
    labels: str | None = declare("Labels for events: a table with patient, prediction time and class, as a file or a folder of Parquet files. The path is looked up as given, then below DATA.", group="Data", metavar="PATH", written=LOCATION)
    format: str | None = declare(_format_help, group="Data", metavar="FORMAT", choices=lambda: FORMATS)
    test: str | None = declare("Table of test rows, which are scored at the end of the study. The table has the form of DATA or, for events, of --labels.", group="Data", metavar="PATH", written=LOCATION, in_compare="Table of test rows, which are the same for all repeats. The table has the form of DATA or, for events, of --labels.")
    splits: Literal["auto", "ignore"] = declare("Use of the table of splits in a MEDS folder, `metadata/subject_splits.parquet`. `auto` takes the labels of held_out subjects as test rows and all others as training rows, unless --test or --test-size is given. `ignore` does not use the table.", default="auto", default_text="auto", group="Data", metavar="WHAT", on_resume="same", is_shared=True)
    test_size: float | None = declare("Share of the rows to hold back as test rows, which are scored at the end of the study. 0 holds back none. Cannot be combined with --test.", group="Data", metavar="SHARE", default_text="0.2", standard=0.2, at_least=0, at_most=0.5, on_resume="same", is_shared=True, in_compare="Share of the rows that each repeat holds back as test rows. The final models are scored on these rows. Cannot be combined with --test.")
    folds: int | None = declare("Number of folds of the stratified cross-validation.", group="Data", metavar="N", default_text="3, or a single holdout for 50,000 or more training rows", standard=3, at_least=2, at_most=100, on_resume="same", is_shared=True)
    holdout: float | None = declare("Share of the training rows to hold out once, instead of cross-validation.", group="Data", metavar="SHARE", more_than=0, at_most=0.5, on_resume="same", is_shared=True)
    group: str | None = declare("Column, such as the patient, that keeps rows together: rows with the same value stay in one fold. The column is not used as a feature.", group="Data", metavar="COLUMN")
    time: str | None = declare("Column with the time of each row; for events, `prediction_time`. Each fold then holds out rows that are newer than its training rows, and the newest rows are the test rows. The column is not used as a feature.", group="Data", metavar="COLUMN", examples=("visit_date",), on_resume="same", is_shared=True)
    gap: float | None = declare("Time between the training rows and the held-out rows of a fold, such as 30d. Rows within the gap are skipped. Needs --time or events.", group="Data", metavar="TIME", default_text="none", examples=("30d",), on_resume="same", is_shared=True, written=DURATION)
    drop: tuple[str, ...] = declare("Column to exclude from the features (repeatable).", default=(), group="Data", metavar="COLUMN")
    categorical: tuple[str, ...] = declare("Column to treat as categorical, whatever its values (repeatable).", default=(), group="Data", metavar="COLUMN")
    drop_missing_target: bool = declare("Drop rows without a target.", default=False, group="Data")
    na_values: tuple[str, ...] | None = declare("String that counts as missing, instead of the defaults (repeatable). Empty cells always count as missing. To count only empty cells, give an empty string.", group="Data", metavar="TEXT", default_text=lambda: ", ".join(filter(None, GAPS)))
    decimal: Literal["point", "comma"] | None = declare("Decimal mark of numbers in strings, used if all strings of the table are ambiguous, as in 1,234.", group="Data", metavar="MARK", default_text="found in the strings")
    input: Literal["stored"] | None = declare("`stored` resumes a study on its imported copy of the data, labels and test rows, even if the files have changed.", group="Data", metavar="stored", default_text="a study is not resumed if its files have changed", on_resume="anew", is_stored=False, in_compare="`stored` resumes a comparison on its imported copy of the data, labels and test rows, even if the files have changed.")
    space: str | None = declare("Space of pipelines to search: a name from `prefect-tune spaces`, or FILE.py:NAME for your own.", group="Search", metavar="NAME", default_text="depends on the data", choices=lambda: SPACES, is_open=True, examples=("my_space.py:space",), on_resume="same", is_shared=True)
    method: str | None = declare(_method_help, group="Search", metavar="METHOD", default_text=DEFAULT_METHOD, choices=lambda: METHODS, is_open=True, on_resume="same", in_compare=False)
    metric: str | None = declare("Metric to optimize: error (percent), auroc or any scikit-learn scorer. The loss is 1 - score; for neg_ scorers, the error itself.", group="Search", metavar="METRIC", default_text="error for classification, r2 for regression", choices=lambda: METRICS, is_open=True, examples=("recall",), on_resume="same", is_shared=True)
    positive: str | None = declare("Class that counts as positive in precision, recall, f1 and similar metrics, if the target has two classes.", group="Search", metavar="LABEL", default_text="the rarer class", on_resume="same", is_shared=True)
    constraint: tuple[QuantityBound, ...] | None = declare("Bound that a pipeline must meet, QUANTITY<=VALUE (repeatable): latency_us, batch_latency_us, model_size_bytes, false_positive_rate, group_gap(COLUMN, bins=20:40:60, metric=auroc), disparate_impact(COLUMN)>=0.8, or FILE.py:FUNCTION.", group="Search", metavar="CONSTRAINT", examples=("latency_us<=5000",), on_resume="same", written=CONSTRAINTS, in_compare=False)
    ensemble: EnsembleRule | None = declare("Kind of the final model. `single` is the best trial. N is a greedy ensemble of up to N trials, selected with replacement by their held-out predictions. `greedy` allows up to 32 trials. `agnostic` weights trials by how often they are best in bootstraps of the held-out rows. `auto` is the best of these kinds on held-out rows. For `auto`, fitting the members takes at most three times as long as fitting the best trial, or at most one second, whichever is longer.", group="Search", metavar="N|KIND", default_text="the kind that the method declares", choices=lambda: ENSEMBLE_KINDS, or_whole=True, at_least=1, on_resume="changed", written=ENSEMBLE, in_compare=False)
    epochs: int | None = declare("Epochs of a full training run. Iterative models train epoch by epoch with checkpoints, and the loss of the best epoch counts.", group="Search", metavar="N", default_text="models are fitted in a single call", at_least=5, at_most=1000, why="shorter learning curves are not informative", on_resume="same", is_shared=True)
    race: bool | None = declare("Stop a configuration after its first fold if it is clearly behind the best one. On more than 20,000 training rows, the first check uses a part of that fold.", group="Search", default_text=_raced_methods, on_resume="same")
    start: str | None = declare("Initial configurations: a JSON file (a list of configurations, or the output of `prefect-tune trials --json`), the name of a study (its ten best trials within its constraints), `portfolio` (configurations that did well on many tables) or `none`.", group="Search", metavar="FILE|STUDY|portfolio|none", choices=lambda: ("portfolio", "none"), is_open=True, examples=("responders",), on_resume="same", in_compare=False)
    seed: int | None = declare("Seed of all random numbers.", group="Search", metavar="N", default_text="0", standard=0, at_least=0, at_most=2**32 - 2, on_resume="same", in_compare="Seed of all random numbers in the first repeat. Later repeats use the next numbers.")
    option: Mapping[str, Any] = declare("Option of the method (repeatable).", group="Search", metavar="NAME=VALUE", on_resume="same", written=ASSIGNED, default_factory=dict, in_compare=False)
    trials: int | None = declare("Maximum number of configurations, including earlier runs of the study. One configuration can take several trials, such as one on a part of the rows and one on all rows.", group="Budget", metavar="N", at_least=1, on_resume="changed", in_compare="Maximum number of configurations of each study (one method in one repeat), for a comparison at equal trials.")
    budget: float | None = declare("Total time from the start of the command to its final model, such as 30m or 8h. Without --budget and --trials, a study ends after 10m, or with cohort:demo after 2m or 20 configurations. Earlier runs of the study count too. The search ends when either --trials or --budget is reached.", group="Budget", metavar="TIME", standard=600.0, examples=("30m", "8h"), on_resume="changed", written=DURATION, in_compare="Time of each study (one method in one repeat), such as 2m, for a comparison at equal time.")
    trial_timeout: float | None = declare("Time limit per trial, such as 60s. A trial over the limit fails.", group="Budget", metavar="TIME", default_text="based on predicted costs", examples=("60s",), on_resume="changed", is_shared=True, written=DURATION)
    trial_memory: int | None = declare("Memory limit per trial, such as 4GB. A trial over the limit fails.", group="Budget", metavar="SIZE", default_text="the machine's memory, shared by the workers", examples=("4GB",), on_resume="changed", is_shared=True, written=MEMORY)
    series: str | None = declare("Series that the study belongs to: studies of one question over time. Each run starts from the results of the earlier ones, and its model replaces the champion of the series only if it is better.", group="Series", metavar="NAME", pattern=_SERIES_NAME, why=_OF_SERIES_NAMES, examples=("nightly",), on_resume="same", in_compare=False)
    if_unchanged: Literal["resume", "skip"] = declare("What a run of a series does if data, space, objective and options are the same as in its last study: `resume` resumes that study if the budget has grown, `skip` ends the run.", group="Series", metavar="WHAT", default="resume", default_text="resume", on_resume="anew", in_compare=False, is_stored=False)
    key: tuple[str, ...] | None = declare("Columns that identify a row in all data of a series, separated by commas (repeatable). By default, a row is identified by its values.", group="Series", metavar="COLUMN[,COLUMN]", examples=("patient,visit",), written=COLUMNS, on_resume="same", in_compare=False)
    promotion: Literal["better", "always", "never"] = declare("When the model of a study becomes the champion of its series: if it is `better` by a paired test on fresh test rows, `always`, or `never`.", group="Series", metavar="WHEN", default="better", default_text="better", on_resume="changed", in_compare=False)
    margin: float | None = declare("Least improvement for a promotion, in the unit of the metric.", group="Series", metavar="LOSS", default_text="0", standard=0.0, at_least=0, on_resume="changed", in_compare=False)
    study: str | None = declare("Name of the study. An existing study of that name is resumed.", group="Where", metavar="NAME", default_text="made from data, method and time", pattern=_NAME, why=_OF_NAMES, on_resume="anew", in_compare=False, is_stored=False)
    workers: int | None = declare("Number of trials that run at once.", group="Where", metavar="N", default_text="number of cores", at_least=1, on_resume="anew", in_compare="Number of studies that run at once, each with one trial at a time.", is_stored=False)
    dask: str | None = declare("Address of a Dask scheduler to use instead of this machine, such as tcp://host:8786. Each thread of a worker runs one trial at a time.", group="Where", metavar="ADDRESS", on_resume="anew", written=LOCATION, is_stored=False)
    store: str | None = declare("Folder or URL of the artifact store, or block:NAME for a Prefect block.", group="Where", metavar="URL", default_text="below PREFECT_TUNE_HOME", on_resume="anew", written=STORE, is_stored=False)
    database: str | None = declare("SQLAlchemy URL, without a password, of the database that holds the store's index and the records of studies. If the URL needs a password, set PREFECT_TUNE_DATABASE instead.", group="Where", metavar="URL", default_text="PREFECT_TUNE_DATABASE, or SQLite in the store", on_resume="anew", is_stored=False)
    cache_budget: int | None = declare("Maximum size of the store's cache, such as 5GB. The store keeps this setting.", group="Where", metavar="SIZE", default_text="the store's setting, 10GB for a new store", examples=("5GB",), on_resume="anew", written=SIZE, is_stored=False)
    no_cache: bool = declare("Neither read nor write cached steps.", default=False, group="Where", on_resume="anew", in_compare="Neither read nor write cached steps. Without this option, each study starts with an empty cache of its own.")
    task_runs: TaskRuns = declare("Steps to show in Prefect as task runs: steps (all steps), misses (steps that are not cached), trial (no steps), or auto (all steps, until the server cannot keep up).", group="Where", metavar="WHICH", default="auto", default_text="auto", on_resume="anew", in_compare="Steps to show in Prefect as task runs, as for `run`.", is_stored=False)
    # fmt: on

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Parse options in the written form that flows take. None counts as omitted.

        Raises `BadInput` or `UnknownName`, with the name of the option, if an option is invalid.
        """
        options = cls(**_parsed(given, OPTIONS))
        for one, other in (("test", "test_size"), ("folds", "holdout"), ("series", "study")):
            value = getattr(options, one)
            if value is not None and getattr(options, other) is not None:
                reason = f"use only one of {OPTIONS[one].flag} and {OPTIONS[other].flag}"
                raise bad_value(OPTIONS[one], reason, value)
        # A study given by name may belong to a series.
        if options.series is None and options.study is None:
            for name in filter(options.is_given, ("key", "if_unchanged", "promotion", "margin")):
                reason, remedy = "the option applies only to runs of a series", "add --series NAME"
                raise bad_value(OPTIONS[name], reason, None, remedy)
        return options

    def to_json(self) -> dict[str, Any]:
        """Return the stored options of a study as JSON values."""
        document = to_document(self)
        return {name: document[name] for name, one in OPTIONS.items() if one.is_stored}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the options that `to_json` stored. A missing option gets its default value.

        Raises `ValueError` if the document is damaged.
        """
        return from_document(cls, document)

    def is_given(self, name: str) -> bool:
        """Return whether an option differs from its default."""
        value: object = getattr(self, name)
        return value != OPTIONS[name].default

    @property
    def source(self) -> Source:
        """Source of the data, with a kind of target that may still be unknown."""
        shared = {
            one.name: getattr(self, one.name) for one in fields(Source) if one.name in OPTIONS
        }
        of_groups = {bounded.quantity.column for bounded in self.bounds}
        aside = tuple(column for column in self.drop if column in of_groups)
        if self.test_size is not None:
            shared["splits"] = "ignore"
        return Source(**shared, aside=aside, keeps_ids=self.series is not None)

    @property
    def bounds(self) -> tuple[QuantityBound, ...]:
        """Bounds on measured quantities, from the option `constraint`."""
        return self.constraint or ()

    @property
    def quantity_digests(self) -> dict[str, str]:
        """Digest of the code of each bounded quantity, by the written form of the quantity."""
        return {bounded.quantity.text: bounded.quantity.digest for bounded in self.bounds}

    @property
    def stop_rule(self) -> StopRule:
        """The stop rule of the search."""
        return StopRule(self.trials, self.budget)

    @property
    def use_cache(self) -> bool:
        """Whether to read and write cached step results."""
        return not self.no_cache


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Parsed options that only a comparison has."""

    # fmt: off
    methods: str | None = declare("Methods to compare, separated by commas. Options follow a colon, as in flash:variant=paper:r=5.", group="Search", metavar="METHODS", default_text=lambda: ",".join(m.name for m in METHODS.without_plugins() if m.compared_by_default))
    repeats: int | None = declare("Number of repeats of each method. Each repeat has its own test rows, folds and seed, shared by all methods.", group="Search", metavar="N", default_text="3", standard=3, at_least=1)
    name: str | None = declare("Name of the comparison. An existing comparison is resumed, with more repeats or methods if given.", group="Where", metavar="NAME", default_text="made from data and time", pattern=_NAME, why=_OF_NAMES)
    out: str | None = declare("Parquet file for the curves of all studies.", group="Where", metavar="FILE", default_text="NAME.parquet")
    # fmt: on

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Parse options in the written form that the flow `compare` takes.

        Raises `BadInput`, with the name of the option, if an option is invalid.
        """
        return cls(**_parsed(given, _ONLY_COMPARE))


def _parsed(given: Mapping[str, Any], options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the parsed value of each option. May raise `BadInput` or `UnknownName`."""
    values = {}
    for name, one in options.items():
        written = given.get(name)
        if written == "" and one.group == "Where":  # an unset shell variable
            written = None
        if written is not None:
            if one.choices and not one.is_open and one.is_literal and written not in one.known:
                raise UnknownName(f"value of {one.flag}", written, one.known)
            is_checked = not one.or_whole  # such values are checked as written
            if is_checked and (reason := one.violation(written)):
                raise bad_value(one, reason, written)
        values[name] = one.parse(written)
    return values


OPTIONS: Mapping[str, Option] = options_of(StudyOptions)
"""Options of `prefect-tune run` by name, in display order."""
_ONLY_COMPARE = options_of(CompareOptions)


def _compare_options() -> Mapping[str, Option]:
    found = {
        name: replace(one, text=one.in_compare if isinstance(one.in_compare, str) else one.text)
        for name, one in OPTIONS.items()
        if one.in_compare
    }
    found["task_runs"] = replace(found["task_runs"], default_text="trial")
    return {**found, **_ONLY_COMPARE}


COMPARE_OPTIONS: Mapping[str, Option] = _compare_options()
"""Options of `prefect-tune compare` by name, in display order."""
