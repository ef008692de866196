"""The site is made without a warning, and asks nobody for anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents.pages import DOCS

pytestmark = [pytest.mark.slow, pytest.mark.full]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as `deployments/docs/build` makes it; strict, so a warning is a failure."""
    folder = tmp_path_factory.mktemp("site")
    settings = DOCS / "mkdocs.yml"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", settings, "--site-dir", folder],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_it_loads_nothing_from_elsewhere(site) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    loads = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*")
    assert [found for page in pages for found in loads.findall(page.read_text())] == []
    styles = "".join(style.read_text() for style in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//", styles) == []


def test_the_reference_has_commands_and_public_names(site) -> None:
    command_line = (site / "reference" / "command-line.html").read_text()
    assert "--trial-timeout TIME" in command_line
    python = (site / "reference" / "python.html").read_text()
    for name in ("PipelineSearch", "tune", "local_server", "ArtifactStore", "Flags"):
        assert f'id="prefect_tune.{name}"' in python
    assert "Whether it runs on sparse matrices" in python
