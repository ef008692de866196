"""The options of a study and of a comparison, each declared once.

`declared` has the table, a frozen dataclass that holds parsed values; `values` the values that are
more than text and numbers, and how they are written; `form` makes the form of a deployment;
`caller` writes parameters instead of options in messages to Python callers.
"""
