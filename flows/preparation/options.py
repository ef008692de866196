"""The options of a study, stated once: flow parameters and command-line options are made from them.

Light to import, so that the command line can show its help at once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from prefect_tune.optimizers.registry import DEFAULT_METHOD, METHODS
from prefect_tune.tasks.objective.scorers import OF_CLASSES, OF_NUMBERS

Kind = Literal["argument", "text", "texts", "whole", "number", "switch", "choice", "assignments"]


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command that starts a flow, and the flow's parameter of the same name.

    Attributes:
        name: Name of the parameter; the option has dashes for underscores.
        kind: What its value is.
        group: Heading it stands under.
        text: What it does, for people; a function where that depends on what is registered.
        metavar: What its value is called in the help.
        default: What holds when it is left out, for people; empty where that needs no word.
        choices: The values that it may have, of those that can be listed.
        is_open: Whether it may have others than those.
        or_whole: Whether it may be a whole number too.
        bounds: Keywords of JSON schema that its value must meet.
        examples: Values to show how they are written.
    """

    name: str
    kind: Kind
    group: str
    text: str | Callable[[], str]
    metavar: str = ""
    default: str | Callable[[], str] = ""
    choices: Callable[[], Iterable[str]] | None = None
    is_open: bool = False
    or_whole: bool = False
    bounds: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        """The values that can be listed; none where any may be given."""
        return () if self.choices is None else tuple(self.choices())

    @property
    def flag(self) -> str:
        """The option as the command line writes it."""
        return "--" + self.name.replace("_", "-")

    @property
    def help(self) -> str:
        """Its description and default, for people."""
        text = self.text if isinstance(self.text, str) else self.text()
        default = self.default if isinstance(self.default, str) else self.default()
        return f"{text}  [default: {default}]" if default else text


_SECONDS = {"pattern": r"^\s*(\d+(\.\d+)?\s*[smhd]\s*)+$"}
_BYTES = {"pattern": r"^\s*\d+(\.\d+)?\s*[KMGTkmgt]?[Bb]\s*$"}
_SHARE = {"exclusiveMinimum": 0, "maximum": 0.5}
_AT_LEAST_1 = {"minimum": 1}


def _formats() -> Iterable[str]:
    from prefect_tune.tasks.data.formats.registry import FORMATS  # noqa: PLC0415 - heavy

    return FORMATS


def _spaces() -> Iterable[str]:
    from prefect_tune.tasks.catalogue.spaces import SPACES  # noqa: PLC0415 - heavy

    return SPACES


def _metrics() -> Iterable[str]:
    return ("error", "auroc", *sorted({*OF_CLASSES, *OF_NUMBERS}))


def _method_help() -> str:
    *others, last = METHODS
    return f"How to search: {', '.join(others)} or {last}; prefect-tune methods describes each."


def _compared_methods() -> str:
    return ",".join(m.name for m in METHODS.values() if m.compared_by_default)


def _declared_ensembles() -> str:
    by_kind: dict[str, list[str]] = {}
    for method in METHODS.values():
        if method.ensemble:
            by_kind.setdefault(method.ensemble, []).append(method.name)
    of_kinds = [
        f"{kind} for {', '.join(names)}{' without constraints' if kind == 'auto' else ''}"
        for kind, names in by_kind.items()
    ]
    return "; ".join([*of_kinds, "single otherwise"])


def _raced_methods() -> str:
    raced = ", ".join(method.name for method in METHODS.values() if method.is_raced)
    return f"for {raced} with several folds and a cache, or many rows"


