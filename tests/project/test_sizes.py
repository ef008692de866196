"""Nothing grows past what is read at one sitting."""

from collections import Counter

from source_tree import listed_files

FILES = 20


def test_no_folder_shows_more_than_twenty_files() -> None:
    counted = Counter(p.parent for p in listed_files() if p.name != "py.typed")
    assert {str(folder): n for folder, n in counted.items() if n > FILES} == {}
