"""From what the user names to a data set and its split.

`source` reads: `formats` recognises, `files` opens tables, `table` checks them; `events`, `omop`,
`synthea` and `timestamps` read patient logs; `bundled` and `cohort` need no file. `dataset` and
`split` are what a study keeps.
"""
