"""For how many trials the store keeps what a study may need again.

`stretch_pins` keep the models that stopped trials can go on from, `kept_predictions` the held-out
predictions that ensembles are chosen by.
"""
