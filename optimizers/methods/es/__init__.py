"""Entropy search on all rows: its `declaration`, and `es`, the method."""
