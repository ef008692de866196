"""A command line of its own for each test."""

import pytest
from command_line import CommandLine


@pytest.fixture
def run(tmp_path) -> CommandLine:
    return CommandLine(tmp_path / "home")
