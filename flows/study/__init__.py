"""A study in the ledger, and how a process opens and runs it.

`plan` has everything a study is started with. `study` is a study that this process runs under its
`lease`, within its `time_limit`; `replayed` rebuilds its trials and optimizer from events.
`retention` keeps predictions and pins, and `finalists` are evaluated again. `notices` are its
warnings, `trial_output` stores the output of its trials, and `explanations` say why it has no
model. `ensemble` selects several trials; `next_best` trials replace a choice that cannot be the
model.
"""
