"""Import of the user's input as a data set, and its split.

`reading` reads a `source`. It finds the format of a `location` in `formats`, generates a `cohort`
or takes a bundled table. `tables` makes a data set from a table in `files`: `schema` learns the
kinds of its columns and reads times of rows, `notation` has numbers in texts, and a `row_reader`
reads rows accordingly. For patient `events` and their labels (`event_tables`), `reading` makes the
data set, with a `code_table` of descriptions and ancestors, and finds labels that cannot be right.
A study keeps its `dataset`, with ids of rows, and its `split`. A `forward_split` holds out newer
rows than it trains on.
"""
