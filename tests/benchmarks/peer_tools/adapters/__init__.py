"""One module per tool: `answers` runs it, `prepare` installs its requirements beforehand.

The tools are `ours`, `flaml`, `optuna`, `smac` and `autogluon`. Each module can be imported without
the tool's library.
"""
