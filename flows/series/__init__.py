"""Series: studies of one question over time, and the champion among their models.

`series` folds the log of a series into its state, and changes it under a lease.
"""
