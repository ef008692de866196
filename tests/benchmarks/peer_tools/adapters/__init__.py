"""A module for each tool: `answers` asks it, `prepare` installs what it needs beside the seconds.

`ours`, `flaml`, `optuna`, `smac` and `autogluon`. Each can be imported without its library.
"""
