"""Reports: HTML files that need no network.

`study_page` collects the report of a study in one pass from its `figures`, and builds its page,
which starts with the `answers`. `comparison_data` and `comparison_page` do so for comparisons.

A `page` consists of plain texts, tables and figures. `html` renders it with Plotly's script and the
`templates`. All modules draw with `plots` and share their `wording`.
"""
