"""The tables of options on the pages of methods, generated from their declarations.

    PYTHONPATH=tests .venv/bin/python tests/documents/option_tables.py

rewrites the tables; a test reports outdated tables.
"""

import re
from pathlib import Path

from documents.sample_output import RESULTS, with_output
from source_tree import ROOT

from prefect_tune.deployments.cli.completing import method_options, option_text, values_text
from prefect_tune.optimizers.registry import method_named

PAGES = ROOT / "deployments" / "docs" / "pages" / "methods"
_BLOCK = re.compile(r"<!-- options of (\w+) -->\n(.*?)<!-- end of options -->", re.DOTALL)


def option_table(method: str) -> str:
    """Return the options of a method as a Markdown table."""
    rows = [
        f"| `{o.name}` | `{option_text(o.default)}` | {values_text(o)} | {_cell(o.help)} |"
        for o in method_options(method_named(method).options)
    ]
    return "\n".join(["| `--option` | default | values | |", "|---|---|---|---|", *rows, ""])


def tables(page: Path) -> dict[str, str]:
    """Return the tables of a page by method."""
    return {method: table.strip() + "\n" for method, table in _BLOCK.findall(page.read_text())}


def write(page: Path) -> None:
    """Rewrite the tables of a page."""

    def block(found: re.Match[str]) -> str:
        method = found.group(1)
        return f"<!-- options of {method} -->\n\n{option_table(method)}\n<!-- end of options -->"

    page.write_text(_BLOCK.sub(block, page.read_text()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    for path in sorted(PAGES.glob("*.md")):
        write(path)
    RESULTS.write_text(with_output(RESULTS.read_text()))
