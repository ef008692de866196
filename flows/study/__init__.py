"""A study in the ledger, and how a process opens and runs it.

`plan` has everything a study is started with. `study` is a study that this process runs under its
`lease`, within its `time_limit`; `replayed` rebuilds its trials and optimizer from events.
`retention` keeps predictions and pins for later use, and `finalists` are evaluated again. `notices`
are its warnings, `trial_output` is the printed output of its trials, and `explanations` give the
reason if it has no model. `ensemble` chooses several trials by the plan's rule;
`next_best` trials replace a choice that cannot be the model.
"""
