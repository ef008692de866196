"""Racing by folds, around any method that asks for full evaluations.

`racing` is the optimizer around the method, `first_fold` the rule by which a configuration ends
after its first fold, and `told_evaluation` is what the method is told then, and of the others.
"""
