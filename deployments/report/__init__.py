"""Reports as pages: one HTML file, which needs no network.

A `page` is what stands on it, of plain texts; `html` makes the file of it, with the script of a
`plotly_bundle` and the `templates`.
`study_page` is made of `sections`; `comparison_page` is that of a comparison. Both draw with
`plots`, `thinning` what is too much, in the same `wording`.
"""
