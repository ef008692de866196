"""Following a study that runs: small values, made at little cost.

`incumbent_curve` keeps what has led, `block_curve` draws it in a line of text, `remaining_time`
predicts the end of a search, and `running_trial` says where a trial under way stands.
"""
