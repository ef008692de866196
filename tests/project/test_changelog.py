"""The changelog has the form of keepachangelog.com, so tools and the release can read it."""

import re
import tomllib
from datetime import date

from source_tree import ROOT

TEXT = (ROOT / "deployments" / "docs" / "pages" / "changes.md").read_text()
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
RELEASES = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
DATED = [re.match(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d\d-\d\d)\n", text) for text in RELEASES[1:]]


def test_it_begins_with_what_is_not_released() -> None:
    assert TEXT.startswith("# Changelog\n")
    assert RELEASES[0].startswith("[Unreleased]\n")


def test_releases_are_dated_and_the_newest_is_first() -> None:
    assert all(DATED)
    versions = [tuple(map(int, found.groups()[:3])) for found in DATED if found]
    days = [date.fromisoformat(found[4]) for found in DATED if found]
    assert versions == sorted(set(versions), reverse=True)
    assert days == sorted(days, reverse=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    now = re.match(r"(\d+)\.(\d+)\.(\d+)", project["version"])
    assert now is not None
    assert versions[0] <= tuple(map(int, now.groups()))


def test_changes_are_listed_by_kind() -> None:
    for release in RELEASES:
        title, *sections = re.split(r"^### ", release, flags=re.MULTILINE)
        kinds = [section.partition("\n")[0] for section in sections]
        assert kinds == [kind for kind in KINDS if kind in kinds], title
        for section in sections:
            lines = section.split("\n")[1:]
            assert [line for line in lines if line and not line.startswith("- ")] == []
            assert any(lines)
