"""Losses that are known: `artificial`, the objective of the ADMM paper; `planted`, any space's."""
