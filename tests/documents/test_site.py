"""The site is built without warnings, and requests no external resource."""

import os
import re
import subprocess
import sys

import pytest
from documents.pages import DOCS

pytestmark = [pytest.mark.slow, pytest.mark.full]


def test_site_has_all_pages_and_loads_no_external_resource(tmp_path) -> None:
    """The build is strict, like `deployments/docs/build`, so a warning is a failure."""
    settings = DOCS / "mkdocs.yml"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "-f", settings, "-d", tmp_path],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 25
    loads = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*")
    assert [found for page in pages for found in loads.findall(page.read_text())] == []
    styles = "".join(style.read_text() for style in tmp_path.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//", styles) == []
    assert "--trial-timeout TIME" in (tmp_path / "reference" / "command-line.html").read_text()
    assert 'id="prefect_tune.tune"' in (tmp_path / "reference" / "python.html").read_text()
