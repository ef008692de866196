"""Hostile input of four kinds.

- ground: folders in which cases are tried, and checks after each case
- values: unexpected strings, numbers and JSON
- options: commands, and parameters of the flow, with random options
- data_files: tables and event logs with damaged cells and bytes
- store_files: a finished study with damaged files and rows, and commands that read it
"""
