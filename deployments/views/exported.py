"""Exported models: their properties, requirements, and the code that loads them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prefect_tune.deployments.views.console import echo
from prefect_tune.flows.text import LossWords


def loading_code(file: str, file_format: str, trusted: Sequence[str]) -> Iterator[str]:
    r"""Yield the lines that load a model.

    Args:
        file: Name of its file.
        file_format: `pickle` or `skops`.
        trusted: Of skops' format, the types that must be trusted.

    >>> print("\n".join(loading_code("model.pkl", "pickle", ())))
    import pickle
    <BLANKLINE>
    with open("model.pkl", "rb") as file:
        model = pickle.load(file)
    """
    if file_format == "skops":
        yield "import skops.io"
        yield ""
        yield "trusted = ["
        yield from (f"    {json.dumps(kind)}," for kind in trusted)
        yield "]"
        yield f"model = skops.io.load({json.dumps(file)}, trusted=trusted)"
    else:
        yield "import pickle"
        yield ""
        yield f'with open({json.dumps(file)}, "rb") as file:'
        yield "    model = pickle.load(file)"


_MOST_MEMBERS = 5


def print_exported(document: Mapping[str, Any], metric: str, file: str, card: str | None) -> None:
    """Print what was written.

    Args:
        document: What `export --json` prints of the model.
        metric: Name of the study's metric.
        file: The file with the model.
        card: The file with its model card, if there is one.
    """
    loss, losses = document["test_loss"], LossWords(metric)
    tested = "" if loss is None else f", {losses.name} on the test rows {losses.of(loss)}"
    echo(f"{file}: {_model(document['members'])}{tested}")
    if document["test_loss_undefined"]:
        reason = document["test_loss_undefined"]
        echo(f"  {losses.name} on the test rows is undefined: {reason}")
    for line in _needs(document):
        echo(f"  {line}".rstrip())
    if document["format"] == "skops":  # its file names the types to trust
        echo("  to load it:")
        for line in loading_code(file, document["format"], document["trusted"]):
            echo(f"      {line}".rstrip())
    if card is not None:
        echo(f"{card}: its model card")


def _needs(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what reading and using the file takes."""
    python = ".".join(document["python"].split(".")[:2])
    packages = ", ".join(f"{name} {version}" for name, version in document["packages"].items())
    own = ", ".join(document["own_classes"])
    if own and document["carries_code"]:
        yield f"needs Python {python} and {packages}; not prefect-tune,"
        yield f"whose classes it carries as code: {own}"
    elif own:
        yield f"needs {packages}; it has classes of prefect-tune: {own}"
    else:
        yield f"needs {packages}; not prefect-tune, as all its classes are scikit-learn's"
    if document["predicts_events"]:
        yield "predicts patient events, which prefect-tune reads: prefect-tune predict"


def _model(members: list[Mapping[str, Any]]) -> str:
    if len(members) == 1:
        return f"the pipeline of trial {members[0]['trial']}"
    heaviest = sorted(members, key=lambda member: (-member["weight"], member["trial"]))
    named = ", ".join(f"{m['trial']} {m['weight']:.1%}" for m in heaviest[:_MOST_MEMBERS])
    more = f" and {len(members) - _MOST_MEMBERS} more" if len(members) > _MOST_MEMBERS else ""
    return f"an ensemble of {len(members)} pipelines (trials {named}{more})"
