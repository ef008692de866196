"""Final models: `refit` on all training rows, `ensemble` of several models, and `export`.

`quality` measures predictions for the test rows, and `figures` shows how a model uses the columns.
`promotion` compares two models on fresh rows. `export` writes a model for use elsewhere, and prints
the code of a trial's pipeline.
"""
