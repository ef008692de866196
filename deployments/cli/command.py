"""The command line. Commands import heavy modules when they run, so help appears at once.

With `--json`, standard output holds only the result; progress and notes go to standard error.
"""

import sys

import click

from prefect_tune.deployments.cli.artifacts import artifacts
from prefect_tune.deployments.cli.catalogue import methods, spaces
from prefect_tune.deployments.cli.cohort import cohort
from prefect_tune.deployments.cli.compare import compare, standings
from prefect_tune.deployments.cli.completing import completion
from prefect_tune.deployments.cli.errors import Commands, print_traceback
from prefect_tune.deployments.cli.model import export, predict
from prefect_tune.deployments.cli.run import retry, run, serve
from prefect_tune.deployments.cli.series import promote, rollback, series
from prefect_tune.deployments.cli.study import report, show, study, trials
from prefect_tune.deployments.server.prefect_settings import QUIET_CONSOLE, set_defaults
from prefect_tune.flows.options.store_location import home

_COMMANDS = (
    run, show, report, trials, retry, artifacts, compare, standings, study, series, promote,
    rollback, predict, export, spaces, methods, cohort, serve, completion,
)  # fmt: skip


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="prefect-tune")
def main() -> None:
    """Tune whole data-analytic pipelines on Prefect: algorithms and hyperparameters.

    Start with `prefect-tune run cohort:demo`, then `prefect-tune run table.csv --target COLUMN`.
    """
    set_defaults(QUIET_CONSOLE)
    sys.excepthook = print_traceback
    home()  # Prefect needs a home folder, too


for _command in _COMMANDS:
    main.add_command(_command)
