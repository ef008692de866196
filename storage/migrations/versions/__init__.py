"""Changes of the tables, in order; Alembic loads these files, nobody imports them.

`r2_first` is the schema that all others start from; `r3_least_recently_used` drops what other
orders of eviction needed; `r4_options` names options in a study's settings as users do;
`r5_leaders` records which trial of a study leads.
"""
