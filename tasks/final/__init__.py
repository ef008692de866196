"""Final models: `refit` on all training rows, an `ensemble` of models, and `export` of programs.

`figures` show the quality of a model on the test rows, and how it uses the columns made of events.
`promotion` compares two models on fresh rows. `export` writes a model for use elsewhere, and prints
the code of a trial's pipeline.
"""
