"""Other people's texts are no markup in Prefect's pages, load nothing and link nowhere."""

import re

import pytest
from markdown_it import MarkdownIt

from prefect_tune.flows.flow_run_page.plain_text import cell, escaped

HOSTILE = [
    "<img src=http://evil.example/x.png>",
    "<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "![x](http://evil.example/x.png)",
    "see https://evil.example/?q=1 or www.evil.example or <mailto:a@evil.example>",
    "# heading",
    "> quote",
    "- item",
    "1. item",
    "*bold* `code` ~~gone~~ a_b _c_ __d__",
    "a | b",
    "&lt;b&gt; &amp; \\<b>",
    "two\nlines\r\n\r\nand a third",
]
MARKDOWN = MarkdownIt("gfm-like", {"html": True, "linkify": False})
ADDRESS = re.compile(r"://|www\.|mailto:")
"""What readers of markdown make links of by themselves."""


def tokens(text: str) -> set[str]:
    """The kinds of markup that a reader of markdown finds in a text."""
    found = set()
    for token in MARKDOWN.parse(text):
        found.add(token.type)
        found |= {child.type for child in token.children or ()}
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_a_line_of_markdown_has_nothing_but_its_words(text) -> None:
    plain = {"paragraph_open", "inline", "text", "text_special", "paragraph_close"}
    assert tokens(escaped(text)) <= plain
    assert not ADDRESS.search(escaped(text).replace("\\", ""))
    shown = "".join(c.content for t in MARKDOWN.parse(escaped(text)) for c in t.children or ())
    assert shown.replace("\u200b", "") == " ".join(text.split())


@pytest.mark.parametrize("text", HOSTILE)
def test_a_cell_has_nothing_but_its_words_and_no_escapes_that_would_be_seen(text) -> None:
    seen = tokens(cell(text)) - {"paragraph_open", "inline", "text", "paragraph_close"}
    assert seen <= {"text_special", "html_entity"}
    assert not ADDRESS.search(cell(text))
    assert "\n" not in cell(text)
    assert cell("fit model: ValueError at x=0.5") == "fit model: ValueError at x=0.5"


def test_what_steers_what_shows_it_is_spelt_out() -> None:
    for shown in (escaped, cell):
        said = shown("\u202egnp.exe \x1b[2J\x9b2J")
        assert not {"\u202e", "\x1b", "\x9b"} & set(said)
        assert "u202e" in said


def test_passwords_are_not_shown() -> None:
    for shown in (escaped, cell):
        assert "s3cret" not in shown("postgresql://user:s3cret@host/db is away")
