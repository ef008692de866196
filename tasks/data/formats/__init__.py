"""Data formats, each one declaration.

`format` says what a declaration holds; `tables`, `event_logs`, `omop` and `synthea` make theirs;
`registry` keeps them all, and finds out which one a file or folder is.
"""
