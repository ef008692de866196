"""Data formats, each one declaration.

`format` says what a declaration holds; `omop` and `synthea` make theirs. `registry` declares
tables and event logs, keeps all formats, and finds out which one a file or folder is.
"""
