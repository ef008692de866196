"""All that a trial needs, loaded once by the process that workers are forked from."""

from prefect_tune.tasks.worker.printed_output import capture_fork_server
from prefect_tune.tasks.worker.quick_imports import quick_imports

capture_fork_server()  # before others are imported, which may print
with quick_imports():
    import distributed.nanny  # noqa: F401

    import prefect_tune.tasks.refit  # noqa: F401
