"""What methods that reason about paths share: their table, their cost, their design."""
