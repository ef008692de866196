"""The space of a study as it was in the run, for whoever reads its trials by it."""

from typing import TYPE_CHECKING

from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.tasks.bad_input import BadInput

if TYPE_CHECKING:
    from prefect_tune.optimizers.space.space import Space

__all__ = ["space_as_run"]


def space_as_run(plan: StudyPlan, study: str) -> "Space":
    """Return the space of a study as it was in the run.

    Raises:
        BadInput: If it is another one here, or a user's code cannot be loaded.
        UnknownName: If there is none of that name here.
    """
    from prefect_tune.tasks.catalogue.spaces import missing_libraries  # noqa: PLC0415 - heavy

    problem = plan.problem
    space = problem.find_space()
    if space.digest != problem.space_digest:
        missing = ", ".join(missing_libraries(problem.space))
        raise BadInput(
            f"the space {problem.space} of study {study!r} is another one here"
            + (f", without {missing}" if missing else ""),
            remedy="use the version and the packages that made the study",
        )
    return space
