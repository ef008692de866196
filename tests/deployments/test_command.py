"""The command line as a whole."""

import pytest
from command_line import CommandLine

TOPICS = [
    (),
    ("run",),
    ("show",),
    ("report",),
    ("trials",),
    ("retry",),
    ("compare",),
    ("standings",),
    ("artifacts",),
    ("artifacts", "ls"),
    ("artifacts", "show"),
    ("artifacts", "stats"),
    ("artifacts", "verify"),
    ("artifacts", "prune"),
    ("study",),
    ("study", "rm"),
    ("study", "ls"),
    ("predict",),
    ("export",),
    ("cohort",),
    ("serve",),
    ("completion",),
]


@pytest.mark.parametrize("topic", TOPICS, ids=" ".join)
def test_every_command_teaches_itself(tmp_path, topic) -> None:
    run = CommandLine(tmp_path / "home")
    done = run(*topic, "--help")
    assert done.exit_code == 0
    assert len(done.stdout) > 100
    assert "\\b" not in done.stdout
    assert not run.home.exists()
