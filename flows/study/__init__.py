"""A study in the ledger: how it is opened, run, read, used and removed.

`plan` has everything a study is started with. `study` is a study that this process runs, under its
`lease`, with its `trials` and their `time_limit`, and the optimizer as `replayed` for its
`objective`. `keeping` retains predictions and pins for later use; `finalists` are evaluated again.
`notices` are its warnings, `trial_output` is what its trials print, and `explanations` give the
reason if it has no model. `ensemble` chooses several trials by the plan's `ensemble_rule`;
`next_best` trials replace a choice that cannot be the model. Readers use `lookup`, `summary` and
`documents`, and the `command` that starts or resumes a study. `predict` uses the final model.
"""
