"""A study on a real terminal, a small one without colours: what a person sees, and what is left."""

import re

from inputs import QUICK_OPTIONS, table
from terminals import on_terminal

RUNNING = re.compile(r"^trial +\d+  [a-z ]+ +[\d.]+m?s?\d*s?  [█░]{8}", re.MULTILINE)


def test_running_trials_are_seen_in_the_room_there_is_and_nothing_of_them_is_left(
    server, tmp_path
) -> None:
    data = tmp_path / "slow.parquet"
    table(4_000).to_parquet(data, index=False)
    command = ("run", data, *QUICK_OPTIONS, "--target", "target", "--study", "s", "--trials", 6)
    size = {"columns": 60, "lines": 14}
    with on_terminal(
        *command, "--workers", 2, home=tmp_path / "home", server=server, NO_COLOR="1", **size
    ) as terminal:
        terminal.wait_for(RUNNING.search)
        assert terminal.end() == 0
    seen = [line for screen in terminal.screens for line in screen]
    running = [line for line in seen if RUNNING.match(line)]
    assert any(step in line for line in running for step in ("impute", "encode", "fit model"))
    assert any(line.startswith("done in about") and line.endswith("random") for line in seen)
    left = "\n".join(terminal.scrolled())
    assert "best: trial" in left
    assert not RUNNING.search(left)
    assert "6/6 trials" not in left
    styles = re.findall(rb"\x1b\[([\d;]*)m", terminal.written)
    assert styles
    assert not [s for s in styles if set(s.split(b";")) - {b"", b"0", b"1", b"2"}]  # bold or dim
