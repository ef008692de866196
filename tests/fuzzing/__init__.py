"""Hostile input of four kinds.

- ground: folders in which cases are tried, and what holds after each
- values: texts, numbers and JSON that nobody expects
- options: commands, and parameters of the flow, with options at random
- data_files: tables and event logs, whose cells and bytes are damaged
- store_files: a finished study whose files and rows are damaged, and commands that look at it
"""
