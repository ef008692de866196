"""README and pages speak of what there is: commands, options, methods, benchmarks, files."""

import re
from pathlib import Path

import click
import pytest
from documents.option_tables import PAGES, option_table, tables
from documents.pages import DOCUMENTS, Document
from source_tree import ROOT

from prefect_tune.deployments.cli.command import main
from prefect_tune.optimizers.registry import METHODS

README = DOCUMENTS[0]
OF_OTHERS = {
    *(
        "all",
        "from",
        "from-file",
        "help",
        "no-prompt",
        "nthreads",
        "nworkers",
        "param",
        "pool",
        "prefect-file",
    ),
    *("cov", "except", "old", "recorded", "serve", "strict", "type", "watch", "without-tests"),
}
"""Options of Prefect, Dask, uv, benchmarks and the build."""
CONTRIBUTING = Document(ROOT / ".github" / "CONTRIBUTING.md")
EVERY = [pytest.param(document, id=document.name) for document in (*DOCUMENTS, CONTRIBUTING)]


def all_options(command: click.Command) -> set[str]:
    """Options of a command and of those below it, without their dashes."""
    own = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return {o.removeprefix("--") for o in own}.union(*map(all_options, below))


@pytest.mark.parametrize("document", EVERY)
def test_commands_and_options_that_are_named_exist(document: Document) -> None:
    text = re.sub(r"<!-- integrate:.*?-->[^\n]*", "", document.text)
    assert set(re.findall(r"`prefect-tune (\w+)", text)) <= set(main.commands)
    options = set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", re.sub(r"<!--.*?-->", "", text)))
    assert options - OF_OTHERS <= all_options(main)


@pytest.mark.parametrize("document", EVERY)
def test_benchmarks_that_are_named_exist(document: Document) -> None:
    named = re.findall(r"tests/benchmarks/run (\w+/\w+)", document.text)
    missing = [n for n in named if not (ROOT / "tests" / "benchmarks" / f"{n}.py").exists()]
    assert missing == []


def headings(page: Path) -> set[str]:
    """Anchors of a page's headings."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).strip().replace(" ", "-") for h in found}


@pytest.mark.parametrize("document", EVERY)
def test_links_lead_somewhere(document: Document) -> None:
    lost = []
    for link in document.links:
        name, _, anchor = link.partition("#")
        path = document.path.parent / name if name else document.path
        if not link.startswith("https://") and (
            not path.exists() or (anchor and anchor not in headings(path))
        ):
            lost.append(link)
    assert lost == []


def test_the_map_of_the_house_names_files_and_folders_that_are_there() -> None:
    named = re.findall(r"`(?!build/)([\w.-]+/[\w./-]*)`", CONTRIBUTING.text)
    assert len(named) > 60
    assert [path for path in named if not (ROOT / path.replace("NAME", "flash")).exists()] == []


def test_each_page_is_one_link_away() -> None:
    linked = {
        (d.path.parent / link.partition("#")[0]).resolve() for d in DOCUMENTS for link in d.links
    }
    assert [d.name for d in DOCUMENTS[2:] if d.path not in linked] == []


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_options_of_methods_are_those_that_they_declare(page: Path) -> None:
    """`tests/documents/option_tables.py` writes the tables anew."""
    written = tables(page)
    assert written == {method: option_table(method) for method in written}


def test_every_method_with_options_has_a_table() -> None:
    written = {method for page in PAGES.glob("*.md") for method in tables(page)}
    assert written == {m.name for m in METHODS.values() if m.name != "random"}


def test_the_overview_has_what_methods_declare() -> None:
    rows = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+) \| (.*) \|$", (PAGES / "index.md").read_text(), re.MULTILINE
    )
    told = {}
    for names, cells in rows:
        races, portfolio, ensemble, constraints, less = map(str.strip, cells.split("|"))
        for name in re.findall(r"\w+", names):
            of_method = re.search(rf"`{name}`: (.+)", less)
            less_of = of_method.group(1) if of_method else "" if "`" in less else less
            told[name] = (bool(races), bool(portfolio), ensemble, bool(constraints), bool(less_of))
    ends = {"agnostic": "an agnostic ensemble", "auto": "`auto`", None: "the best trial"}
    assert told == {
        m.name: (
            *(m.is_raced, m.has_portfolio, ends[m.ensemble]),
            *(m.honours_constraints, bool(m.fidelities)),
        )
        for m in METHODS.values()
    }


def test_readme_is_read_at_one_sitting() -> None:
    assert 10_000 < len(README.text.encode()) < 16_500


def test_what_the_project_page_says_is_in_readme() -> None:
    bullets = re.findall(r"^- \*\*.*", DOCUMENTS[1].text, re.MULTILINE)
    assert len(bullets) == 3
    assert all(bullet in README.text for bullet in bullets)
