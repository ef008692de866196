"""Each public class has a unique name."""

import re
from collections import Counter

from source_tree import SOURCES


def test_public_class_names_are_unique() -> None:
    pattern = re.compile(r"^ *class ([A-Z]\w*)[(:]", re.MULTILINE)
    names = Counter(name for path in SOURCES for name in pattern.findall(path.read_text()))
    assert len(names) > 300
    assert [name for name, n in names.items() if n > 1] == []
