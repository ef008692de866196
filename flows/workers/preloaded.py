"""What the process loads that workers are forked from: all that a trial needs, once."""

from prefect_tune.tasks.worker.quick_imports import quick_imports

with quick_imports():
    import prefect_tune.tasks.refit  # noqa: F401 - it loads all that a trial needs
