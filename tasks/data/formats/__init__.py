"""Data formats, each one declaration.

`format` has the class of the declarations, finds formats by name, and recognizes the format of a
file or folder. `tables`, `omop` and `synthea` declare formats.
"""
