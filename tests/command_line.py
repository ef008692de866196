"""The command line inside the test process, where everything is imported already."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from prefect_tune.deployments.cli.command import main


@dataclass(frozen=True)
class CommandLine:
    """`prefect-tune` with a separate home; flows go to the server of the test run."""

    home: Path

    def __call__(self, *arguments: object) -> Any:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("PREFECT_TUNE_HOME", str(self.home))
            result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="prefect-tune")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def json(self, *arguments: object) -> Any:
        """Return the output of `prefect-tune ... --json`."""
        result = self(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)
