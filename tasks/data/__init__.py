"""From what the user names to a data set and its split.

`source` says what to read and `reading` reads it: `formats` recognises it, `files` opens tables,
`table` checks them; `events`, `omop`, `synthea` and `timestamps` read patient logs; `bundled` and
`cohort` need no file. `dataset` and `split` are what a study keeps.
"""
