"""A study in the ledger, and how a process opens and runs it.

- `plan`: all that a study is started with.
- `facts`: the result of a study so far.
- `study`: a study run by this process, and the output of its trials.
- `progress`: progress of a running study, and its observers.
- `lease`: the right to run a study, and the clock of its sessions.
- `replayed`: trials and optimizer, rebuilt from events.
- `retention`: predictions and pins to keep.
- `notices`: warnings.
"""
