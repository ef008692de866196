"""Models with unusual predictions, and losses computed without code of the product."""
