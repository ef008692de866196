"""Data formats, each one declaration.

`format` is the class of the declarations in `tables`, `omop` and `synthea`. `registry` finds
formats by name, and recognises the format of a file or folder.
"""
