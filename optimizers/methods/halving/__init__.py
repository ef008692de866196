"""Successive halving (Jamieson and Talwalkar 2016): the `declaration`, and `halving`, the method.

`options` are those that Hyperband and BOHB share, and `rendering` their decisions. `fidelities`
chooses what is halved and refuses what a study cannot have, `rungs` are its levels, and `brackets`
says who goes on. It needs no memo: who is in which bracket follows from the order of asking.
"""
