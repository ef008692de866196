"""The flow `promote` makes the model of a study the champion of its series."""

from typing import Any

from prefect_tune.flows.event_loop import loop_safe_flow
from prefect_tune.flows.options.form import documented
from prefect_tune.tasks.bad_input import BadInput


@loop_safe_flow("promote")
@documented
def promote(
    series: str,
    study: str | None = None,
    store: str | None = None,  # noqa: ARG001 - parameters make the form of a deployment
    database: str | None = None,  # noqa: ARG001
) -> dict[str, Any]:
    """Make the model of a study the champion of its series; by default that of the newest study.

    Raises:
        BadInput: If the series or the study cannot be used.
    """
    raise BadInput(f"promotion by hand is not built yet (series {series!r}, study {study!r})")
