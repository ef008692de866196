"""A page as one self-contained HTML file.

Its Content-Security-Policy allows only two scripts, its own and Plotly's, by their digests, and
loads nothing else. Names and messages of a study therefore stay text.
"""

import gzip
import hashlib
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from prefect_tune.deployments.report.page import Figure, ReportPage
from prefect_tune.flows.text import shown

_PLACE = Path("package_data", "plotly.min.js")
_LEVEL = 6
"""Compression level: the highest takes three times as long to save one percent."""


@dataclass(frozen=True, slots=True)
class PlotlyBundle:
    """Plotly's script: gzipped in base64 (`packed`), and the CSP source of the unpacked script."""

    packed: str
    source: str


@cache
def plotly_bundle() -> PlotlyBundle:
    """Return the script of the installed package."""
    spec = find_spec("plotly")
    assert spec is not None  # noqa: S101 - a dependency
    assert spec.origin is not None  # noqa: S101 - it has an __init__.py
    script = (Path(spec.origin).parent / _PLACE).read_bytes()
    packed = gzip.compress(script, _LEVEL, mtime=0)
    return PlotlyBundle(b64encode(packed).decode("ascii"), source_hash(script))


def source_hash(script: bytes) -> str:
    """Return the CSP source of an inline script."""
    return f"'sha256-{b64encode(hashlib.sha256(script).digest()).decode('ascii')}'"


_TEMPLATES = files("prefect_tune.deployments.report") / "templates"


def page_html(page: ReportPage) -> str:
    """Return the HTML of a page, with Plotly if it has figures; always below 5 MB."""
    script = _text("report.js")
    has_figures = any(isinstance(part, Figure) for s in page.sections for part in s.parts)
    bundle = plotly_bundle() if has_figures else None
    sources = [source_hash(script.encode()), *([bundle.source] if bundle else [])]
    policy = (
        f"default-src 'none'; script-src {' '.join(sources)}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            policy=policy,
            style=Markup(_text("report.css")),  # noqa: S704 - our own files
            script=Markup(script),  # noqa: S704
            plotly=Markup(bundle.packed) if bundle else None,  # noqa: S704
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment


def _shown(value: Any) -> Any:
    """Return a text with control characters escaped; templates are trusted markup."""
    return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _text(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
