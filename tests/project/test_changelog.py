"""The changelog has the form of keepachangelog.com, so tools and the release can read it."""

import re
import tomllib
from datetime import date

from source_tree import ROOT

TEXT = (ROOT / "deployments" / "docs" / "pages" / "changes.md").read_text()
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def test_releases_are_dated_and_newest_first_and_list_changes_by_kind() -> None:
    title, unreleased, *released = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    assert (title[:12], unreleased[:13]) == ("# Changelog\n", "[Unreleased]\n")
    heads = [re.match(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d\d-\d\d)\n", r) for r in released]
    versions = [tuple(map(int, found.groups()[:3])) for found in heads if found]
    days = [date.fromisoformat(found[4]) for found in heads if found]
    assert len(versions) == len(released)
    assert versions == sorted(set(versions), reverse=True)
    assert days == sorted(days, reverse=True)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert versions[0] <= tuple(map(int, version.split(".")[:3]))
    for release in (unreleased, *released):
        _, *sections = re.split(r"^### ", release, flags=re.MULTILINE)
        kinds = [section.partition("\n")[0] for section in sections]
        assert kinds == [kind for kind in KINDS if kind in kinds]
        lines = [line for section in sections for line in section.split("\n")[1:] if line]
        assert [line for line in lines if not line.startswith("- ")] == []
