"""From what the user names to a data set and its split.

`reading` reads a `source`. It asks `formats` what a `location` holds, or generates a `cohort` (of
`cohort_orders`), or takes a bundled table. `table_source` makes a data set of a table
(`table_files`, with a `csv_dialect`): `columns` learns what its columns hold, a `row_reader` reads
rows by that, and `table` has the target. `reading` makes one of patient `events` and their labels
(`event_tables`, `ids` without loss of digits, `timestamps`) with a `code_table` of descriptions and
ancestors. `code_coverage` counts the patients of each code. `dataset` and `split` are what a study
keeps, and `source_state` notices that an input has changed.
"""
