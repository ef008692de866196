"""A study in the ledger, and the process that opens and runs the study.

- `plan`: all settings of a study.
- `facts`: the result of a study so far.
- `study`: a study run by this process, and the output of its trials.
- `progress`: progress of a running study, and its observers.
- `lease`: the lease of a study, and the clock of study time.
- `replayed`: trials and optimizer, rebuilt from the ledger.
- `retention`: predictions and pins that are kept.
- `notices`: warnings of a study.
"""
