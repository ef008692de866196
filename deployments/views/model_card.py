"""Model cards in Markdown, with the header that Hugging Face and skops read."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from prefect_tune.deployments.views.card_tables import (
    MOST_VALUES,
    column_lines,
    constraint_lines,
    data_lines,
    loss_lines,
    pipeline_lines,
    search_lines,
)
from prefect_tune.deployments.views.exported import loading_code
from prefect_tune.flows.markdown import code, escaped, table
from prefect_tune.flows.text import counted

_TAG = "prefect-tune"
_HEADER = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_USE = "## Intended use"
_UNKNOWN_USE = (
    "*To be written by whoever puts the model to use: for what and for whom, and for what not. The "
    "search cannot know. Exporting again keeps this section.*"
)

Facts = Mapping[str, Any]


def model_card(facts: Facts, file: str, *, command: Sequence[str] = (), former: str = "") -> str:
    """Return the model card of a file.

    Args:
        facts: As `card_facts` gathers them.
        file: Name of the file with the model.
        command: Words of the command that starts the study anew; empty where it is not known.
        former: The card that stands there, whose intended use is kept; empty if there is none.
    """
    sections = (
        _summary(facts),
        _use(former),
        _loading(facts, file),
        loss_lines(facts),
        column_lines(facts["data"]),
        constraint_lines(facts),
        pipeline_lines(facts["model"]),
        search_lines(facts["search"], command),
        data_lines(facts),
        _limits(facts),
        _versions(facts),
    )
    texts = ["\n".join(lines) for section in sections if (lines := list(section))]
    return "\n\n".join(["\n".join(_header(facts, file)), *texts]) + "\n"


def intended_use(card: str) -> str:
    """Return what people wrote of the intended use in a card; empty if they wrote nothing."""
    kept = re.search(rf"^{_USE}\n(.*?)(?=^## |\Z)", card, re.DOTALL | re.MULTILINE)
    text = kept[1].strip() if kept else ""
    return "" if text == _UNKNOWN_USE else text


def is_of_study(card: str, study: str) -> bool:
    """Return whether a card is of a model of a study."""
    return _title(study) in card.splitlines()


def _title(study: str) -> str:
    return f"# Model card: {escaped(study)}"


def is_model_card(text: str) -> bool:
    """Return whether a text is a model card that was written here: its header has our tag."""
    found = _HEADER.match(text)
    try:
        header = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        return False
    tags = header.get("tags") if isinstance(header, dict) else None
    return isinstance(tags, list) and _TAG in tags


def _header(facts: Facts, file: str) -> list[str]:
    """Return the YAML header."""
    kind, losses = facts["target"]["kind"], facts["losses"]
    events = facts["data"]["kind"] == "events"
    what = "classification" if kind == "classes" else "regression"
    task = f"tabular-{what}"
    header: dict[str, Any] = {
        "library_name": "sklearn",
        "tags": ["sklearn", _TAG, *(["skops"] if file.endswith(".skops") else []), task],
        "model_format": facts["loading"]["format"],
        "model_file": file,
    }
    if not events:
        header["pipeline_tag"] = task
    if losses["test"] is not None:
        data = {"type": facts["data"]["kind"], "name": facts["data"]["name"], "split": "test"}
        result = {"task": {"type": task}, "dataset": data, "metrics": [losses["test_score"]]}
        header["model-index"] = [{"name": facts["study"], "results": [result]}]
    text = yaml.safe_dump(header, sort_keys=False, allow_unicode=True)
    return ["---", *text.splitlines(), "---"]


def _summary(facts: Facts) -> Iterator[str]:
    target, data, model = facts["target"], facts["data"], facts["model"]
    yield _title(facts["study"])
    yield ""
    name = code(target["name"]) if target["name"] else ""
    if target["kind"] == "classes":
        labels = ", ".join(code(label) for label in target["classes"][:MOST_VALUES])
        more = len(target["classes"]) - MOST_VALUES
        listed = labels + (f" and {more} more" if more > 0 else "")
        what = f"the class {name}, one of {listed}," if name else f"one of {listed}"
        yield f"Predicts {what} {_from_what(data)}."
    else:
        yield f"Predicts the number {name} {_from_what(data)}."
    yield ""
    if len(model["members"]) > 1:
        yield (
            f"The model is an ensemble of {len(model['members'])} pipelines, whose "
            f"{'probabilities' if target['kind'] == 'classes' else 'predictions'} are averaged by "
            "weight; it is an estimator of scikit-learn."
        )
    elif not model["of_folds"]:
        rows = "all" if model["subset"] == 1 else f"{model['subset']:.2g} of the"
        yield f"The model is a scikit-learn `Pipeline`, fitted on {rows} training rows."
    if model["of_folds"]:
        yield (
            "Each pipeline was fitted on the training rows of one fold, and their predictions are "
            "averaged: no time was left to fit on all training rows."
        )
    page = "https://pypi.org/project/prefect-tune/"
    yield f"[{escaped(facts['written_by'])}]({page}) searched for it and wrote this card."


def _from_what(data: Facts) -> str:
    if data["kind"] == "events":
        codes = counted(data["codes"], "event code")
        return f"from the events of a patient up to a time ({codes} in training)"
    return f"from {counted(len(data['columns']), 'column')} of a table"


def _use(former: str) -> Iterator[str]:
    """Yield the intended use, which people write and which is never written over."""
    yield _USE
    yield ""
    yield intended_use(former) or _UNKNOWN_USE


def _loading(facts: Facts, file: str) -> Iterator[str]:
    loading = facts["loading"]
    yield "## How to load it"
    yield ""
    yield "```python"
    yield from loading_code(file, loading["format"], loading["trusted"])
    if facts["data"]["kind"] == "events":
        yield "predictions = model.predict(rows)  # of events, as prefect-tune reads them"
    else:
        yield "# rows: a pandas DataFrame with the columns below, and maybe others"
        yield "predictions = model.predict(rows[list(model.feature_names_in_)])"
    yield "```"
    yield ""
    needs = ", ".join(f"{name} {number}" for name, number in loading["packages"].items())
    yield f"Written with Python {loading['python']}, {needs}; load it with the same versions."
    yield ""
    yield from _about_own_classes(facts)
    if loading["format"] == "pickle":
        yield "Reading a pickle runs what is in it: load only files of people whom you trust."
    else:
        yield "Reading the file runs nothing that is in it; it makes the types listed above alone."
    checked = counted(loading["rows_checked"], "row")
    yield f"Read back after it was written, it gave the same predictions for {checked}."


def _about_own_classes(facts: Facts) -> Iterator[str]:
    loading = facts["loading"]
    names = ", ".join(map(code, loading["own_classes"]))
    if facts["data"]["kind"] == "events":
        yield (
            "A row is a patient at a prediction time. prefect-tune makes rows from files of "
            "events, as in `prefect-tune predict`."
        )
    if not names:
        yield "All of it is scikit-learn's own: prefect-tune is not needed."
    elif loading["carries_code"]:
        major_minor = ".".join(loading["python"].split(".")[:2])
        yield (
            f"Classes that are not scikit-learn's ({names}) go with it as code: loading it needs "
            f"Python {major_minor}, but not prefect-tune."
        )
    else:
        yield f"It has classes of prefect-tune ({names}), which must be installed."


def _limits(facts: Facts) -> Iterator[str]:
    losses, search, data = facts["losses"], facts["search"], facts["data"]
    configurations = counted(search["configurations"], "configuration")
    yield "## Limits"
    yield ""
    if losses["test_undefined"]:
        yield "- The loss is undefined on the test rows: the loss on new rows is not known."
    elif losses["test"] is None:
        yield "- No row was held back for a test: the loss on new rows is not known."
    else:
        yield (
            f"- The test loss comes from a single split: {counted(data['test_rows'], 'row')} that "
            "had no part in any choice. Another split would give another number."
        )
    yield (
        f"- The model was chosen from {configurations} by the loss on held-out rows, so that loss "
        "is optimistic."
    )
    yield (
        "- It was fitted to rows like those above. Nothing is known of other populations, places "
        "or periods, or of columns that are measured in another way."
    )
    if weighted := [str(m["trial"]) for m in facts["model"]["members"] if m.get("balanced")]:
        trials = f"trial{'s' if len(weighted) > 1 else ''} {', '.join(weighted)}"
        yield (
            f"- Classes were weighted for balance in training ({trials}). Probabilities "
            "are those of balanced classes, too high for rare ones. Calibrate them on new rows "
            "before you read them as risks."
        )
    if not data["group"] and data["kind"] != "events":
        yield (
            "- Rows were treated as independent. If several belong together (a patient, a day), "
            "the losses above are optimistic; `--group` keeps such rows together."
        )
    if not facts["constraints"]:
        yield "- Fairness, speed and size were not measured; `--constraint` does."


def _versions(facts: Facts) -> Iterator[str]:
    yield "## Versions"
    yield ""
    when = "that searched" if facts["versions"] else "that wrote the file"
    loading = facts["loading"]
    versions = facts["versions"] or {"python": loading["python"], **loading["packages"]}
    yield f"Of the packages {when}:"
    yield ""
    yield from table(("package", "version"), [(n, str(v)) for n, v in versions.items()])
