"""A name of `worlds` under its old module, until all callers import that."""

from worlds import counted_space

__all__ = ["counted_space"]
