"""Nothing grows past what is read at one sitting."""

from collections import Counter

from source_tree import listed_files

FILES = 20


def test_no_folder_shows_more_than_twenty_files() -> None:
    counted = Counter(path.parent for path in listed_files())
    assert {str(folder): n for folder, n in counted.items() if n > FILES} == {}
