"""A study in the ledger, and how a process opens and runs it.

- `plan`: everything a study is started with.
- `facts`: the result of a study so far.
- `study`: a study that this process runs.
- `progress`: progress of a running study, and its observers.
- `lease`: the right to run a study, and the clock of its sessions.
- `time_limit`: the time limit of the next trial.
- `replayed`: trials and optimizer, rebuilt from events.
- `retention`: predictions and pins to keep.
- `finalists`: trials to re-evaluate.
- `notices`: warnings.
- `trial_output`: stored output of trials.
- `explanations`: reasons why there is no model.
"""
