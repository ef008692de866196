"""A study in the ledger: what it is, how it is opened, read, used and removed.

`plan` is all that it is started with. `study` is one that this process runs, under its `lease` and
its `clock`, with its `trials` and their `time_limit`, and the optimizer as `replayed` for its
`objective`; `keeping` is of what it may need again, `finalists` are looked at again; `notices` are
its warnings, `trial_output` is what its trials print; `explanations` say why it has no model.
`ensemble` chooses several trials for it, by the plan's `ensemble_rule`. `next_best` trials take the
place of a choice that cannot be the model. Readers use `lookup`, `summary` and `documents`, and the
`command` that starts or resumes it. `predict` uses the final model, `remove` takes a study out.
"""
