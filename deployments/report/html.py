"""Rendering of a page as a single, self-contained HTML file.

The Content-Security-Policy of the file allows only two scripts by their digests (the page's script
and Plotly) and loads nothing else. Names and messages of a study therefore never run as code.
"""

import gzip
import hashlib
import json
from base64 import b64encode
from functools import cache, lru_cache
from html import escape
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from plotly.io.json import to_json_plotly
from plotly.offline import get_plotlyjs

from prefect_tune.deployments.report.page import Figure, ReportPage, clipped
from prefect_tune.flows.reading.study_lines import Strong
from prefect_tune.flows.wording.text import printable

_LEVEL = 4
"""Compression level. The highest level takes five times as long and saves only four percent."""
_TEMPLATES = files("prefect_tune.deployments.report") / "templates"


@cache
def plotly_script() -> tuple[str, str]:
    """Return Plotly's script, gzipped and base64-encoded, and the script's CSP source."""
    script = get_plotlyjs().encode()
    packed = gzip.compress(script, _LEVEL, mtime=0)
    return b64encode(packed).decode("ascii"), source_hash(script)


def source_hash(script: bytes) -> str:
    """Return the CSP source expression that allows an inline script."""
    return f"'sha256-{b64encode(hashlib.sha256(script).digest()).decode('ascii')}'"


def page_html(page: ReportPage) -> str:
    """Return the HTML of a page, below 5 MB. Plotly is included only if the page has figures."""
    script = _text("report.js")
    has_figures = any(isinstance(part, Figure) for s in page.sections for part in s.parts)
    packed, source = plotly_script() if has_figures else ("", "")
    policy = (
        f"default-src 'none'; script-src {source_hash(script.encode())} {source}; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    own = {"style": _text("report.css"), "script": script, "plotly": packed}
    trusted = {name: Markup(text) for name, text in own.items()}  # noqa: S704 - our own files
    return _environment().get_template("page.html").render(page=page, policy=policy, **trusted)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        # Control characters are escaped in texts; templates are trusted markup.
        finalize=lambda one: printable(one) if type(one) is str else one,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["values"] = lambda plot: _values(json.loads(to_json_plotly(plot)))
    environment.tests["strong"] = lambda part: isinstance(part, Strong)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment


def _values(value: Any, name: str = "") -> Any:
    """Return the values of a figure, with markup in texts escaped."""
    if isinstance(value, dict):
        return {key: _values(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [_values(one, name) for one in value]
    if name == "bdata" or not isinstance(value, str):  # packed numbers
        return value
    return _without_markup(value, is_template=name == "hovertemplate")


@lru_cache(10_000)
def _without_markup(text: str, *, is_template: bool) -> str:
    """Escape a text for Plotly, which reads `<` as markup. Templates keep Plotly's own tags."""
    plain = escape(printable(clipped(text, 1_000 if is_template else 160)), quote=False)
    if is_template:
        for markup in ("<br>", "<b>", "</b>", "<extra></extra>"):
            plain = plain.replace(escape(markup), markup)
    return plain


@cache
def _text(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