_OPTIONS = (
    Option("data", "argument", "Data", "What to learn from: a table or a table of events as CSV(.gz), Parquet or ARFF, a folder of MEDS, OMOP or Synthea, sklearn:NAME, or cohort:NAME; any URL that fsspec reads.", "DATA", examples=("patients.csv", "/data/meds", "sklearn:wine", "cohort:demo")),
    Option("target", "text", "Data", "Column of a table to predict, or column of the class in a table of labels.", "COLUMN"),
    Option("labels", "text", "Data", "For events: table of labels (patient, prediction time, class), a file or a folder of Parquet files; looked for as named, then below DATA.", "PATH"),
    Option("format", "text", "Data", "Format of DATA: table, events, meds, omop or synthea. Found out from DATA when left out.", "FORMAT", choices=_formats),
    Option("test", "text", "Data", "Test rows, scored once at the end: a table like DATA, or for events a table like that of --labels.", "PATH"),
    Option("test_size", "number", "Data", "Share of the rows held back and scored once at the end, without --test; 0 for none.", "SHARE", default="0.2", bounds={"minimum": 0, "maximum": 0.5}),
    Option("folds", "whole", "Data", "Folds of the stratified cross-validation.", "N", default="3; on 50,000 training rows or more one held-out part", bounds={"minimum": 2, "maximum": 100}),
    Option("holdout", "number", "Data", "Share of the training rows to hold out, once, instead of cross-validation.", "SHARE", bounds=_SHARE),
    Option("group", "text", "Data", "Column of a table whose equal values stay in one fold, for instance the patient; it is no feature.", "COLUMN"),
    Option("drop", "texts", "Data", "Column to leave out of the features (repeatable).", "COLUMN"),
    Option("categorical", "texts", "Data", "Column to take as categories whatever it holds (repeatable).", "COLUMN"),
    Option("drop_missing_target", "switch", "Data", "Leave out rows that have no target."),
    Option("space", "text", "Search", "Space of pipelines to search, as `prefect-tune spaces` lists them, or FILE.py:NAME for one of your own.", "NAME", default="by the data", choices=_spaces, is_open=True, examples=("my_space.py:space",)),
    Option("method", "text", "Search", _method_help, "METHOD", default=DEFAULT_METHOD, choices=lambda: METHODS, is_open=True),
    Option("metric", "text", "Search", "What to minimise: error (percent), auroc (1 - area), or one of scikit-learn's scorers by its name (1 - score, or what follows neg_).", "METRIC", default="error for classes, r2 for numbers", choices=_metrics, is_open=True, examples=("recall",)),
    Option("positive", "text", "Search", "Of two classes, the one to be found; for precision, recall, f1 and the like.", "LABEL", default="the rarer"),
    Option("constraint", "texts", "Search", "Bound that a pipeline must meet, QUANTITY<=VALUE (repeatable): latency_us, model_size_bytes, false_positive_rate, disparate_impact(COLUMN, bins=20:40:60, metric=auroc), or FILE.py:FUNCTION; none lifts those of a study.", "CONSTRAINT", examples=("latency_us<=50",)),
    Option("ensemble", "text", "Search", "What to make the final model of: single for the best trial; N for an ensemble of up to N of the best trials, picked one by one with replacement by their held-out predictions, and greedy for up to 32; agnostic for those that are best in bootstraps of the held-out rows, by how often; auto for the best of these that takes no more than three times as long to fit as the best trial, or a second.", "N|KIND", default=_declared_ensembles, choices=lambda: ("single", "greedy", "agnostic", "auto"), or_whole=True, bounds=_AT_LEAST_1),
    Option("epochs", "whole", "Search", "Train iterative models epoch by epoch, this many in a full training, with checkpoints to go on from; the best epoch counts.", "N", default="models are fitted at once", bounds={"minimum": 5, "maximum": 1000}),
    Option("race", "choice", "Search", "End a configuration after its first fold where it is clearly behind the best one, on more than 20,000 training rows after a part of that fold; the others go on with the rest.", default=_raced_methods),
    Option("start", "text", "Search", "Known configurations to begin with: a JSON file with a list of them, or with what `prefect-tune trials --json` prints; a study of the store, of which it is the ten best; portfolio, configurations that did well on many tables; or none.", "FILE|STUDY|portfolio|none", choices=lambda: ("portfolio", "none"), is_open=True, examples=("responders",)),
    Option("seed", "whole", "Search", "Source of all randomness.", "N", default="0", bounds={"minimum": 0, "maximum": 2**32 - 2}),
    Option("option", "assignments", "Search", "Option of the method itself (repeatable).", "NAME=VALUE"),
    Option("trials", "whole", "Budget", "Configurations to begin in all, those of earlier runs of the study included; going on with one is not counted.", "N", bounds=_AT_LEAST_1),
    Option("budget", "text", "Budget", "Time in all, from the start of the command to its final model, that of earlier runs included; for instance 30m or 8h. Whichever comes first ends the search; 10m if neither is given.", "TIME", bounds=_SECONDS, examples=("30m", "8h")),
    Option("trial_timeout", "text", "Budget", "Longest that a trial may take, for instance 60s; one that takes longer is ended and has failed.", "TIME", default="follows predicted costs", bounds=_SECONDS, examples=("60s",)),
    Option("trial_memory", "text", "Budget", "Most memory that a trial may take, for instance 4GB; one that takes more is ended and has failed.", "SIZE", default="the machine's, shared by the workers", bounds=_BYTES, examples=("4GB",)),
    Option("study", "text", "Where", "Name of the study; a study of that name is continued.", "NAME", default="data, method and time", bounds={"pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"}),
    Option("workers", "whole", "Where", "Trials at the same time.", "N", default="the cores", bounds=_AT_LEAST_1),
    Option("dask", "text", "Where", "Address of a Dask scheduler to use instead of local processes, for instance tcp://host:8786.", "ADDRESS"),
    Option("store", "text", "Where", "Folder or URL of the artifact store, or block:NAME for a Prefect block.", "URL", default="below PREFECT_TUNE_HOME"),
    Option("database", "text", "Where", "SQLAlchemy URL of the store's index and of the ledger, without a password: one with it goes into PREFECT_TUNE_DATABASE.", "URL", default="PREFECT_TUNE_DATABASE, or SQLite in the store"),
    Option("cache_budget", "text", "Where", "Maximum size of the store's cache, for instance 5GB; a property of the store from then on.", "SIZE", default="the store's own, 10GB for a new one", bounds=_BYTES, examples=("5GB",)),
    Option("no_cache", "switch", "Where", "Neither look for cached steps nor keep any."),
    Option("task_runs", "text", "Where", "Steps to show in Prefect as task runs: steps (all), misses (those not cached), trial (none), or auto (all, until the server cannot keep up).", "WHICH", default="auto", choices=lambda: ("auto", "steps", "misses", "trial")),
)  # fmt: skip

