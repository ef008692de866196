"""The options of a study and of a comparison, each declared once.

`declared` has the table, a frozen dataclass of parsed values. `values` has the types of values
beyond text and numbers, and their written forms. `form` makes the form of a deployment. `caller`
rewrites options as parameters in messages to Python callers.
"""
