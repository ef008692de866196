"""Import of the user's input as a data set, and its split.

`reading` reads a `source`. It finds the format of a `location` in `formats`, generates a `cohort`
or takes a bundled table. `tables` makes a data set from a table (`files`,
with a `csv_dialect`): `schema` learns the kinds of its columns, and the `notation` of numbers in
texts. A `row_reader` reads rows accordingly, `row_times` reads times, and `target` has the target.
For patient `events` and their labels (`event_tables`), `reading` makes the data set, with a
`code_table` of descriptions and ancestors, and finds labels that cannot be right. A study keeps its
`dataset` and `split`. A `forward_split` holds out newer rows than it trains on. `row_ids` fix the
test rows of a series, and find copies of rows.
"""
