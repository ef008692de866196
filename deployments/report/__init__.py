"""Reports: each is one HTML file, which needs no network.

A `page` is plain texts, tables and figures, and `html` makes a file of it, with Plotly's script and
the `templates`. `study_page` consists of `sections`; `comparison_page` shows a comparison.
Both draw with `plots` and share their `wording`.
"""
