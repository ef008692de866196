"""Unexpected strings, numbers and JSON."""

from typing import Any

from hypothesis import strategies as st

SECRET = "sw0rdfish"  # noqa: S105 - that is what it is for
"""The password in every URL that has one; it is never shown."""
_NOTHING_LISTENS = "127.0.0.1:9"
_TEXTS = (
    "", " ", "-", "--", "-1", "--json", "--trials=3", "=", "x=", "=1", "a=b=c", ",,", ":", ":=",
    "x()<=", "<=1", "latency_us<=nan", "latency_us<=1e999", "latency_us<=-1",
    "group_gap(count, bins=)<=1", "group_gap(a, bins=0:1, metric=nothing)<=1",
    "group_gap(count, bins=6:3)<=60", "[/x]", "[nan]", "{0}", "%s", "\\", "\x1b[31m", "\r",
    "a\nb", "\u202eabc", "\ufeff", "\udcff", "\N{SNOWMAN}" * 3, "٣", "²", "1_000", "nan", "-inf",
    "1e999", "1e-320", "-0", "0x10", "00", "1,5", "9" * 30, "9" * 5000, "9" * 400 + "h",
    "9" * 400 + "GB", "0GB", "1h1h", "30 m", "None", "true", "[]", '{"a":1}', "[" * 200,
    "r=" + "[" * 5000, "A" * 300, "..", "*", "~", "no/such/file.csv", "x.parquet", "x.py:space",
    "x.py:", ":x", "sklearn:", "sklearn:none", "cohort:demo?", "cohort:demo?seed=-1", "memory://x",
    "nosuch://x", "://", f"http://{_NOTHING_LISTENS}/x.csv", "http://[::1", "data:,a",
    "zip://x::y.zip", "simplecache::none", "reference://x", "sqlite:///none/x", "postgresql://",
    "mysql://u@h/x", "sqlite+nosuch:///x", "x://u@h:port/x",
    f"postgresql+psycopg://u:{SECRET}@{_NOTHING_LISTENS}/x", f"s3://key:{SECRET}@b/c",
    f"https://u:{SECRET}@{_NOTHING_LISTENS}/x.csv", f"https://h/x.csv?token={SECRET}",
)  # fmt: skip
_PLAIN = st.characters(codec="utf-8", exclude_characters="/~\0")
"""No path of the machine comes of them, and nothing that a program's arguments cannot be."""


def texts() -> st.SearchStrategy[str]:
    """Return strings that have a special meaning to some parser, and meaningless strings."""
    return st.sampled_from(_TEXTS) | st.text(_PLAIN, max_size=12)


def numbers() -> st.SearchStrategy[int | float]:
    """Return numbers of any size, and values that are not numbers."""
    return st.sampled_from((0, 1, 2, 5, -1, 0.0, 0.5, 1.0, 1e308, 2**31, 2**63, 10**30)) | (
        st.integers(-(10**6), 10**6) | st.floats()
    )


def documents() -> st.SearchStrategy[Any]:
    """Return JSON values, including values that only Python writes, such as NaN."""
    scalars = st.none() | st.booleans() | numbers() | texts() | st.just("a\0b")
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
        max_leaves=5,
    )
