"""How much each choice matters: which algorithm at a step, and the value of each hyperparameter.

`importance` fits bagged forests to the losses of a study and reports effects; `effects` splits a
model's variance among the inputs of a space.
"""
