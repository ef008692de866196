"""One module per tool: `answers` runs the tool, `prepare` installs requirements beforehand.

The tools are `ours`, `flaml`, `optuna`, `smac` and `autogluon`. Each module can be imported without
the tool's library.
"""
