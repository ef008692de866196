"""All that a trial needs, loaded once by the process that workers are forked from.

Only that process imports this module: with it, the process is tied to the flow, and begins the log
of workers' starts before anything can fail.
"""

from prefect_tune.tasks.worker.orphans import tie_fork_server
from prefect_tune.tasks.worker.printed_output import capture_fork_server
from prefect_tune.tasks.worker.quick_imports import quick_imports
from prefect_tune.tasks.worker.start_log import begin_log

if tie_fork_server():
    capture_fork_server()  # before others are imported, which may print
    begin_log()
with quick_imports():
    import distributed.nanny  # noqa: F401

    import prefect_tune.tasks.final_model  # noqa: F401
