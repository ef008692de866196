"""Expected improvement on all rows: its `declaration`, and `ei`, the method."""
