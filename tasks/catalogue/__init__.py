"""Algorithms and spaces as data, each algorithm declared once and reused.

`spaces` lists all spaces by name, and finds the usable part of a space if a library is missing.
`notation` declares hyperparameters and algorithms in few words. `flash` has FLASH's steps and the
spaces made of them, `admm` ADMM's spaces, and `modern` the modern spaces, with the first
configurations of a search in `portfolios`. They share the `construction` of features from events
and the `preparation` of tables, scales and classes.

`estimators`, `gaps_and_categories`, `combinations`, `boosting`, `construction` and `event_windows`
have our own estimators.

An algorithm is one declaration: estimator, hyperparameters, effective values, flags. New algorithms
may be inserted anywhere in a step, because running studies keep the algorithms they started with.
Changing an algorithm, or the order of algorithms, makes studies of the spaces unusable. Keys and
pickles name estimators by path, so estimators must not move.
"""
