"""A study in the ledger, and how a process opens and runs it.

`plan` has everything a study is started with. `study` is a study that this process runs under its
`lease`, within its `time_limit`; `replayed` rebuilds its trials and optimizer from events.
`retention` decides which predictions and pins stay, and `finalists` selects trials to re-evaluate.
`notices` are the warnings, `trial_output` stores the output of trials, and `explanations` tell why
there is no model. `ensemble` combines several trials, and `next_best` replaces a choice that cannot
be the model.
"""
