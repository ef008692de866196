"""Modules of trials, loaded once by the process that workers are forked from.

That process is separate, or a copy of a command's process that has loaded this module.
"""

from prefect_tune.tasks.worker.orphans import is_fork_server, tie_fork_server
from prefect_tune.tasks.worker.printed_output import capture_fork_server
from prefect_tune.tasks.worker.start_log import begin_log, quick_imports


def begin() -> None:
    """Tie this process, the fork server, to the flow, and start the log of worker starts."""
    tie_fork_server()
    capture_fork_server()
    begin_log()


if is_fork_server():
    begin()  # before further imports, which may print or fail
with quick_imports():
    import distributed.nanny  # noqa: F401

    import prefect_tune.tasks.final_model  # noqa: F401
