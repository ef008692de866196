"""Data formats, each defined by one declaration.

`format` defines the class `Format`, finds formats by name, and recognizes the format of a file or
folder. `tables`, `omop` and `synthea` declare formats.
"""
