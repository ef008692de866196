"""README and pages mention only existing commands, options, methods, benchmarks, tests, files."""

import re
from pathlib import Path

import click
import pytest
from documents.option_tables import PAGES, option_table, tables
from documents.pages import DOCUMENTS, Document
from source_tree import ROOT

from prefect_tune.deployments.cli.command import main
from prefect_tune.optimizers.registry import METHODS

OF_OTHERS = {
    "all", "commit", "cov", "events", "except", "from", "from-file", "help", "large", "no-prompt",
    "nthreads", "nworkers", "old", "only", "param", "pool", "prefect-file", "recorded", "rerun",
    "seeds", "serve", "strict", "type", "watch", "with",
}  # fmt: skip
"""Options of Prefect, Dask, uv, benchmarks and the build."""
CONTRIBUTING = Document(ROOT / ".github" / "CONTRIBUTING.md")
DEFINED = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
EVERY = [pytest.param(document, id=document.name) for document in (*DOCUMENTS, CONTRIBUTING)]


def all_options(command: click.Command) -> set[str]:
    """Return options of a command and its subcommands, without dashes."""
    own = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return {o.removeprefix("--") for o in own}.union(*map(all_options, below))


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).strip().replace(" ", "-") for h in found}


def leads_somewhere(document: Document, link: str) -> bool:
    name, _, anchor = link.partition("#")
    path = document.path.parent / name if name else document.path
    if link.startswith("https://"):
        return True
    return path.exists() and (not anchor or anchor in headings(path))


@pytest.mark.parametrize("document", EVERY)
def test_commands_options_benchmarks_tests_and_links_on_a_page_exist(document: Document) -> None:
    text = re.sub(r"<!-- integrate:.*?-->[^\n]*", "", document.text)
    assert set(re.findall(r"`prefect-tune (\w+)", text)) <= set(main.commands)
    options = set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", re.sub(r"<!--.*?-->", "", text)))
    assert options - OF_OTHERS <= all_options(main)
    benchmarks = re.findall(r"tests/benchmarks/run ([a-z_/]+)", text)
    assert [b for b in benchmarks if not (ROOT / f"tests/benchmarks/{b}.py").exists()] == []
    tests = re.findall(r"`(test_\w+_\w+_\w+)`", text)
    assert [test for test in tests if f"def {test}(" not in DEFINED] == []
    assert [link for link in document.links if not leads_somewhere(document, link)] == []


def test_each_section_with_a_table_on_the_benchmark_page_names_a_command() -> None:
    page = (PAGES.parent / "benchmarks.md").read_text()
    sections = re.split("^#{2,3} ", page, flags=re.MULTILINE)[1:]
    assert all("tests/benchmarks/run " in section for section in sections if "\n|" in section)


def test_links_of_the_pypi_page_are_absolute() -> None:
    links = DOCUMENTS[1].links
    assert links
    assert [link for link in links if not link.startswith("https://")] == []


def test_contributing_guide_names_only_existing_files_and_folders() -> None:
    named = re.findall(r"`(?!build/)([\w.-]+/[\w./-]*)`", CONTRIBUTING.text)
    assert len(named) > 60
    assert [path for path in named if not (ROOT / path.replace("NAME", "flash")).exists()] == []


def test_option_tables_match_the_declarations_of_methods() -> None:
    """`tests/documents/option_tables.py` rewrites the tables."""
    written = {m: table for page in PAGES.glob("*.md") for m, table in tables(page).items()}
    assert written == {m: option_table(m) for m in METHODS if (PAGES / f"{m}.md").exists()}


def test_overview_of_methods_matches_the_declarations() -> None:
    rows = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+) \| (.*) \|$", (PAGES / "index.md").read_text(), re.MULTILINE
    )
    told = {}
    for names, cells in rows:
        races, portfolio, ensemble, constraints, partial = map(str.strip, cells.split("|"))
        for name in re.findall(r"\w+", names):
            is_partial = f"`{name}`" in partial or bool(partial and "`" not in partial)
            told[name] = (bool(races), bool(portfolio), ensemble, bool(constraints), is_partial)
    ends = {"agnostic": "an agnostic ensemble", "auto": "`auto`", None: "the best trial"}
    assert told == {
        m.name: (
            *(m.is_raced, m.has_portfolio, ends[m.ensemble]),
            *(m.honors_constraints, bool(m.fidelities)),
        )
        for m in METHODS.values()
    }
