"""Racing, around any method that asks for full evaluations.

`racing` is the optimizer around the method. Its `rules` say which part of an evaluation runs next,
when a configuration is clearly behind, and what the method is told then.
"""
