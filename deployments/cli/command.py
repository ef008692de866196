"""The command line. Heavy modules are imported only when a command runs, so help is fast.

With `--json`, only the result goes to standard output. Progress and notes go to standard error.
"""

import sys
from itertools import chain

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

_BY_TASK = {
    "Start": (run, retry, compare),
    "Look at results": (show, report, trials, standings),
    "Use the model": (predict, export),
    "Repeat as data change": (series, promote, rollback, serve),
    "Choose a method, a space or an example": (methods, spaces, cohort),
    "Tidy up and set up": (study, artifacts, completion),
}


class Program(Commands):
    """Group of commands that the help lists by task."""

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the first sentence of its help text."""
        for task, commands in _BY_TASK.items():
            with formatter.section(task):
                formatter.write_dl([(f"{c.name:10}", c.get_short_help_str(99)) for c in commands])


@click.group(
    cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="prefect-tune")
def main() -> None:
    """Find the best pipeline for a table or patient events: AutoML on Prefect.

    \b
    Start with    prefect-tune run cohort:demo
    then with     prefect-tune run table.csv --target COLUMN
    """  # noqa: D301 - click reads the backspace
    set_defaults(QUIET_CONSOLE)
    sys.excepthook = print_traceback
    home()  # Prefect also needs a home folder


for _command in chain(*_BY_TASK.values()):
    main.add_command(_command)
