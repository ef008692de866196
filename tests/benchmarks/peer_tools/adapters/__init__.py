"""One module per tool: `answers` runs it, `prepare` installs its requirements beforehand.

`ours`, `flaml`, `optuna`, `smac` and `autogluon`. Each can be imported without its library.
"""
