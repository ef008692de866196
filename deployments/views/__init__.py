"""Text for people: a file a subject.

`study` and `trials`, one `trial`, `artifact` and the whole `store`, `comparison` of methods; `live`
follows a study that runs, by its `standing` or with `live_lines`, in a `notebook` as well. All
print to one `console`, to which nothing is markup, what is `plain`, in the
`result_stream`. An `exported` model has its
`loading_code` and a `model_card`, of `card_tables`.
"""
