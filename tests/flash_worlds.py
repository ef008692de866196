"""Names of `worlds` under their old module, until all callers import that."""

from worlds import counted_space, planted_loss

__all__ = ["counted_space", "planted_loss"]
