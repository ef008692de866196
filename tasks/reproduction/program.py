"""A trial as a program: its pipeline on its folds, in scikit-learn as far as that has all of it."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from platform import python_version

from prefect_tune.optimizers.space.query import Query
from prefect_tune.storage.privacy.masking import masked
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.exporting.portable import is_ours
from prefect_tune.tasks.fitting.recipe import build
from prefect_tune.tasks.reproduction.event_text import EventReading
from prefect_tune.tasks.reproduction.expressions import names_in
from prefect_tune.tasks.reproduction.fold_steps import steps_in_folds
from prefect_tune.tasks.reproduction.reading_text import TableReading
from prefect_tune.tasks.reproduction.running_text import Running
from prefect_tune.tasks.reproduction.scoring_text import Scoring
from prefect_tune.tasks.reproduction.splitting_text import Shares, Splitting
from prefect_tune.tasks.reproduction.steps_text import Epochs, WrittenStep, written_steps
from prefect_tune.tasks.reproduction.written import Imports
from prefect_tune.tasks.study_context import StudyContext, open_store
from prefect_tune.tasks.user_code import is_user_code

__all__ = ["Shares", "TrialToWrite", "program"]

_USERS = "users"
"""How a program calls the file of a user."""


@dataclass(frozen=True, slots=True)
class TrialToWrite:
    """A trial that becomes a program.

    Attributes:
        study: Name of its study.
        number: Its number there.
        query: What it evaluated, or tried to.
        fold_losses: Its losses; empty if it failed.
        epochs: Its best epoch, and those of a full training; None where none were counted.
        failure: Why it failed, in one line; empty if it did not.
        failed_step: Name of the step that failed, empty where that is not known; None if none did.
    """

    study: str
    number: int
    query: Query
    fold_losses: tuple[float, ...] = ()
    epochs: Epochs | None = None
    failure: str = ""
    failed_step: str | None = None


def program(context: StudyContext, trial: TrialToWrite, source: Source, shares: Shares) -> str:
    """Return the text of a program that evaluates a trial again and prints its losses.

    Args:
        context: The study.
        trial: The trial.
        source: Where the study's rows come from.
        shares: How they are split.

    Raises:
        StoreLost: If the study's data is not there any more.
    """
    problem, query = context.problem, trial.query
    store = open_store(context.store)
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    in_folds = steps_in_folds(context, query, trial.failed_step)
    steps = list(written_steps(in_folds, dataset, trial.epochs))
    last = in_folds[-1][0]
    model, metric = build(last.recipe, last.seed), problem.find_metric()
    scoring = Scoring(metric, len(dataset.classes), model)
    reading: TableReading | EventReading
    if dataset.kind == "events":
        reading, splitting = EventReading(source, dataset, split, shares, query), None
    else:
        reading = TableReading(source, dataset)
        splitting = Splitting(dataset, split, shares, query)
    users = _users_modules(steps)
    imports = Imports([step.expression for step in steps], dict.fromkeys(users, _USERS))
    running = Running(
        steps,
        trial.fold_losses,
        metric,
        is_of_events=splitting is None,
        split="dataset" if splitting is None else splitting.arguments,
    )
    more = [reading.imports, scoring.imports, running.imports]
    more += [] if splitting is None else [splitting.imports]
    file = problem.space.partition(":")[0] if users else ""
    top = [
        _heading(trial, reading.packages),
        _imports(imports, more, (reading.standard, reading.modules), file),
        [*reading.constants(), *running.constants()],
    ]
    functions = [
        reading.functions(),
        [] if splitting is None else splitting.functions(),
        running.pipeline(imports),
        running.fitting(),
        scoring.functions(),
        running.main(),
        ['if __name__ == "__main__":', "    main()"],
    ]
    bodies = ["\n".join(lines) for lines in functions]
    return "\n\n".join(map("\n".join, top)) + "".join(f"\n\n\n{b}" for b in bodies if b) + "\n"


def _users_modules(steps: Sequence[WrittenStep]) -> list[str]:
    """Return the modules of a user's file that a program imports from."""
    named = {name.module for step in steps for name in names_in(step.expression)}
    return sorted(filter(is_user_code, named))


def _heading(trial: TrialToWrite, packages: Sequence[str]) -> Iterator[str]:
    """Yield the docstring of a program."""
    again = f"prefect-tune show {trial.study} --trial {trial.number} --code"
    yield f'"""Trial {trial.number} of the study {trial.study}, once more.'
    yield ""
    yield "Reads the rows as the study did, fits the trial's pipeline on the same folds, and prints"
    yield "the loss of each beside the one that it had in the study."
    yield ""
    if trial.failure:
        yield f"The trial failed: {_quotable(trial.failure)}"
        yield ""
    needed = [f"{name} {version(name)}" for name in ("scikit-learn", "numpy", "pandas")]
    yield f"Written by `{again}` for Python {python_version()},"
    yield f"{', '.join([*needed, *packages])}; other versions may come to other losses."
    yield '"""'


def _quotable(text: str) -> str:
    """Return other people's text as it may stand in a docstring."""
    visible = "".join(c if c.isprintable() else " " for c in masked(text))
    return visible.replace("\\", "\\\\").replace('"', "'")


def _imports(
    imports: Imports,
    more: Sequence[Mapping[str, Sequence[str]]],
    whole: tuple[Sequence[str], Sequence[str]],
    file: str,
) -> Iterator[str]:
    """Yield the lines that import everything, and load the file of a user.

    Args:
        imports: Of the pipeline.
        more: What else is imported, by module.
        whole: Modules that are imported whole, of the standard library and of other packages.
        file: Name of the user's file; empty if none is needed.
    """
    wanted: dict[str, list[str]] = {}
    for names in more:
        for module, those in names.items():
            wanted.setdefault(module, []).extend(those)
    lines = imports.statements(wanted)
    users = ("runpy",) if file else ()
    of_library = [line for line in lines if _room(line) in sys.stdlib_module_names]
    ours = [line for line in lines if is_ours(_room(line))]
    yield from sorted(f"import {name}" for name in (*whole[0], "sys", "warnings", *users))
    yield from of_library
    yield from (["from types import SimpleNamespace"] if file else [])
    yield ""
    others = [line for line in lines if line not in of_library and line not in ours]
    yield from (f"import {name}" for name in whole[1])
    yield from ["import numpy as np", "import pandas as pd", *others]
    if ours:
        yield ""
        yield "# Not of scikit-learn: pip install prefect-tune"
        yield from ours
    if file:
        yield ""
        yield f"{_USERS} = SimpleNamespace(**runpy.run_path({file!r}))"


def _room(line: str) -> str:
    """Return the package that a line imports from."""
    return line.split()[1].partition(".")[0]
