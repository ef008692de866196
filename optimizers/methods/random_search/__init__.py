"""Random search: its `declaration`, and `random_search`, the method."""
