"""Fitting one step on one fold.

`fitting` does it, `effective_values` clips hyperparameters to the data, `memory_estimate` refuses
what cannot fit, `matrix_summary` describes a matrix, and `libraries` says what enters the key.
"""
