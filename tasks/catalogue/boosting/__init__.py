"""Boosted trees of other libraries, on tables with gaps and categories or on matrices.

`light_gbm`, `xg_boost` and `cat_boost` each need their library (`prefect-tune[boosting]`). `native`
has their common code, such as codes of categories.
"""
