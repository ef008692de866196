"""Import of the user's input as a data set, and the split of the data set.

The entry point is `reading`, which turns a `source` into a data set. A source is a `location` in
one of the `formats`, a generated `cohort`, or a bundled table. `tables` handles tables, which
`files` loads: `schema` infers the kind of each column and reads the times of rows, `notation`
parses numbers written as strings, and a `row_reader` reads rows by the inferred schema. Patient
`events` and their labels come from `event_tables`; a `code_table` adds descriptions and ancestors
of codes. `reading` also detects implausible labels. A study stores its `dataset`, which includes
row ids, and its `split`. In a `forward_split`, held-out rows are newer than training rows.
"""
