"""A finished study that commands look at, and a command line of its own for each test."""

from pathlib import Path

import pytest
from command_line import CommandLine
from inputs import write_table


class Studied:
    """A home with one finished study of the test table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = CommandLine(folder / "home")
        self.json = self.run.json
        self.data = write_table(folder)
        self.ran = self.run(
            "run",
            self.data,
            "--target",
            "target",
            "--space",
            "small",
            "--study",
            "s",
            "--trials",
            5,
            "--no-race",
            "--json",
        )


@pytest.fixture(scope="session")
def studied(server, tmp_path_factory) -> Studied:  # noqa: ARG001 - flows go there
    """Looked at by many tests: those that change it take a home of their own."""
    return Studied(tmp_path_factory.mktemp("studied"))


@pytest.fixture
def run(tmp_path) -> CommandLine:
    return CommandLine(tmp_path / "home")
