"""Each public class has a name of its own."""

import re
from collections import Counter

from source_tree import SOURCES


def test_a_public_class_has_its_name_for_itself() -> None:
    pattern = re.compile(r"^ *class ([A-Z]\w*)[(:]", re.MULTILINE)
    names = Counter(name for path in SOURCES for name in pattern.findall(path.read_text()))
    assert len(names) > 300
    assert [name for name, n in names.items() if n > 1] == []
