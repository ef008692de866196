"""Reports: HTML files that need no network.

- `study_report`: tables of a study, from one pass over its trials; `judged_model`: its model on the
  test rows.
- `study_page`: the page of a study, with the sections of `figures`.
- `comparison_page`: the page of a comparison.
- `page`: plain texts, tables and figures, and their style; `html`: the file.
"""
