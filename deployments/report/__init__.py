"""Reports: each is one HTML file, which needs no network.

`study_page` gathers the report of a study in one pass, from its `figures`, and makes its page, led
by the `answers`. `comparison_data` and `comparison_page` do so for a comparison of methods.

A `page` is plain texts, tables and figures, and `html` makes a file of it, with Plotly's script and
the `templates`. All draw with `plots` and share their `wording`.
"""