OPTIONS: Mapping[str, Option] = {option.name: option for option in _OPTIONS}
"""By the name of the parameter, in the order shown."""

_PARAMETER_OF = {
    "trial_seconds": "trial_timeout",
    "trial_memory_bytes": "trial_memory",
    "start_from": "start",
}
"""Options whose values are parsed into a field of another name."""


def flag_of(field: str) -> str:
    """Return how the command line writes the option that a field of a plan comes from."""
    return OPTIONS[_PARAMETER_OF.get(field, field)].flag


_ONLY_TUNE = ("method", "constraint", "ensemble", "start", "option", "study")
_ONLY_COMPARE = (
    Option("methods", "text", "Search", "Methods to compare, separated by commas; with options of their own as in flash:variant=paper:r=5.", "METHODS", default=_compared_methods),
    Option("repeats", "whole", "Search", "How often to run each method; each repeat has its own test part, folds and seed, the same for all methods.", "N", default="3", bounds=_AT_LEAST_1),
    Option("name", "text", "Where", "Name of the comparison; one of that name is continued, with more repeats or methods if you say so.", "NAME", default="data and time", bounds={"pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"}),
    Option("out", "text", "Where", "Parquet file for the curves of all replicates.", "FILE", default="NAME.parquet"),
)  # fmt: skip
_COMPARE_TEXTS = {
    "test": "Test rows, the same for all repeats: a table like DATA, or for events a table like that of --labels.",
    "test_size": "Share of the rows that each repeat holds back, without --test; the best pipelines of fixed times are scored on them after the search.",
    "seed": "Source of all randomness of the first repeat; the next ones take the next numbers.",
    "trials": "Configurations that each replicate (one method in one repeat) begins, for a comparison at equal trials.",
    "budget": "Time of each replicate (one method in one repeat), for instance 2m, for a comparison at equal time.",
    "workers": "Replicates at the same time, each on a worker process of its own.",
    "no_cache": "Neither look for cached steps nor keep any. Without it each replicate has a cache of its own, empty at first.",
    "task_runs": "Steps to show in Prefect as task runs, as for `run`.",
}
"""Descriptions of options that mean something else in a comparison."""
_ORDER = (
    "data", "target", "labels", "format", "test", "test_size", "folds", "holdout", "group", "drop",
    "categorical", "drop_missing_target", "methods", "repeats", "space", "metric", "positive",
    "epochs", "race", "seed",
)  # fmt: skip


def _compare_options() -> dict[str, Option]:
    """Those of `run`, less what is a method's own, and what a comparison adds."""
    options = {o.name: o for o in (*_OPTIONS, *_ONLY_COMPARE) if o.name not in _ONLY_TUNE}
    for name, text in _COMPARE_TEXTS.items():
        options[name] = replace(options[name], text=text)
    options["task_runs"] = replace(options["task_runs"], default="trial")
    names = dict.fromkeys([*_ORDER, "trials", "budget", "trial_timeout", "trial_memory", "name"])
    return {name: options[name] for name in [*names, *(n for n in options if n not in names)]}


COMPARE_OPTIONS: Mapping[str, Option] = _compare_options()
"""Options of `prefect-tune compare`, by the name of the parameter, in the order shown."""
