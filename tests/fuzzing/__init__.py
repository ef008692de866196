"""Hostile input of four kinds.

- ground: folders in which cases are tried, and what holds after each
- values: texts, numbers and JSON that nobody expects
- settings: parameters of the flow
- data_files: tables and event logs, whose cells and bytes are damaged
- command_lines: commands with options at random
- store_files: a finished study whose files and rows are damaged, and commands that look at it
"""
