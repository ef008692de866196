"""Changes of the tables, in order; Alembic loads these files, nobody imports them.

`r1_released_0_1` has the tables of version 0.1. `r2_memos` adds memos of methods, and an index of
records by study.
"""
