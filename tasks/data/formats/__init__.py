"""Data formats, each one declaration.

`format` is the class of the declarations; `tables`, `omop` and `synthea` hold them. `registry`
knows them by name, and finds out which one a file or folder is in.
"""
