"""Series: studies of one question over time, and the champion among their models.

`series` folds the log of a series into its state, and changes it under a lease. `question` is what
its studies have in common, `changes` compares their data, and `warm_start` makes a new study begin
with the results of earlier ones. A `champion` is a promoted model, which the series keeps.
"""
