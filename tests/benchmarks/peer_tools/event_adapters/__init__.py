"""One module per tool that predicts from patient events, `ours` and `tuned_lightgbm`.

`predictions` takes a split, a folder, the seconds of the budget and the tool's options, and returns
the probability of the larger class for each label of the test patients, in the order of the file.
"""
