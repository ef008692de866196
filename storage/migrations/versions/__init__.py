"""Changes of the tables, in order; Alembic loads these files, nobody imports them.

`r2_first` is the schema that all others start from.
"""
