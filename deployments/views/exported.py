"""Terminal output on exported models: properties, requirements, and code to load a model."""

from platform import python_version

from prefect_tune.deployments.views.console import echo
from prefect_tune.flows.results.exported import Exported
from prefect_tune.flows.wording.text import LossWords

_MOST_MEMBERS = 5


def print_exported(exported: Exported, file: str, card: str | None) -> None:
    """Print an exported model, its file, and the file of the model card, if any."""
    loss, losses = exported.test_loss, LossWords(exported.metric)
    tested = "" if loss is None else f", {losses.name} on the test rows {losses.of(loss)}"
    weights = exported.weights
    heaviest = sorted(weights, key=lambda trial: (-weights[trial], trial))
    model = f"the pipeline of trial {heaviest[0]}"
    if len(heaviest) > 1:
        named = ", ".join(f"{trial} {weights[trial]:.1%}" for trial in heaviest[:_MOST_MEMBERS])
        n_more = len(heaviest) - _MOST_MEMBERS
        more = f" and {n_more} more" if n_more > 0 else ""
        model = f"an ensemble of {len(heaviest)} pipelines (trials {named}{more})"
    echo(f"{file}: {model}{tested}")
    if exported.test_undefined:
        echo(f"  {losses.name} on the test rows is undefined: {exported.test_undefined}")
    python = ".".join(python_version().split(".")[:2])
    packages = ", ".join(f"{name} {version}" for name, version in exported.packages.items())
    own = ", ".join(exported.own_classes)
    if own and exported.carries_code:
        echo(f"  needs Python {python} and {packages}, but not prefect-tune;")
        echo(f"  the file contains the code of the classes {own}")
    elif own:
        echo(f"  needs {packages}; prefect-tune defines the classes {own}")
    else:
        echo(f"  needs {packages}, but not prefect-tune; all classes are scikit-learn's")
    if exported.reads_rows:
        echo("  the first step reads rows by the training data's schema; --matrix omits the step")
    if exported.predicts_events:
        echo("  needs patient events, which only prefect-tune predict can read")
    if exported.format == "skops":  # the loading code lists types to trust
        echo("  to load it:")
        for line in exported.loading_code(file):
            echo(f"      {line}".rstrip())
    if card is not None:
        echo(f"{card}: its model card")
