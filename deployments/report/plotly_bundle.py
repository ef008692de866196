"""Plotly's script, taken from its package, which takes seconds to import and is not."""

import gzip
import hashlib
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

__all__ = ["PlotlyBundle", "plotly_bundle", "source_hash"]

_PLACE = Path("package_data", "plotly.min.js")
_LEVEL = 6
"""Of compression: the highest takes three times as long for a hundredth of the size."""


@dataclass(frozen=True, slots=True)
class PlotlyBundle:
    """Plotly's script, as a page carries it.

    Attributes:
        packed: The script, compressed by gzip, in base64.
        source: How a Content-Security-Policy names it once it is unpacked.
    """

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
    """Return how a Content-Security-Policy names a script that stands in the page."""
    return f"'sha256-{b64encode(hashlib.sha256(script).digest()).decode('ascii')}'"
