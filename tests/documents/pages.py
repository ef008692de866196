"""README and the pages of the documentation, and their commands and programs."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml
from source_tree import ROOT

__all__ = ["ADDING", "DOCS", "DOCUMENTS", "Document", "commands", "files", "programs"]

DOCS = ROOT / "deployments" / "docs"
_FILE = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True)
class Document:
    """A Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        """Path in the repository."""
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    def blocks(self, language: str) -> list[str]:
        """Return the code blocks in a language, in order."""
        return re.findall(rf"^```{language}\n(.*?)^```", self.text, re.DOTALL | re.MULTILINE)

    @property
    def commands(self) -> list[str]:
        return [line for block in self.blocks("sh") for line in block.strip().splitlines()]

    @property
    def links(self) -> list[str]:
        """Targets of links and pictures."""
        prose = re.sub(r"```.*?```|<!--.*?-->", "", self.text, flags=re.DOTALL)
        return re.findall(r"\]\(([^)\s]+)\)", prose)


def _pages(nav: object) -> list[str]:
    """Yield paths of pages in the order of the navigation."""
    if isinstance(nav, str):
        return [nav]
    children = nav.values() if isinstance(nav, dict) else nav
    return [page for child in children for page in _pages(child)]  # type: ignore[attr-defined]


def _in_order() -> tuple[Document, ...]:
    settings = yaml.safe_load((DOCS / "mkdocs.yml").read_text())
    pages = [DOCS / "pages" / page for page in _pages(settings["nav"])]
    return tuple(map(Document, (ROOT / "README.md", DOCS / "pypi.md", *pages)))


DOCUMENTS = _in_order()
"""README first, as a newcomer reads them: what it starts, pages go on with."""
ADDING = tuple(d for d in DOCUMENTS if d.path.parent.name == "adding")
"""Pages of which each has a test of its own."""


def commands() -> list[str]:
    """Return each command of the documents once."""
    return list(dict.fromkeys(c for d in DOCUMENTS if d not in ADDING for c in d.commands))


def files(*documents: Document) -> dict[str, str]:
    """Return the files that are shown as programs, by name."""
    blocks = [block for d in documents for block in d.blocks("python")]
    return {named.group(1): block for block in blocks if (named := _FILE.match(block))}


def programs() -> list[str]:
    """Return each program of the documents that is not shown as a file, once."""
    blocks = [block for d in DOCUMENTS if d not in ADDING for block in d.blocks("python")]
    return list(dict.fromkeys(block for block in blocks if not _FILE.match(block)))
