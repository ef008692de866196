"""Reports: HTML files that need no network.

- `study_report`: tables of a study, from one pass over the trials; `judged_model`: the final model
  on the test rows.
- `study_page`: the page of a study, which consists of the sections in `figures`.
- `comparison_page`: the page of a comparison.
- `page`: plain texts, tables and figures, and their style; `html`: the HTML file.
"""
