"""Options of studies and comparisons, each declared in one place.

- `declared`: the table of options, a frozen dataclass of parsed values
- `values`: types of values other than strings and numbers, and their written forms
- `form`: the form of a deployment
- `store_location`: the store that options name, and the home folder
"""
