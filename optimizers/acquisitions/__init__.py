"""Acquisition functions: how good a candidate is by a surrogate's mean and deviation.

`expected_improvement` is the plain one, `log_normal_improvement` that of a loss whose logarithm is
predicted, `augmented_improvement` adds penalties and constraints, `maximise` finds the best
candidates, and `gaussian_search` is the search made of these; a `pool` has candidates without
gradients. `information_gain` is that of entropy
search: how much is learned of the `minimiser`, which is one of some `representers`.
`joint_improvement` values candidates chosen together.
"""
