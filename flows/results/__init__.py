"""Results of a study, for those who go on with them elsewhere.

`loaded_study` has them all, in Python. A `trial_table` has a row for each trial, an `optuna_study`
is the same for Optuna; `params` are flat for both, and the `timeline` says when and why. One trial
is `explained`, or becomes a program that runs it `again`; what it `printed` is
kept; who reads trials by their space has the
`space_as_run`. The final model is `exported`, with the `card_facts` of a model card.
"""
