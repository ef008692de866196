"""Racing, around any method that asks for full evaluations.

`racing` is the optimizer around the method, `stretches` what a configuration runs one after
another, `behind` the rule by which it ends before the last of them, and `told_evaluation` what the
method is told then, and of the others.
"""
